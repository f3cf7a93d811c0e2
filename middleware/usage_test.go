package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A usage is what clients read.
type usage struct {
	Exempt bool
	Ban    *struct {
		Reset int64
	}
	Rules []usageOfRule
}

type usageOfRule struct {
	Rule, Tier, Key, Unknown             string
	Routes                               []string
	Default, Conditional, Shadow, Denied bool
	ByRoute                              bool `json:"by_route"`
	SoftAt                               int  `json:"soft_at"`
	Near                                 bool `json:"near_limit"`
	Limits                               []usageOfLimit
	Concurrency                          *struct {
		Max        int64
		InProgress *int64 `json:"in_progress"`
	}
}

type usageOfLimit struct {
	Limit, Algorithm, Calendar   string
	Events, Quota, Burst         int64
	Per, Window                  float64
	Used, Remaining, Next, Reset *int64
}

// rule is that of a name.
func (u *usage) rule(t require.TestingT, name string) usageOfRule {
	for _, r := range u.Rules {
		if r.Rule == name {
			return r
		}
	}
	require.Fail(t, "the rule is not told", name)
	return usageOfRule{}
}

// left is what remains of a rule's first limit.
func (u *usage) left(t require.TestingT, name string) int64 {
	r := u.rule(t, name)
	require.NotEmpty(t, r.Limits, name)
	require.NotNil(t, r.Limits[0].Remaining, "%s: %s", name, r.Unknown)
	return *r.Limits[0].Remaining
}

// read is an answer of 200.
func read(t require.TestingT, w *httptest.ResponseRecorder) (u usage) {
	require.Equal(t, 200, w.Code, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&u))
	require.NotNil(t, u.Rules)
	return u
}

func usageOf(t require.TestingT, l *middleware.RateLimit, edits ...func(*http.Request)) usage {
	return read(t, serve(l.Usage(), request(edits...)))
}

// Whatever is asked between requests, they meet the limits that they would have met.
func TestAskingWhatIsLeftCostsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := &spy{}
		c := middleware.Config{Store: store, Logger: quiet, Rules: []middleware.Rule{
			{Name: "all", Key: keyfunc.Global, Limit: perHour(20)},
			{Name: "user", Key: keyfunc.User, Limit: limiter.All(perHour(5), logOf(9, 24*time.Hour))},
			{Name: "soft", Key: keyfunc.User, Limit: perHour(6)},
		}}
		l := limited(t, c)
		used := map[string]int64{}
		total := int64(0)
		for range 30 {
			user := rapid.SampledFrom([]string{"ann", "ben", "cleo"}).Draw(t, "user")
			if !rapid.Bool().Draw(t, "asks") {
				if _, result := check(l, request(as(user))); result.Allowed {
					used[user]++
					total++
				}
				continue
			}
			before := len(store.asked)
			u := usageOf(t, l, as(user))
			require.Len(t, store.asked, before+1, "all rules are one question")
			for _, c := range store.asked[before] {
				require.Zero(t, c.Cost)
			}
			require.Equal(t, 20-total, u.left(t, "all"))
			require.Equal(t, 5-used[user], u.left(t, "user"))
			require.Equal(t, used[user], *u.rule(t, "user").Limits[1].Used)
		}
	})
}

func TestWhatIsNotKnownIsNeverToldAsUnused(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		broken := errors.New("down")
		for name, onOutage := range map[string]limiter.Outage{"local": limiter.FailLocal, "open": limiter.FailOpen, "closed": limiter.FailClosed} {
			store := &spy{fails: func(context.Context, []limiter.Charge) error { return broken }}
			behind, err := failover.New(store, failover.Options{})
			require.NoError(t, err)
			rule := middleware.Rule{Name: "r", Key: keyfunc.User, Limit: perHour(5), OnOutage: onOutage}
			for what, store := range map[string]limiter.Store{"a bare store": store, "failover": behind} {
				l := limited(t, middleware.Config{Store: store, Rules: []middleware.Rule{rule}})
				w := serve(l.Usage(), request(as("ann")))
				assert.Equal(t, 503, w.Code, "%s, %s: %s", name, what, w.Body)
				assert.Equal(t, "1", w.Header().Get("Retry-After"))
				assert.JSONEq(t, `{"error":"temporary_reduced_capacity","message":"The service is temporarily unable to take this request. Try again in 1 second.","retry_after":1}`, w.Body.String())
			}
		}
	})
}

// halves decides on half of the rules by policy.
type halves struct{ spy }

func (h *halves) Decide(ctx context.Context, charges []limiter.Charge) error {
	err := h.spy.Decide(ctx, charges)
	for i, c := range charges {
		switch d := &charges[i].Decision; c.Quota.Rule() {
		case "degraded":
			d.Degraded = true
		case "open":
			*d = limiter.Decision{Allowed: true, Degraded: true}
		case "crowded":
			d.Overflow = true
		}
	}
	return err
}

