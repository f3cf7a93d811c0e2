package middleware_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// logged collects what goes to a logger.
func logged() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func TestWarnsWhenLimitersShareAStoreAndARuleName(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		store, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		config := middleware.Config{Store: store, Logger: logger, Rules: []middleware.Rule{{Name: "login", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}}
		middleware.Must(middleware.New(config))
		assert.Empty(t, log.String())
		middleware.Must(middleware.New(config))
		assert.Equal(t, 1, strings.Count(log.String(), "code=weir-shared-counter"))
		assert.Contains(t, log.String(), "rule=login")

		log.Reset()
		config.Rules[0].Name = "another"
		middleware.Must(middleware.New(config))
		config.Store = nil
		middleware.Must(middleware.New(config))
		assert.Empty(t, log.String(), "limiters with a store or a name of their own share nothing")
	})
}

func TestWarnsOnceWhenAKeyOrTheStoreFails(t *testing.T) {
	failing := func(*http.Request) (string, error) { return "", errors.New("secret detail") }
	for name, c := range map[string]struct {
		store      limiter.Store
		key        keyfunc.Func
		code, says string
	}{
		"a key function": {nil, failing, "code=weir-key-failed", `rule=r error="secret detail"`}, // the application's own error, for its operator
		"the store":      {brokenStore{}, keyfunc.Global, "code=weir-store-failed", "connection refused"},
	} {
		phase.Run(t, name, func(t *testing.T) {
			logger, log := logged()
			l := limited(t, middleware.Config{Store: c.store, Logger: logger, Rules: []middleware.Rule{{Name: "r", Key: c.key, Limit: limiter.PerHour(1)}}})
			statuses(l.Handler(ok), 3)
			assert.Equal(t, 1, strings.Count(log.String(), c.code))
			assert.Contains(t, log.String(), c.says)
		})
	}
}

func TestWarnsWhenARouteNeverSeesAPattern(t *testing.T) {
	for name, c := range map[string]func() middleware.Config{
		"ByRoute": func() middleware.Config { return middleware.Config{ByRoute: byRoute(plenty, "/b", "/a")} },
		"Match": func() middleware.Config {
			return middleware.Config{Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Match: middleware.Route("/a"), Limit: limiter.PerHour(1)}}}
		},
	} {
		phase.Run(t, name, func(t *testing.T) {
			logger, log := logged()
			slogDefault := slog.Default() // a Match has no logger of its own
			slog.SetDefault(logger)
			t.Cleanup(func() { slog.SetDefault(slogDefault) })
			for _, routed := range []bool{true, false} { // unknown paths have no pattern either
				config := c()
				config.Logger = logger
				l := limited(t, config)
				if routed {
					check(l, request(routedBy("/c")))
				}
				for range 4 {
					check(l, request())
				}
				assert.Empty(t, log.String(), "too early to tell")
				for range 200 {
					check(l, request())
				}
				assert.Equal(t, map[bool]int{false: 1}[routed], strings.Count(log.String(), "code=weir-unrouted"))
			}
			assert.Contains(t, log.String(), "route=/a")
		})
	}
}

func TestWarnsOfARequestThatEveryRuleSkips(t *testing.T) {
	skips := middleware.Rule{Name: "user", Key: keyfunc.User, NoKey: middleware.NoKeySkip, Limit: limiter.PerHour(1)}
	on := func(path string, r middleware.Rule) middleware.Rule {
		r.Name, r.Match = r.Name+path, middleware.Route(path)
		return r
	}
	byAddress := middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(1000)}
	for name, test := range map[string]struct {
		rules []middleware.Rule
		warns string // the rule; empty: none
	}{
		"alone":                           {[]middleware.Rule{skips}, "user"},
		"beside another that does":        {[]middleware.Rule{on("/a", skips), on("/*", skips)}, "user/*"},
		"beside one for other routes":     {[]middleware.Rule{skips, on("/b", byAddress)}, "user"},
		"beside one by address":           {[]middleware.Rule{skips, byAddress}, ""},
		"beside one for this route":       {[]middleware.Rule{skips, on("/a", byAddress)}, ""},
		"whose key cannot be read":        {[]middleware.Rule{{Name: "user", Key: func(*http.Request) (string, error) { return "", errors.New("no answer") }, NoKey: middleware.NoKeySkip, OnOutage: limiter.FailOpen, Limit: limiter.PerHour(1)}}, ""},
		"for another route":               {[]middleware.Rule{on("/b", skips)}, ""},
		"what it does not have is shared": {[]middleware.Rule{{Name: "user", Key: keyfunc.User, Limit: limiter.PerHour(1000)}}, ""},
	} {
		logger, log := logged()
		h := limited(t, middleware.Config{Logger: logger, Rules: test.rules}).Handler(ok)
		for range 3 {
			serve(h, request(routedBy("/a")))
		}
		if test.warns == "" {
			assert.NotContains(t, log.String(), "weir-unlimited", name)
			continue
		}
		assert.Equal(t, 1, strings.Count(log.String(), "code=weir-unlimited rule="+test.warns), name)
	}
}

