package middleware_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
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
	logger, log := logged()
	inner := limited(t, middleware.Config{Logger: logger, Rules: []middleware.Rule{skips}}).Handler(ok)
	serve(limited(t, middleware.Config{Rules: []middleware.Rule{byAddress}}).Handler(inner), request())
	assert.Empty(t, log.String(), "a limiter around it has counted the request")
}
