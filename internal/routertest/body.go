package routertest

import (
	"io"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// post sends a body. A reader of another kind than package http knows is sent in chunks.
func (s *server) post(path string, body io.Reader) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, body)
	require.NoError(s.t, err)
	a, err := s.try(r)
	require.NoError(s.t, err)
	return a
}

func keyFromBody(s *suite) {
	byName := keyfunc.JSONField("account", 256)
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // first: HTTP/1.1 does not go on with it once an answer has begun
		if err != nil {
			s.Errorf("the handler cannot read the body: %v", err)
		}
		_, _ = w.Write(body)
	}
	byAccount := middleware.Rule{Name: "account", Key: byName, Limit: perHour(2), NoKey: middleware.NoKeySkip}
	byBoth := middleware.Rule{Name: "both", Key: keyfunc.Join(byName, keyfunc.JSONField("device", 256)), Limit: perHour(100), NoKey: middleware.NoKeySkip}
	// One limit is around the router, and one around the route.
	server := s.serve(app([]Limit{rules(byAccount)}, Route{Method: http.MethodPost, Path: "/login", Handler: echo, Limits: []Limit{rules(byBoth)}}))
	for _, account := range []string{"jane", "joe"} {
		for i, spelled := range []string{`{"account":"NAME","device":"a"}`, ` {"device":"b","ACCOUNT":"NAME"}`, `{"account":"NAME"}`} {
			body := strings.ReplaceAll(spelled, "NAME", account)
			send := io.Reader(strings.NewReader(body))
			if i == 1 {
				send = io.MultiReader(send)
			}
			a := server.post("/login", send)
			if i < 2 {
				require.Equal(s, 200, a.StatusCode, "%s: %s", body, a.body)
				require.Equal(s, body, a.body, "the handler reads all of it")
			} else {
				require.Equal(s, 429, a.StatusCode, "each account has a counter of its own")
			}
		}
	}
	for range 3 {
		text := "no JSON " + strings.Repeat("x", 1000)
		a := server.post("/login", strings.NewReader(text))
		require.Equal(s, 200, a.StatusCode)
		require.Equal(s, text, a.body)
		require.Equal(s, 200, server.post("/login", http.NoBody).StatusCode)
	}
	for _, doubtful := range []string{
		`{"account":"jane","account":"joe"}`, `{"account":"jane"`, `{"pad":"` + strings.Repeat("x", 256) + `","account":"jane"}`,
	} {
		require.Equal(s, 400, server.post("/login", strings.NewReader(doubtful)).StatusCode, doubtful)
	}
}
