package routertest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// perID allows one request for each id in the path.
func perID() Limit { return rules(idRule()) }

func idRule() middleware.Rule {
	return middleware.Rule{Name: "id", Key: keyfunc.PathValue("id"), Limit: perHour(1), NoKey: middleware.NoKeySkip}
}

// perIDOpen is perID, but admits a request whose id cannot be read.
func perIDOpen() Limit {
	rule := idRule()
	rule.OnOutage = limiter.FailOpen
	return rules(rule)
}

// keySpellings compares the keys with what handlers see, however a path is spelled.
func keySpellings(s *suite) {
	var lock sync.Mutex
	ran := map[string]int{}
	see := func(route string) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			id, err := url.PathUnescape(r.PathValue("id")) // chi's is escaped
			if err != nil {
				s.Errorf("the handler of %q got id %q: %v", route, r.PathValue("id"), err)
			}
			lock.Lock()
			defer lock.Unlock()
			ran[route+" "+id]++
		}
	}
	// Each route has a limiter of its own, as their ids are the same.
	server := s.serve(app(nil,
		get("/users/{id}", see("user"), perID()),
		get("/notes/{id}", see("note"), perIDOpen()),
		get("/authors/{id}/posts", see("posts"), perID()),
		get("/files/{id}/*", see("file"), perID()),
		get("/teams/{team}/docs/{id}/*", see("doc"), perID()),
	))
	everywhere := s.serve(app([]Limit{perID()},
		get("/files/{id}/*", see("all")), get("/teams/{team}/docs/{id}/*", see("all"))))
	for range 2 {
		for _, id := range []string{"1", "%31", "a%2Fb", "%61%2fb", "a+b", "a%2Bb", "%C3%A9", "é", "1%2Fx", "."} {
			server.ask("GET /users/" + id)
			server.ask("GET /authors/" + id + "/posts")
			for _, path := range []string{"z", "../2/z", "x%2Fy", "%2e%2e/3"} {
				for _, prefix := range []string{"/files/", "/files//", "/files/x/../", "/files/y/../"} {
					server.ask("GET " + prefix + id + "/" + path)
					if !s.router.Unrouted {
						everywhere.ask("GET " + prefix + id + "/" + path)
					}
				}
			}
		}
	}
	for range 2 {
		server.ask("GET /notes/1")
		server.ask("GET /notes/1/2") // echo routes it to the note
	}
	for i := range 5 {
		// After a brace that is not escaped, net/url takes the whole path for unescaped. Most routers do not.
		for _, id := range []string{"7", "%37"} {
			path := fmt.Sprintf("/teams/x%%2Fdocs%%2F%d%%2F{/docs/%s/z", 100+i, id)
			server.askRaw(path)
			if !s.router.Unrouted {
				everywhere.askRaw(path)
			}
		}
	}
	if len(ran) == 0 {
		s.Error("no handler ran")
	}
	for what, n := range ran {
		route, id, _ := strings.Cut(what, " ")
		equal(s, 1, n, fmt.Sprintf("runs of the handler of %q for id %q", route, id))
	}
}
