package rules_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

func TestDistinctCountsTheValuesOfABody(t *testing.T) {
	s := openText(t, `version: 1
endpoints:
  "POST /login": {limit: 2/h sliding_log, key: ip, distinct: "json:user", no_key: bad_request}
  "POST /tenants": {limit: 2/h sliding_log, key: ip, distinct: "header:X-Tenant|header:X-Org"}
`)
	login := func(user string) int {
		return s.status(call{route: "POST /login", from: "192.0.2.1:80", body: strings.NewReader(`{"user": ` + user + `}`)})
	}
	for i, test := range []struct {
		user string
		want int
	}{{`"ann"`, 200}, {`"ann"`, 200}, {`7`, 200}, {`"bob"`, 429}, {`"ann"`, 200}, {`""`, 400}, {`"` + strings.Repeat("x", 5000) + `"`, 400}} {
		assert.Equal(t, test.want, login(test.user), i)
	}
	for i, test := range []struct {
		name, value string
		want        int
	}{{"X-Tenant", "a", 200}, {"X-Org", "a", 200}, {"X-Org", "a", 200}, {"X-Org", "b", 429}} {
		assert.Equal(t, test.want, s.status(call{route: "POST /tenants", header: map[string]string{test.name: test.value}}), i)
	}
}

// A file names the application's key, which reads the body, and its lists and overrides know
// single values of it.
func TestAKeyOfTheApplicationReadsTheBody(t *testing.T) {
	text := `version: 1
global: {limit: 1000/h sliding_log, key: ip}
allow: {keys: ["body:account:demo"]}
ban: {keys: ["body:account:mallory"]}
endpoints:
  "POST /login":
    limit: 2/h sliding_log
    key: account
    no_key: bad_request
    overrides: {"body:account:jane": 3/h sliding_log}
`
	logger := slog.New(slog.DiscardHandler)
	r := parse(t, text, rules.Options{
		Config: middleware.Config{Logger: logger},
		Keys:   map[string]keyfunc.Func{"account": keyfunc.JSONField("account", 256)},
	})
	l, err := middleware.New(r.Config())
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		_, _ = w.Write(body)
	})
	h := l.Handler(mux)
	login := func(body string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/login", io.NopCloser(strings.NewReader(body))))
		require.Equal(t, want, w.Code, body)
		if want == 200 {
			require.Equal(t, body, w.Body.String())
		}
	}
	for account, passes := range map[string]int{"joe": 2, "jane": 3, "demo": 20, "mallory": 0} {
		body := `{"account":"` + account + `"}`
		for range passes {
			login(body, 200)
		}
		switch account {
		case "demo":
		case "mallory":
			login(body, 403)
		default:
			login(body, 429)
		}
	}
	login(`{"account":"jane","Account":"joe"}`, 400)
	login(`{"other":"jane"}`, 400)
	login(`not JSON`, 400)
}

// A file has the key itself, and its lists and overrides know single values of it.
func TestAKeyIsAFieldOfAForm(t *testing.T) {
	r := parse(t, `version: 1
allow: {keys: ["form:account:demo"]}
ban: {keys: ["form:account:mallory"]}
endpoints:
  "POST /login": {limit: 2/h sliding_log, key: "form:account", no_key: bad_request, overrides: {"form:account:jane": 3/h sliding_log}}
`, rules.Options{Config: middleware.Config{Logger: slog.New(slog.DiscardHandler)}})
	l := middleware.Must(middleware.New(r.Config()))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) {})
	for account, want := range map[string][]int{
		"ann": {200, 200, 429}, "jane": {200, 200, 200, 429}, "demo": {200, 200, 200, 200}, "mallory": {403}, "": {400}, "a&account=b": {400},
	} {
		for i, status := range want {
			request := httptest.NewRequest("POST", "/login", strings.NewReader("account="+account))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			l.Handler(mux).ServeHTTP(w, request)
			assert.Equal(t, status, w.Code, "%s, %d", account, i)
		}
	}
	_, err := rules.Parse([]byte("version: 1\nglobal: {limit: 2/h, key: \"form:a&b\"}\n"), rules.Options{})
	assert.ErrorContains(t, err, "is of kind form and has a wrong name")
}