func TestAPartOfTheRulesMayNotBeKnown(t *testing.T) {
	l := limited(t, middleware.Config{Store: &halves{}, Rules: []middleware.Rule{
		{Name: "good", Key: keyfunc.Global, Limit: perHour(5)},
		{Name: "degraded", Key: keyfunc.Global, Limit: limiter.All(perHour(5), logOf(9, time.Minute)), SoftAt: 1},
		{Name: "open", Key: keyfunc.Global, Limit: perHour(5)},
		{Name: "crowded", Key: keyfunc.Global, Limit: perHour(5)},
	}})
	u := usageOf(t, l)
	assert.EqualValues(t, 5, u.left(t, "good"))
	for rule, why := range map[string]string{"degraded": "outage", "open": "outage", "crowded": "no_room"} {
		told := u.rule(t, rule)
		assert.Equal(t, why, told.Unknown)
		assert.False(t, told.Near)
		for _, limit := range told.Limits {
			assert.Nil(t, limit.Remaining, rule)
			assert.Nil(t, limit.Used, rule)
			assert.EqualValues(t, limit.Events, limit.Quota, rule)
		}
	}
}

func TestOnlyTheClientsOwnKeysAreTold(t *testing.T) {
	doubt := keyfunc.IP(keyfunc.TrustProxies("192.0.2.0/24"))
	failing := func(*http.Request) (string, error) { return "", errors.New("no database") }
	key := func(f keyfunc.Func) middleware.Rule { return middleware.Rule{Name: "r", Key: f, Limit: perHour(5)} }
	for name, c := range map[string]struct {
		rule         middleware.Rule
		edits        []func(*http.Request)
		key, unknown string
	}{
		"a user":                          {key(keyfunc.User), []func(*http.Request){as("ann")}, "own", ""},
		"a guest":                         {key(keyfunc.User), nil, "", "no_key"},
		"a guest, refused otherwise":      {middleware.Rule{Name: "r", Key: keyfunc.User, Limit: perHour(5), NoKey: middleware.NoKeyUnauthorized}, nil, "", "no_key"},
		"an address":                      {key(keyfunc.First(keyfunc.User, keyfunc.IP())), nil, "own", ""},
		"a proxy that tells no address":   {key(doubt), nil, "in doubt", ""},
		"all together":                    {key(keyfunc.Global), nil, "shared", ""},
		"two keys":                        {key(keyfunc.APIKey("X-Api-Key")), []func(*http.Request){func(r *http.Request) { r.Header["X-Api-Key"] = []string{"a", "b"} }}, "", "ambiguous_key"},
		"a function that fails":           {key(failing), nil, "", "key_failed"},
		"each route, unrouted":            {key(keyfunc.Route), nil, "", "no_key"},
		"a parameter of other routes":     {key(keyfunc.PathValue("id")), []func(*http.Request){routedBy("GET /usage")}, "", "no_key"},
		"a parameter of this one":         {key(keyfunc.PathValue("id")), []func(*http.Request){routedBy("GET /projects/{id}/usage"), func(r *http.Request) { r.URL.Path = "/projects/7/usage" }}, "claimed", ""},
		"a parameter, in gin":             {key(keyfunc.PathValue("id")), []func(*http.Request){routedBy("/projects/:id/usage"), func(r *http.Request) { r.URL.Path = "/projects/7/usage" }}, "claimed", ""},
		"a parameter that the router set": {key(keyfunc.PathValue("id")), []func(*http.Request){func(r *http.Request) { r.SetPathValue("id", "7") }}, "claimed", ""},
	} {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{c.rule}})
		check(l, request(append(c.edits, routedBy("GET /usage"))...))
		told := func() usageOfRule { u := usageOf(t, l, c.edits...); return u.rule(t, "r") }()
		assert.Equal(t, c.key, told.Key, name)
		assert.Equal(t, c.unknown, told.Unknown, name)
		assert.Equal(t, c.unknown == "", told.Limits[0].Remaining != nil, name)
	}
}

// A rule by route or method shows its number for the request as it is, and is marked.
func TestARuleByRouteShowsThisRoute(t *testing.T) {
	for name, c := range map[string]struct {
		key     keyfunc.Func
		byRoute bool
	}{
		"user":           {keyfunc.User, false},
		"route":          {keyfunc.Route, true},
		"method":         {keyfunc.Method, true},
		"user and route": {keyfunc.Join(keyfunc.User, keyfunc.Route), true},
	} {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "r", Key: c.key, Limit: perHour(5)}}})
		edits := []func(*http.Request){as("ann"), routedBy("GET /usage")}
		check(l, request(edits...))
		u := usageOf(t, l, edits...)
		assert.Equal(t, int64(4), u.left(t, "r"), name)
		assert.Equal(t, c.byRoute, u.rule(t, "r").ByRoute, name)
	}
}

