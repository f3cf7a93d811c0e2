package rules_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// rules are the names of those that were charged last.
// A ledger is a store that takes everything and remembers the last that it took.
type ledger struct{ charges []limiter.Charge }

func (l *ledger) Decide(_ context.Context, charges []limiter.Charge) error {
	l.charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Decision = limiter.Decision{Allowed: true, Limit: 1}
	}
	return nil
}
func (*ledger) Settle(context.Context, []limiter.Settlement) error { return nil }
func (*ledger) Reset(context.Context, []limiter.Charge) error      { return nil }

func (l *ledger) rules() (names []string) {
	for _, c := range l.charges {
		names = append(names, c.Quota.Rule())
	}
	return names
}

// muxOf is an http.ServeMux with the endpoints of a file as its routes, of these patterns
// those that it takes, and what is charged there.
func muxOf(t *rapid.T, patterns []string) (mux *http.ServeMux, h http.Handler, r *rules.Rules, taken *ledger) {
	mux = http.NewServeMux()
	file := "version: 1\nendpoints:\n"
	taken = &ledger{}
	all, any := false, false
	for _, pattern := range patterns {
		if !registers(mux, strings.TrimSuffix(pattern, "*")) {
			continue
		}
		any, all = true, all || pattern == "/*"
		file += fmt.Sprintf("  %q: 1/s\n", pattern)
	}
	if !any {
		t.Skip("none of the patterns")
	}
	if !all {
		file += "default: 1/s\n"
	}
	r, err := rules.Parse([]byte(file), rules.Options{Config: middleware.Config{Store: taken, Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err, "%s", file)
	limits, err := middleware.New(r.Config())
	require.NoError(t, err)
	return mux, limits.Handler(mux), r, taken
}

// registers reports whether a mux takes a pattern, beside those it has.
func registers(mux *http.ServeMux, pattern string) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.HandleFunc(pattern, okay)
	return true
}

// Of the patterns that an http.ServeMux has, the one it chooses is the one that limits, and
// the one that is explained: with hosts, methods, and paths that end in a slash.
func TestWhatAServeMuxChoosesLimitsAndIsExplained(t *testing.T) {
	words := func(of ...string) *rapid.Generator[string] { return rapid.SampledFrom(of) }
	pattern := rapid.Custom(func(t *rapid.T) string {
		return words("", "GET ", "POST ").Draw(t, "method") + words("", "example.org", "a.example.org", "api.").Draw(t, "host") +
			words("/", "/{$}", "/a", "/a/", "/a/{$}", "/a/b", "/a/b/", "/a/{x}", "/a/{x}/", "/a/{x}/c", "/{x}", "/{x}/b", "/a/{x...}").Draw(t, "path")
	})
	rapid.Check(t, func(t *rapid.T) {
		patterns := rapid.SliceOfNDistinct(pattern, 1, 12, rapid.ID).Draw(t, "patterns")
		stars := rapid.Bool().Draw(t, "with stars")
		if stars { // not with both: "/a/" says more than "GET /a/*"
			for i, pattern := range patterns {
				if strings.HasSuffix(pattern, "/") {
					patterns[i] += "*"
				}
			}
		}
		mux, h, r, taken := muxOf(t, patterns)
		for range 10 {
			method := words("GET", "HEAD", "POST").Draw(t, "method")
			path := words("/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/a/z", "/a/z/c", "/z", "/z/b", "/a/b/c/d").Draw(t, "path")
			host := words("example.org", "a.example.org", "other.example", "").Draw(t, "host")
			request := httptest.NewRequest(method, path, nil)
			request.Host = host
			taken.charges = nil
			h.ServeHTTP(httptest.NewRecorder(), request)

			explanation, err := r.Explain(rules.Request{Method: method, Path: path, Host: host, ServeMux: true})
			require.NoError(t, err)
			require.Equal(t, taken.rules(), []string{explanation.Steps[2].Rule}, "%s %q%s: %+v", method, host, path, explanation)
			if _, chosen := mux.Handler(request); chosen != "" && !stars { // "/a/*" is for "/a" too
				require.Equal(t, []string{chosen}, taken.rules(), "%s %q%s", method, host, path)
			}
		}
	})
}

func TestWhatEndsInASlashIsExplainedAsTheRouterHasIt(t *testing.T) {
	r := parse(t, "version: 1\nendpoints: {\"/static/\": 1/s}\ndefault: 2/s\n", rules.Options{})
	require.Equal(t, []string{
		`2:13: endpoints."/static/": matches all paths below it on http.ServeMux, and one path on chi, gin and echo: write "/static/*" to match all paths below on each of them`,
	}, textsOf(r.Warnings()))
	for _, test := range []struct {
		path     string
		serveMux bool
		rule     string
		notes    []string
	}{
		{"/static/", false, "/static/", nil},
		{"/static/", true, "/static/", nil},
		{"/static/a", true, "/static/", nil},
		{"/static", true, "/static/", nil}, // to which it is redirected
		{"/static/a", false, "default", nil},
		{"/other", false, "default", nil},
	} {
		explanation, err := r.Explain(rules.Request{Path: test.path, ServeMux: test.serveMux})
		require.NoError(t, err)
		assert.Equal(t, test.rule, explanation.Steps[2].Rule, "%+v", test)
		assert.Equal(t, test.notes, explanation.Notes, "%+v", test)
	}
}

func textsOf(problems []rules.Problem) (texts []string) {
	for _, p := range problems {
		texts = append(texts, p.String())
	}
	return texts
}
