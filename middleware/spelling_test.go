package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// unclear are hosts that some programs read as shop.example.
var unclear = []string{"shop.example:80:80", "shop.example::", "shop.example:http", "u@shop.example", "shop.example,a", "shop.example..", "shop.example "}

func TestAHostThatProgramsReadDifferentlyMeetsNoRuleLess(t *testing.T) {
	one := func(mode middleware.Mode, match middleware.Match) middleware.Rule {
		return middleware.Rule{Name: "one", Key: keyfunc.Global, Match: match, Mode: mode, Limit: limiter.PerHour(1)}
	}
	shop := middleware.Route("shop.example/*")
	for name, test := range map[string]struct {
		config middleware.Config
		want   int
	}{
		"ByRoute":        {middleware.Config{ByRoute: map[string][]middleware.Rule{"*.example/*": {one(middleware.Enforce, nil)}}}, 400},
		"Match":          {middleware.Config{Rules: []middleware.Rule{one(middleware.Enforce, shop)}}, 400},
		"Deny":           {middleware.Config{Rules: []middleware.Rule{one(middleware.Deny, shop)}}, 400},
		"Bans.Deny":      {middleware.Config{Bans: middleware.Bans{Deny: shop}}, 400},
		"a rule without": {middleware.Config{Rules: []middleware.Rule{one(middleware.Enforce, middleware.Route("/*"))}}, 200},
		"in shadow":      {middleware.Config{Rules: []middleware.Rule{one(middleware.Shadow, shop)}}, 200},
		"all in shadow":  {middleware.Config{Bans: middleware.Bans{Deny: shop}, Shadow: true}, 200},
		"exempt":         {middleware.Config{Rules: []middleware.Rule{one(middleware.Enforce, shop)}, Allow: middleware.Route("/*")}, 200},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
		for _, host := range unclear {
			limits := middleware.Must(middleware.New(test.config))
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Host = host
			limits.Handler(mux).ServeHTTP(w, r)
			assert.Equal(t, test.want, w.Code, "%s: %s", name, host)
			if test.want == 400 {
				assert.Equal(t, 400, limits.Explain(r).Status, name)
			}
		}
	}
}

func TestNoSpellingOfAHostEvadesItsLimit(t *testing.T) {
	limits := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "shop", Key: keyfunc.Global, Match: middleware.Route("shop.example/*"), Limit: limiter.PerHour(1)},
	}}))
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	for i, host := range []string{
		"shop.example", "SHOP.example", "shop.example.", "shop.example:80", "shop.example:", "Shop.Example.:0080", "other.example",
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/cart", nil)
		r.Host = host
		limits.Handler(mux).ServeHTTP(w, r)
		assert.Equal(t, i > 0 && host != "other.example", w.Code == 429, host)
	}
}

// A handler that tells GET from the rest takes get for the rest.
func TestAMethodInLowerCaseIsLimitedAndNeverExempt(t *testing.T) {
	limits := middleware.Must(middleware.New(middleware.Config{
		Allow:   middleware.Route("GET /login"),
		ByRoute: map[string][]middleware.Rule{"POST /login": {{Name: "post", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}},
		Rules:   []middleware.Rule{{Name: "get", Key: keyfunc.Global, Match: middleware.Route("GET /login"), Limit: limiter.PerHour(1)}},
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(http.ResponseWriter, *http.Request) {})
	for _, test := range []struct {
		method string
		want   int
	}{{"GET", 200}, {"GET", 200}, {"HEAD", 200}, {"head", 200}, {"get", 429}, {"POST", 200}, {"post", 429}, {"Post", 429}, {"poſt", 429}, {"PUT", 200}, {"put", 200}} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/login", nil)
		r.Method = test.method
		limits.Handler(mux).ServeHTTP(w, r)
		require.Equal(t, test.want, w.Code, test.method)
	}
}