func TestALimiterFurtherOutLimitsASkippedRequest(t *testing.T) {
	rules := func(edit func(*middleware.Rule)) []middleware.Rule {
		r := middleware.Rule{Name: "outer", Key: keyfunc.IP(), Limit: limiter.PerHour(1000)}
		edit(&r)
		return []middleware.Rule{r}
	}
	all := rules(func(*middleware.Rule) {})
	slots := rules(func(r *middleware.Rule) { r.Limit = limiter.AtOnce(9) })
	send := func(d middleware.Dialect) middleware.Headers { return middleware.Headers{Send: d} }
	for name, test := range map[string]struct {
		outer middleware.Config
		warns int
	}{
		"default":            {middleware.Config{Rules: all}, 0},
		"both":               {middleware.Config{Headers: send(middleware.HeadersBoth), Rules: all}, 0},
		"draft":              {middleware.Config{Headers: send(middleware.HeadersDraft11), Rules: all}, 0},
		"another prefix":     {middleware.Config{Headers: middleware.Headers{Prefix: "RateLimit"}, Rules: all}, 0},
		"slots":              {middleware.Config{Rules: slots}, 0},
		"slots, draft":       {middleware.Config{Headers: send(middleware.HeadersDraft11), Rules: slots}, 0},
		"slots, no fields":   {middleware.Config{Headers: send(middleware.HeadersNone), Rules: slots}, 0},
		"Results, no fields": {middleware.Config{Headers: send(middleware.HeadersNone), Results: true, Rules: all}, 0},
		"another route":      {middleware.Config{Rules: rules(func(r *middleware.Rule) { r.Match = middleware.Route("/b") })}, 1},
		"shadow":             {middleware.Config{Results: true, Rules: rules(func(r *middleware.Rule) { r.Mode = middleware.Shadow })}, 1},
		"exempt":             {middleware.Config{Rules: all, Allow: always}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			logger, log := logged()
			skips := []middleware.Rule{{Name: "user", Key: keyfunc.User, NoKey: middleware.NoKeySkip, Limit: limiter.PerHour(1)}}
			inner := limited(t, middleware.Config{Logger: logger, Rules: skips}).Handler(ok)
			shadow := limited(t, middleware.Config{Rules: []middleware.Rule{
				{Name: "between", Key: keyfunc.IP(), Limit: limiter.AtOnce(9), Mode: middleware.Shadow},
			}})
			for _, h := range []http.Handler{inner, shadow.Handler(inner)} {
				serve(limited(t, test.outer).Handler(h), request(routedBy("/a")))
			}
			assert.Equal(t, test.warns, strings.Count(log.String(), "code=weir-unlimited"), log)
		})
	}
}