func TestABanIsToldAsOne(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bans.Must(bans.New(bans.Options{}))
		isCleo := func(r *http.Request) bool {
			user, _ := keyfunc.User(r)
			text, _ := keyfunc.Classify(user)
			return text == "user:cleo"
		}
		l := limited(t, middleware.Config{
			Bans:  middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.User}, Deny: middleware.MatchFunc(isCleo)},
			Rules: []middleware.Rule{{Name: "r", Key: keyfunc.User, Limit: perHour(5)}},
		})
		require.NoError(t, list.Ban(t.Context(), "user:ann", 90*time.Second))
		require.NoError(t, list.Ban(t.Context(), "user:ben", 0))
		ann := usageOf(t, l, as("ann"))
		require.NotNil(t, ann.Ban)
		assert.EqualValues(t, 90, ann.Ban.Reset)
		assert.EqualValues(t, 5, ann.left(t, "r"))
		for _, user := range []string{"ben", "cleo"} {
			u := usageOf(t, l, as(user))
			require.NotNil(t, u.Ban, user)
			assert.Zero(t, u.Ban.Reset, "it does not end by itself")
		}
		dora := usageOf(t, l, as("dora"))
		assert.Nil(t, dora.Ban)
		_, err := list.Unban(t.Context(), "user:ann")
		require.NoError(t, err)
		after := usageOf(t, l, as("ann"))
		assert.Nil(t, after.Ban, "it is lifted")
	})
}

func TestABanThatIsNotKnownIsNone(t *testing.T) {
	list := bans.Must(bans.New(bans.Options{}))
	require.NoError(t, list.Ban(t.Context(), "user:ann", time.Hour))
	failing := func(*http.Request) (string, error) { return "", errors.New("no database") }
	l := limited(t, middleware.Config{Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{failing}}, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: perHour(5)}}})
	assert.Equal(t, 503, serve(l.Usage(), request()).Code)
	l = limited(t, middleware.Config{Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{failing}}, Shadow: true, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: perHour(5)}}})
	assert.Empty(t, usageOf(t, l).Rules, "in shadow nothing is refused")
}

func TestExemptClientsHaveNoLimits(t *testing.T) {
	l := limited(t, middleware.Config{
		Allow: middleware.MatchFunc(func(r *http.Request) bool {
			return middleware.Route("/usage", "/health").Matches(r) || r.Header.Get("X-Partner") == "secret"
		}),
		Rules: []middleware.Rule{{Name: "r", Key: keyfunc.IP(), Limit: perHour(5)}},
	})
	assert.JSONEq(t, `{"exempt":true,"rules":[]}`, serve(l.Usage(), request(header("X-Partner", "secret"))).Body.String())
	u := usageOf(t, l, routedBy("GET /usage"))
	assert.False(t, u.Exempt, "the route of the handler is, and not the client")
	assert.EqualValues(t, 5, u.left(t, "r"))
}

func TestUsageIsForLooking(t *testing.T) {
	heard := 0
	l := limited(t, middleware.Config{
		Rules:    []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: perHour(5)}},
		Observer: observer(func(*middleware.Observation) { heard++ }),
	})
	get := serve(l.Usage(), request())
	read(t, get)
	head := serve(l.Usage(), request(func(r *http.Request) { r.Method = "HEAD" }))
	assert.Equal(t, 200, head.Code)
	assert.Zero(t, head.Body.Len())
	assert.NotEmpty(t, head.Header().Get("Content-Length"))
	assert.Zero(t, heard, "these are no requests to the service")
	_, result := check(l, request())
	assert.EqualValues(t, 4, result.Remaining)
}

func TestMoreRulesThanABatchTakesAreTold(t *testing.T) {
	store := &spy{}
	c := middleware.Config{Store: store, ByRoute: map[string][]middleware.Rule{}}
	for i := range 150 {
		c.ByRoute[fmt.Sprintf("/r%d", i)] = []middleware.Rule{{Name: fmt.Sprintf("r%d", i), Key: keyfunc.User, Limit: perHour(int64(i + 1))}}
	}
	l := limited(t, c)
	u := usageOf(t, l, as("ann"))
	require.Len(t, u.Rules, 150)
	for i := range 150 {
		name := fmt.Sprintf("r%d", i)
		assert.EqualValues(t, i+1, u.left(t, name))
	}
	assert.Len(t, store.asked, 3, "of 64 at most")
}

func TestUsageKnowsLimitsOfSingleKeys(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rule := customers()
		rule.Overrides = map[string]middleware.Override{"user:ann": {Limit: logOf(70, time.Hour)}}
		l := limited(t, middleware.Config{Rules: []middleware.Rule{rule}})
		check(l, request(as("ann")))
		for user, want := range map[string]int64{"ann": 69, "cleo": 3} {
			u := usageOf(t, l, as(user))
			assert.Equal(t, want, u.left(t, "r"), user)
		}
		digest := keyfunc.NewDigester(nil)
		_, err := l.Peek(t.Context(), "r", digest.Digest("user:ann").Key())
		assert.ErrorContains(t, err, "a digest does not reveal the key")
		assert.ErrorIs(t, err, bans.ErrDigest, "the page answers 400")
	})
}
