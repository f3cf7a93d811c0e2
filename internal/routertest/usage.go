package routertest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// usedBy is what a.body says was used of each rule's first limit; -1: that is not told.
func usedBy(s *suite, a answer) map[string]int64 {
	var told struct {
		Rules []struct {
			Rule   string
			Limits []struct{ Used *int64 }
		}
	}
	require.NoError(s, json.Unmarshal([]byte(a.body), &told), a.body)
	used := map[string]int64{}
	for _, r := range told.Rules {
		used[r.Rule] = -1
		if len(r.Limits) > 0 && r.Limits[0].Used != nil {
			used[r.Rule] = *r.Limits[0].Used
		}
	}
	return used
}

// usageIsTold asks for each user's usage once, as an answer is kept for a second.
func usageIsTold(s *suite) {
	user := func(r *http.Request) context.Context { return keyfunc.WithUser(r.Context(), r.Header.Get("X-User")) }
	config := middleware.Config{
		Rules: []middleware.Rule{{Name: "user", Key: keyfunc.User, Limit: perHour(10)}},
		ByRoute: map[string]middleware.Rule{
			s.router.Pattern("/search"):        {Name: "search", Key: keyfunc.User, Limit: perHour(5)},
			s.router.Pattern("/projects/{id}"): {Name: "project", Key: keyfunc.PathValue("id"), Limit: perHour(5)},
		},
	}
	routes := func(usage http.HandlerFunc) []Route {
		return []Route{
			get("/search", say("found")), get("/projects/{id}", say("project")),
			get("/usage", usage), get("/projects/{id}/usage", usage),
		}
	}
	behind := limits(config)
	a := app([]Limit{behind}, routes(behind.Rules.Usage().ServeHTTP)...)
	a.Authenticate = user
	server := s.serve(a)
	bySearch, byProject := int64(2), int64(1)
	if s.router.Unrouted {
		bySearch, byProject = 0, 0
	}
	server.ask("GET /search", "X-User: ann")
	server.ask("GET /search", "X-User: ann")
	server.ask("GET /projects/7", "X-User: ben")
	told := server.wantStatus(200, "a usage is told", "GET /usage", "X-User: ann")
	require.Equal(s, "application/json", told.Header.Get("Content-Type"))
	require.Equal(s, "7", told.Header.Get("X-RateLimit-Remaining"), "behind the limiter it counts as a request")
	require.Equal(s, map[string]int64{"user": 3, "search": bySearch, "project": -1}, usedBy(s, told), "no path has an id here")
	project := server.wantStatus(200, "a usage is told", "GET /projects/7/usage", "X-User: ben")
	require.Equal(s, map[string]int64{"user": 2, "search": 0, "project": byProject}, usedBy(s, project), "the path names the project")

	beside := limits(config)
	a = App{Authenticate: user, Group: Group{
		Routes: []Route{{Path: "/usage", Handler: beside.Rules.Usage().ServeHTTP}},
		Groups: []Group{{Prefix: "/v1", Limits: []Limit{beside}, Routes: []Route{get("/any", say("any"))}}},
	}}
	server = s.serve(a)
	server.ask("GET /v1/any", "X-User: ann")
	for range 20 {
		told = server.wantStatus(200, "to ask costs nothing", "GET /usage", "X-User: ann")
		require.Equal(s, map[string]int64{"user": 1, "search": 0, "project": -1}, usedBy(s, told))
		require.Empty(s, told.Header.Get("RateLimit"), "beside the limiter it is no request to it")
	}
	head := server.wantStatus(200, "HEAD asks too", "HEAD /usage", "X-User: ann")
	require.Empty(s, head.body)
	server.wantStatus(405, "nothing is posted", "POST /usage", "X-User: ann")
}
