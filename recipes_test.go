package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// customers are the limits of a table, each read again after a minute. A limit of 0 suspends a customer.
type customers struct {
	perHour func(ctx context.Context, id string) (int64, error) // SELECT per_hour FROM customers WHERE id = $1
	known   sync.Map                                            // entries by id
}

type entry struct {
	limit weir.Limit
	until time.Time
}

func (c *customers) limit(ctx context.Context, id string) (weir.Limit, error) {
	if e, ok := c.known.Load(id); ok && time.Now().Before(e.(entry).until) {
		return e.(entry).limit, nil
	}
	perHour, err := c.perHour(ctx, id)
	if err != nil {
		return weir.Limit{}, err
	}
	limit := weir.PerHour(perHour)
	c.known.Store(id, entry{limit, time.Now().Add(time.Minute)})
	return limit, nil
}

// Each customer has the limit of its row in a table, which changes while the service runs.
func Example_customersOfATable() {
	table := map[string]int64{"acme": 3, "suspended": 0}
	limitsOf := &customers{perHour: func(_ context.Context, id string) (int64, error) {
		if n, ok := table[id]; ok {
			return n, nil
		}
		return 0, errors.New("no such customer")
	}}
	limits := weir.Must(weir.New(weir.Config{Rules: []weir.Rule{
		{Name: "plan", Key: keyfunc.User, Limit: weir.PerHour(1)}, // while the table cannot be read
	}}))
	served := limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	authenticate := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Customer") // of a verified token
		ctx := weir.WithUser(r.Context(), id)
		if limit, err := limitsOf.limit(ctx, id); err == nil {
			ctx, _ = weir.WithLimit(ctx, "plan", limit) // an invalid limit is answered 503
		}
		served.ServeHTTP(w, r.WithContext(ctx))
	})

	for _, id := range []string{"acme", "suspended", "stranger"} {
		var statuses []int
		for range 4 {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Customer", id)
			w := httptest.NewRecorder()
			authenticate.ServeHTTP(w, r)
			statuses = append(statuses, w.Code)
		}
		fmt.Println(id, statuses)
	}
	// Output:
	// acme [200 200 200 429]
	// suspended [429 429 429 429]
	// stranger [200 429 429 429]
}

// Messages of a user's WebSockets share a limit, over all connections; with a Store in Redis, over all
// processes. Middleware sees the handshake alone.
func Example_webSocketMessages() {
	messages := limiter.Must(limiter.New(limiter.Config{Name: "messages", Limit: weir.PerMinute(3)}))
	receive := func(ctx context.Context, user, message string) string {
		d, err := messages.Allow(ctx, "user:"+user)
		switch {
		case err != nil:
			return "try again later" // the store does not answer
		case !d.Allowed:
			return fmt.Sprintf("wait %.0f s", d.RetryAfter.Seconds())
		}
		return "got " + message
	}
	for _, message := range []string{"a", "b", "c", "d"} { // from two connections, say
		fmt.Println(receive(context.Background(), "7", message))
	}
	// Output:
	// got a
	// got b
	// got c
	// wait 60 s
}

// A retry of the same request costs nothing: requests are counted once for each Idempotency-Key. A second
// rule bounds the retries.
func Example_freeRetries() {
	limits := weir.Must(weir.New(weir.Config{Rules: []weir.Rule{
		{Name: "payments", Key: keyfunc.IP(), Limit: weir.PerHour(2), Distinct: keyfunc.Header("Idempotency-Key")},
		{Name: "requests", Key: keyfunc.IP(), Limit: weir.PerHour(6)},
	}}))
	pay := limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, key := range []string{"a", "a", "b", "a", "c", "b", "a", "a"} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Println(key, w.Code)
	}
	// Output:
	// a 200
	// a 200
	// b 200
	// a 200
	// c 429
	// b 200
	// a 200
	// a 429
}

// Deliveries of webhooks wait, each destination for itself. A worker that may wait too long is better off with
// another delivery.
func Example_webhooks() {
	deliveries := limiter.Must(limiter.New(limiter.Config{Name: "deliveries", Limit: weir.PerSecond(10).WithBurst(1)}))
	deliver := func(ctx context.Context, destination string) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := deliveries.Wait(ctx, destination, 1); err != nil {
			return err // *limiter.WaitError says how long it would be
		}
		return nil // send it
	}
	for range 3 {
		fmt.Println(deliver(context.Background(), "https://customer.example/hook"))
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
}

// A GraphQL query costs its complexity. A body that cannot be read costs all that is left, so that nobody hides a
// query in it.
func Example_graphQL() {
	const most = 100
	complexity := func(query []byte) int64 { return int64(bytes.Count(query, []byte("{"))) } // your schema's
	limits := weir.Must(weir.New(weir.Config{Rules: []weir.Rule{{
		Name: "graphql", Match: weir.Route("POST /graphql"), Key: keyfunc.IP(), Limit: weir.PerHour(most),
		Cost: weir.CostOf(func(r *http.Request) int64 {
			query, err := keyfunc.Body(r, 64<<10)
			if err != nil {
				return most
			}
			return min(complexity(query)*10, most)
		}),
	}}}))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /graphql", func(http.ResponseWriter, *http.Request) {})
	handler := limits.Handler(mux)
	for _, query := range []string{`{user{name}}`, `{users{posts{comments{author}}}}`, `{users{posts{comments{author{name}}}}}`} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/graphql", strings.NewReader(query)))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 80
	// 200 40
	// 429 40
}

// Health checks and crawlers: what a balancer asks is exempt by its route, and by its port if it has one.
// A User-Agent is no proof, so a crawler gets a limit of its own, not an exemption.
func Example_healthChecksAndCrawlers() {
	crawler := keyfunc.Func(func(r *http.Request) (string, error) {
		if r.UserAgent() == "Examplebot/1.0" {
			return "crawler:Examplebot", nil // one counter for all that claim to be it
		}
		return "", keyfunc.ErrNoKey
	})
	limits := weir.Must(weir.New(weir.Config{
		Allow: weir.Route("GET /healthz"),
		Rules: []weir.Rule{
			{Name: "crawlers", Key: crawler, NoKey: weir.NoKeySkip, Limit: weir.PerHour(2)},
			{Name: "ip", Key: keyfunc.IP(), Limit: weir.PerHour(3)},
		},
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {})
	handler := limits.Handler(mux)
	ask := func(path, agent, address string) {
		var statuses []int
		for range 4 {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("User-Agent", agent)
			r.RemoteAddr = address
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			statuses = append(statuses, w.Code)
		}
		fmt.Println(path, agent, statuses)
	}
	ask("/healthz", "balancer", "192.0.2.1:1")
	ask("/", "Examplebot/1.0", "192.0.2.2:1")
	ask("/", "browser", "192.0.2.3:1")
	// Output:
	// /healthz balancer [200 200 200 200]
	// / Examplebot/1.0 [200 200 429 429]
	// / browser [200 200 200 429]
}
