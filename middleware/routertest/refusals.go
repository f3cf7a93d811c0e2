package routertest

import (
	"errors"
	"io"
	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// An Answer is OnRefused of an adapter's options, with the ResponseWriter and the request of the
// router's context. A router whose OnRefused returns no error does without its result.
type Answer func(w http.ResponseWriter, r *http.Request, result middleware.Result) error

// FailedText is what Router.Refuses answers for an error of its OnRefused, with status 500.
const FailedText = "handled"

// ownAnswers has applications answer refusals: by Refusal.Answer, and by the adapter's OnRefused.
func ownAnswers(s *suite) {
	for name, test := range map[string]struct {
		answer Answer
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
		"nothing":  {func(http.ResponseWriter, *http.Request, middleware.Result) error { return nil }, 429, ""},
		"an error": {func(http.ResponseWriter, *http.Request, middleware.Result) error { return errors.New("ours") }, 500, FailedText},
	} {
		config := middleware.Config{Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: perHour(1)}}}
		check := func(server *server) {
			server.wantStatus(200, "the first passes", "GET /")
			a := server.wantStatus(test.status, name, "GET /")
			require.Equal(s, test.body, a.body, name)
			require.NotEmpty(s, a.Header.Get("Retry-After"), name)
			require.Equal(s, []string{"no-store"}, a.Header.Values("Cache-Control"), name)
		}
		if name != "an error" {
			config.Refusal.Answer = func(w http.ResponseWriter, r *http.Request, result middleware.Result) {
				require.NoError(s, test.answer(w, r, result))
			}
			check(s.serve(app(nil, get("/", say("home"), limits(config)))))
		}
		if s.router.Refuses == nil || name == "an error" && s.router.Fails == nil {
			continue
		}
		config.Refusal.Answer = func(http.ResponseWriter, *http.Request, middleware.Result) {
			s.Error("OnRefused goes before Refusal.Answer")
		}
		seen := make(chan int, 2)
		check(s.serveHandler(s.router.Refuses(limits(config).Rules, test.answer, func(status int) { seen <- status })))
		require.Equal(s, 200, receive(s.T, seen, "the first"))
		if status := receive(s.T, seen, "the refusal"); name != "an error" { // which is answered in front of all middleware
			require.Equal(s, test.status, status, "the router's own loggers see the status: %s", name)
		}
	}
}
