package routertest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// fields is what a response says about limits.
type fields struct {
	limit, remaining int64
	policies         map[string]int64 // q by name
	left             map[string]int64 // r by name
	order            []string         // names in RateLimit
}

// readFields reads the fields and checks what is true of every response.
func readFields(s *suite, h http.Header) fields {
	s.Helper()
	legacy := func(name string) int64 {
		require.Len(s, h.Values(name), 1, "%s is there once", name)
		n, err := strconv.ParseInt(h.Get(name), 10, 64)
		require.NoError(s, err, name)
		return n
	}
	f := fields{
		limit: legacy("X-RateLimit-Limit"), remaining: legacy("X-RateLimit-Remaining"),
		policies: map[string]int64{}, left: map[string]int64{},
	}
	reset := time.Unix(legacy("X-RateLimit-Reset"), 0)
	require.False(s, reset.Before(time.Now().Add(-time.Minute)), "X-RateLimit-Reset is seconds since 1970, not behind us: %v", reset)
	require.False(s, reset.After(time.Now().Add(3*time.Hour)), "X-RateLimit-Reset is within two periods: %v", reset)

	list := func(name, param string, into map[string]int64) (names []string) {
		members, err := httpsfv.UnmarshalList(h.Values(name))
		require.NoError(s, err, "%s is a list of RFC 9651: %q", name, h.Values(name))
		for _, member := range members {
			item, ok := member.(httpsfv.Item)
			require.True(s, ok, "%s has items: %v", name, member)
			rule, ok := item.Value.(string)
			require.True(s, ok, "%s has strings: %v", name, item.Value)
			require.NotContains(s, into, rule, "%s lists a policy once: %q", name, h.Values(name))
			value, ok := item.Params.Get(param)
			require.True(s, ok, "%s has %s: %q", name, param, h.Values(name))
			into[rule], ok = value.(int64)
			require.True(s, ok, "%s is an integer: %v", param, value)
			names = append(names, rule)
		}
		return names
	}
	names := list("RateLimit-Policy", "q", f.policies)
	f.order = list("RateLimit", "r", f.left)
	require.Equal(s, names, f.order, "RateLimit and RateLimit-Policy list the same rules")
	return f
}

func stackedHeaders(s *suite) {
	server := s.serve(app([]Limit{perIP(perHour(10))},
		get("/search", say("found"), perIP(perHour(2))), get("/", say("home"))))

	f := readFields(s, server.wantStatus(200, "", "GET /").Header)
	require.Equal(s, map[string]int64{"ip:10/1h sliding-log": 10}, f.policies, "the router's limit alone")
	require.EqualValues(s, 9, f.remaining)

	f = readFields(s, server.wantStatus(200, "", "GET /search").Header)
	require.Equal(s, map[string]int64{"ip:10/1h sliding-log": 10, "ip:2/1h sliding-log": 2}, f.policies, "both limits")
	require.Equal(s, map[string]int64{"ip:10/1h sliding-log": 8, "ip:2/1h sliding-log": 1}, f.left)
	require.Equal(s, []string{"ip:10/1h sliding-log", "ip:2/1h sliding-log"}, f.order, "the outer limit comes first")
	require.EqualValues(s, 2, f.limit, "X-RateLimit-Limit is the stricter limit's")
	require.EqualValues(s, 1, f.remaining, "X-RateLimit-Remaining is the stricter limit's")

	server.wantStatus(200, "", "GET /search")
	a := server.wantStatus(429, "", "GET /search", "Accept: application/problem+json")
	f = readFields(s, a.Header)
	require.Equal(s, []string{"ip:2/1h sliding-log", "ip:10/1h sliding-log"}, f.order, "the rule that refused comes first")
	require.Equal(s, map[string]int64{"ip:10/1h sliding-log": 6, "ip:2/1h sliding-log": 0}, f.left, "what the outer limit took stays taken")
	require.EqualValues(s, 2, f.limit)
	require.EqualValues(s, 0, f.remaining)
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	require.NoError(s, json.Unmarshal([]byte(a.body), &problem), a.body)
	require.Equal(s, []string{"ip:2/1h sliding-log"}, problem.Violated, "the rule that refused is named, not the others")
	require.Len(s, a.Header.Values("Retry-After"), 1)
	require.Len(s, a.Header.Values("Cache-Control"), 1)
}

func stricterOuter(s *suite) {
	server := s.serve(app([]Limit{perIP(perHour(1))},
		get("/", say("home"), perIP(perHour(50)))))
	f := readFields(s, server.wantStatus(200, "", "GET /").Header)
	require.EqualValues(s, 1, f.limit, "X-RateLimit-Limit is the stricter limit's")
	require.EqualValues(s, 0, f.remaining, "X-RateLimit-Remaining is the stricter limit's")
	require.Equal(s, map[string]int64{"ip:1/1h sliding-log": 0, "ip:50/1h sliding-log": 49}, f.left)
	f = readFields(s, server.wantStatus(429, "", "GET /").Header)
	require.Equal(s, map[string]int64{"ip:1/1h sliding-log": 0}, f.left, "the inner limit was not asked")
}

func sameNameOnce(s *suite) {
	server := s.serve(app([]Limit{perIP(perHour(3))},
		get("/", say("home"), perIP(perHour(3))), get("/other", say("other"))))
	server.wantStatus(200, "", "GET /other")
	f := readFields(s, server.wantStatus(200, "", "GET /").Header)
	require.Equal(s, map[string]int64{"ip:3/1h sliding-log": 1}, f.left, "the stricter of two limits of one name stands")
	require.EqualValues(s, 1, f.remaining)
}

func threeLevels(s *suite) {
	named := func(name string, events int64) Limit {
		return rules(middleware.Rule{Name: name, Key: keyfunc.IP(), Limit: perHour(events)})
	}
	server := s.serve(App{Group: Group{
		Limits: []Limit{named("all", 100), named("also", 90)},
		Groups: []Group{{
			Prefix: "/v1", Limits: []Limit{named("group", 20)},
			Routes: []Route{get("/users/{id}", say("user"), named("route", 5))},
		}},
	}})
	f := readFields(s, server.wantStatus(200, "", "GET /v1/users/7").Header)
	require.Equal(s, []string{"all", "also", "group", "route"}, f.order, "outer limits come first")
	require.Equal(s, map[string]int64{"all": 100, "also": 90, "group": 20, "route": 5}, f.policies)
	require.Equal(s, map[string]int64{"all": 99, "also": 89, "group": 19, "route": 4}, f.left)
	require.EqualValues(s, 5, f.limit)
	require.EqualValues(s, 4, f.remaining)
}