func TestWarnsOfRequestsThatTheRulesOfTiersAndRoutesLeaveFree(t *testing.T) {
	rule := func(name string, edits ...func(*middleware.Rule)) []middleware.Rule {
		r := middleware.Rule{Name: name, Key: keyfunc.IP(), Limit: limiter.PerHour(1000)}
		for _, edit := range edits {
			edit(&r)
		}
		return []middleware.Rule{r}
	}
	byTier := func(rules []middleware.Rule) map[string][]middleware.Rule {
		return map[string][]middleware.Rule{"free": rules}
	}
	byRoute := func(rules []middleware.Rule) map[string][]middleware.Rule {
		return map[string][]middleware.Rule{"/a": rules}
	}
	onPost := func(r *middleware.Rule) {
		r.Match = middleware.MatchFunc(func(r *http.Request) bool { return r.Method == http.MethodPost })
	}
	on := func(pattern string) func(*middleware.Rule) {
		return func(r *middleware.Rule) { r.Match = middleware.Route(pattern) }
	}
	distinct := func(r *middleware.Rule) { r.Distinct = keyfunc.Header("X-Name") }
	inShadow := func(r *middleware.Rule) { r.Mode = middleware.Shadow }
	const tierless, tier, route = "in no tier, or in a misspelt one, is not limited", "rule=own tier=free", "rule=own route=/a"
	for name, c := range map[string]struct {
		config middleware.Config
		warns  []string
	}{
		"tiers alone":                      {middleware.Config{ByTier: byTier(rule("own"))}, []string{tierless}},
		"tiers and routes":                 {middleware.Config{ByTier: byTier(rule("own")), ByRoute: byRoute(rule("a"))}, []string{tierless}},
		"tiers and a rule for some":        {middleware.Config{ByTier: byTier(rule("own")), Rules: rule("all", onPost)}, []string{tierless}},
		"tiers and a rule in shadow":       {middleware.Config{ByTier: byTier(rule("own")), Rules: rule("all", inShadow)}, []string{tierless}},
		"tiers and a default":              {middleware.Config{ByTier: byTier(rule("own")), Default: rule("default")}, nil},
		"tiers and a rule for all":         {middleware.Config{ByTier: byTier(rule("own")), Rules: rule("all")}, nil},
		"tiers and a route for all":        {middleware.Config{ByTier: byTier(rule("own", onPost)), ByRoute: map[string][]middleware.Rule{"/*": rule("all")}}, nil},
		"tiers and one that denies":        {middleware.Config{ByTier: byTier(rule("own")), Rules: []middleware.Rule{{Name: "closed", Mode: middleware.Deny}}}, nil},
		"tiers in a config in shadow":      {middleware.Config{ByTier: byTier(rule("own")), Shadow: true}, nil},
		"a tier's POST, without a default": {middleware.Config{ByTier: byTier(rule("own", onPost))}, []string{tierless, tier}},
		"a tier's POST":                    {middleware.Config{ByTier: byTier(rule("own", onPost)), Default: rule("default")}, []string{tier}},
		"a tier's POST by pattern":         {middleware.Config{ByTier: byTier(rule("own", on("POST /*"))), Default: rule("default")}, []string{tier}},
		"a tier's route for all":           {middleware.Config{ByTier: byTier(rule("own", on("/*"))), Default: rule("default")}, nil},
		"a tier's distinct values":         {middleware.Config{ByTier: byTier(rule("own", distinct)), Default: rule("default")}, []string{tier}},
		"a tier in shadow":                 {middleware.Config{ByTier: byTier(rule("own", inShadow)), Default: rule("default")}, []string{tier}},
		"a tier's POST and the rest":       {middleware.Config{ByTier: byTier(append(rule("own", onPost), rule("rest")...)), Default: rule("default")}, nil},
		"a tier's POST and a rule for all": {middleware.Config{ByTier: byTier(rule("own", onPost)), Rules: rule("all")}, nil},
		"a route's POST":                   {middleware.Config{ByRoute: byRoute(rule("own", onPost)), Default: rule("default")}, []string{route}},
		"a route's POST, no default":       {middleware.Config{ByRoute: byRoute(rule("own", onPost))}, nil},
		"a route in shadow":                {middleware.Config{ByRoute: byRoute(rule("own", inShadow)), Default: rule("default")}, []string{route}},
		"a default for some":               {middleware.Config{Default: rule("default", onPost)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			logger, log := logged()
			c.config.Logger = logger
			l := limited(t, c.config)
			require.NoError(t, l.Reconfigure(c.config))
			assert.Equal(t, len(c.warns), strings.Count(log.String(), "code=weir-unlimited"), log.String())
			for _, text := range c.warns {
				assert.Contains(t, log.String(), text)
			}
			log.Reset()
			check(l, request(inTier("fere")))
			assert.Equal(t, slices.Contains(c.warns, tierless), strings.Contains(log.String(), "a request in no tier is not limited"), log.String())
		})
	}
}

// authenticated is authentication behind a limiter, and in front of it.
func authenticated(next http.Handler, name func(context.Context) context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r.WithContext(name(r.Context()))) })
}

