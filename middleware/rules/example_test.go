package rules_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
)

// A service whose limits are in a file. For counters in Redis, set Config.Store.
func ExampleWatch() {
	ctx := context.Background() // the service's
	limits, err := rules.Watch(ctx, "limits.yaml", rules.Options{
		Config: middleware.Config{Bans: middleware.Bans{List: bans.Must(bans.New(bans.Options{}))}},
		Keys:   map[string]keyfunc.Func{"tenant": keyfunc.Header("X-Tenant")}, // key: tenant
		Tiers:  []string{"free", "premium"},                                   // that authentication assigns
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	log.Fatal(http.ListenAndServe(":8080", limits.RateLimit.Handler(mux)))
}

func ExampleParse() {
	_, err := rules.Parse([]byte(`
version: 1
endpoints:
  "GET /search": {limit: 30/1m, algoritm: token_bucket}
  "POST /login": {limit: 5/1fortnight}
`), rules.Options{})
	fmt.Println(err)
	// Output:
	// 4:33: endpoints."GET /search".algoritm: unknown field "algoritm": did you mean "algorithm"?
	// 5:26: endpoints."POST /login".limit: parse "5/1fortnight": period "1fortnight" is not a duration such as 10s, 1m, 24h or 30d
}

func ExampleRules_Explain() {
	loaded, err := rules.Parse([]byte(`
version: 1
tiers:
  free: 100/h
endpoints:
  "GET /users/{id}": {limit: 5/s, key: [user, ip]}
default: 60/m
`), rules.Options{})
	if err != nil {
		log.Fatal(err)
	}
	explanation, err := loaded.Explain(rules.Request{Path: "/users/7", IP: "203.0.113.9", Tier: "free", User: "42"})
	if err != nil {
		log.Fatal(err)
	}
	for _, step := range explanation.Steps {
		fmt.Println(step.Section, "line", step.Line, "-", step.Says)
	}
	// Output:
	// ban line 0 - not banned
	// allow line 0 - not on the list
	// tiers line 4 - 100/1h for "user:42"
	// endpoints line 6 - 5/1s for "user:42" and "203.0.113.9" together, the key "join:7:user:4211:203.0.113.9"
}
