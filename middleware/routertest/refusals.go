package routertest

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// rpcRefusals refuses a client of gRPC, which reads a refusal only with status 200. A limiter further out counts it as
// 429.
func rpcRefusals(s *suite) {
	refusals := middleware.Rule{Name: "refusals", Key: keyfunc.Global, Limit: perHour(2), Counts: middleware.Statuses(429)}
	cart := middleware.Rule{Name: "cart", Key: keyfunc.Global, Limit: perHour(1)}
	server, ended := s.serveToTheEnd(app([]Limit{rules(refusals), rules(cart)},
		Route{Method: http.MethodPost, Path: "/cart", Handler: say("added")}))
	for i, want := range []struct{ code, refuses string }{{"", ""}, {"8", "cart"}, {"8", "cart"}, {"8", "refusals"}} {
		r := server.request(s.Context(), "POST /cart", "Content-Type: application/grpc")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("message")), -1
		a, err := server.try(r)
		must(s, err, "a request")
		ended()
		equal(s, 200, a.StatusCode, "the status in gRPC")
		equal(s, want.code, a.Header.Get("Grpc-Status"), "the code in gRPC")
		if i > 0 {
			equal(s, "", a.body, "the body of a refusal")
			equal(s, want.refuses, readFields(s, a.Header).names[0], "the rule that refuses")
		}
	}
}

// ownAnswers has applications answer refusals: by Refusal.Answer, and by the adapter's OnRefused.
func ownAnswers(s *suite) {
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request, result middleware.Result) error
		status int
		body   string
	}{
		"a status": {func(w http.ResponseWriter, r *http.Request, result middleware.Result) error {
			w.WriteHeader(http.StatusTeapot)
			_, err := io.WriteString(w, r.URL.Path+" "+result.Rule)
			return err
		}, 418, "/ all"},
		"a body": {func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) error {
			_, err := io.WriteString(w, "slower")
			return err
		}, 429, "slower"},
		"nothing": {func(http.ResponseWriter, *http.Request, middleware.Result) error { return nil }, 429, ""},
		"an error": {func(http.ResponseWriter, *http.Request, middleware.Result) error {
			return errors.New("ours")
		}, 500, "handled ours"},
	} {
		config := middleware.Config{
			Rules:   []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: perHour(1)}},
			Headers: middleware.Headers{RetryAfter: true},
		}
		check := func(server *server) {
			server.wantStatus(200, "the first passes", "GET /")
			a := server.wantStatus(test.status, name, "GET /")
			equal(s, test.body, a.body, name)
			if a.Header.Get("Retry-After") == "" {
				s.Errorf("%s: the answer has no Retry-After", name)
			}
			equalLists(s, a.Header.Values("Retry-After"), a.Header.Values("X-RateLimit-Retry-After"), name)
			equalLists(s, []string{"no-store"}, a.Header.Values("Cache-Control"), name)
		}
		if name != "an error" {
			config.Refusal.Answer = func(w http.ResponseWriter, r *http.Request, result middleware.Result) {
				if err := test.answer(w, r, result); err != nil {
					s.Errorf("%s: %v", name, err)
				}
			}
			check(s.serve(app(nil, get("/", say("home"), limits(config)))))
		}
		if !s.router.OnRefused || name == "an error" && !s.router.ReturnsErrors {
			continue
		}
		config.Refusal.Answer = func(http.ResponseWriter, *http.Request, middleware.Result) {
			s.Error("Refusal.Answer was called, want OnRefused alone")
		}
		seen := make(chan int, 2)
		limit := limits(config)
		limit.OnRefused = test.answer
		with := app([]Limit{limit}, get("/", say("home")))
		with.OnStatus = func(status int) { seen <- status }
		with.OnError = func(w http.ResponseWriter, err error) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "handled "+err.Error())
		}
		check(s.serve(with))
		equal(s, 200, receive(s, seen, "the first answer's status"), "the status that the router's middleware sees")
		status := receive(s, seen, "the refusal's status")
		if name != "an error" { // an error is answered in front of all middleware
			equal(s, test.status, status, "the status that the router's middleware sees: "+name)
		}
	}
}