func TestWarnsOfAuthenticationBehindTheLimiter(t *testing.T) {
	asUser := func(ctx context.Context) context.Context { return keyfunc.WithUser(ctx, "42") }
	asGold := func(ctx context.Context) context.Context { return middleware.WithTier(ctx, "gold") }
	byUser := []middleware.Rule{{Name: "r", Key: keyfunc.User, Limit: plenty}}
	withTiers := []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: plenty, Tiers: middleware.Tiers{"gold": plenty}}}
	for name, c := range map[string]struct {
		config middleware.Config
		named  func(context.Context) context.Context
		code   string
	}{
		"a rule by user":     {middleware.Config{Rules: byUser}, asUser, "code=weir-keyless rule=r"},
		"a route by user":    {middleware.Config{ByRoute: map[string][]middleware.Rule{"/*": byUser}}, asUser, "code=weir-keyless rule=r"},
		"users of some kind": {middleware.Config{Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Join(keyfunc.User, keyfunc.Method), Limit: plenty}}}, asUser, "code=weir-keyless rule=r"},
		"a rule with tiers":  {middleware.Config{Rules: withTiers}, asGold, "code=weir-keyless"},
		"rules of tiers":     {middleware.Config{ByTier: map[string][]middleware.Rule{"gold": withTiers[:1]}, Default: []middleware.Rule{{Name: "d", Key: keyfunc.Global, Limit: plenty}}}, asGold, "code=weir-keyless"},
	} {
		t.Run(name, func(t *testing.T) {
			for place, warns := range map[string]int{"behind": 1, "in front": 0} {
				logger, log := logged()
				c.config.Logger = logger
				l := limited(t, c.config)
				h := l.Handler(authenticated(ok, c.named))
				if place == "in front" {
					h = authenticated(l.Handler(ok), c.named)
				}
				statuses(h, 10, header("User-Agent", "kube-probe/1.34"))
				assert.Empty(t, log.String(), "probes have no users")
				statuses(h, 4)
				assert.Empty(t, log.String(), "too early to tell")
				statuses(h, 50)
				require.NoError(t, l.Reconfigure(c.config))
				statuses(h, 50)
				assert.Equal(t, warns, strings.Count(log.String(), c.code), "%s: %s", place, log)
			}
		})
	}
}

// A reload, guests and clients of a tier without a name are no mistake.
func TestGuestsWhoComeFirstAfterAReloadAreNotWarnedOf(t *testing.T) {
	logger, log := logged()
	c := middleware.Config{Logger: logger,
		Rules:   []middleware.Rule{{Name: "r", Key: keyfunc.APIKey("X-Key"), Limit: plenty}},
		ByTier:  map[string][]middleware.Rule{"gold": {{Name: "gold", Key: keyfunc.Global, Limit: plenty}}},
		Default: []middleware.Rule{{Name: "d", Key: keyfunc.Global, Limit: plenty}},
		ByRoute: map[string][]middleware.Rule{"/a": {{Name: "a", Key: keyfunc.Global, Limit: plenty}}},
	}
	l := limited(t, c)
	statuses(l.Handler(ok), 1, inTier("gold"), header("X-Key", "k"), routedBy("/a"))
	for range 3 {
		require.NoError(t, l.Reconfigure(c))
		statuses(l.Handler(ok), 20)
	}
	assert.Empty(t, log.String())
}

func TestWarnsOfALimiterThatAHandlerMakes(t *testing.T) {
	logger, log := logged()
	config := func(name string) middleware.Config {
		return middleware.Config{Logger: logger, Rules: []middleware.Rule{{Name: name, Key: keyfunc.Global, Limit: limiter.PerHour(1)}}}
	}
	run := rand.Text() // each configuration is warned of once in a process
	made := func(name string) *middleware.RateLimit { return middleware.Must(middleware.New(config(name + run))) }
	for name, limit := range map[string]func(l *middleware.RateLimit, w http.ResponseWriter, r *http.Request){
		"handler": func(l *middleware.RateLimit, w http.ResponseWriter, r *http.Request) { l.Handler(ok).ServeHTTP(w, r) },
		"gateway": func(l *middleware.RateLimit, w http.ResponseWriter, r *http.Request) {
			l.Gateway(ok, false).ServeHTTP(w, r)
		},
		"adapter": func(l *middleware.RateLimit, w http.ResponseWriter, r *http.Request) { l.Enter(w, r, nil) },
		"handler's own key": func(l *middleware.RateLimit, w http.ResponseWriter, r *http.Request) {
			l.Allow(w, r, "handler's own key"+run, "k")
		},
	} {
		log.Reset()
		for range 200 {
			limit(made(name), httptest.NewRecorder(), request())
		}
		assert.Equal(t, 1, strings.Count(log.String(), "code=weir-many-limiters"), "%s: %s", name, log)
	}

	log.Reset()
	for range 50 { // the rules may have changed since
		l := made("changed")
		require.NoError(t, l.Reconfigure(middleware.Config{Logger: logger, Bans: middleware.Bans{Deny: always}}))
		statuses(l.Handler(ok), 1)
	}
	assert.Contains(t, log.String(), "rule=changed")

	log.Reset()
	statuses(made("routes").Handler(ok), 2)
	for range 200 {
		statuses(made("routes").Handler(ok), 1)
	}
	for i := range 2000 {
		statuses(made(fmt.Sprint("customer ", i)).Handler(ok), 1)
	}
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	for range 200 {
		shared := config("shared" + run)
		shared.Store = store
		statuses(middleware.Must(middleware.New(shared)).Handler(ok), 1)
	}
	assert.NotContains(t, log.String(), "weir-many-limiters", "one that is used again, one for each customer, and one that counts in a shared store")
}
