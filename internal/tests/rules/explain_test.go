// Package rules tests a rules file in a router.
package rules_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

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

// Whatever is asked, in a router that has the file's routes: what is charged is what was
// explained of the raw path.
func TestWhatIsExplainedIsWhatIsCharged(t *testing.T) {
	var taken ledger
	o := rules.Options{Config: middleware.Config{Store: &taken, Logger: slog.New(slog.DiscardHandler)}}
	text, err := os.ReadFile("../../../middleware/rules/testdata/explain/order.yaml")
	require.NoError(t, err)
	r, err := rules.Parse(text, o)
	require.NoError(t, err)
	limits, err := middleware.New(r.Config())
	require.NoError(t, err)
	okay := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	router := chi.NewRouter()
	router.Use(chilimit.New(limits))
	for pattern := range r.Config().ByRoute {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			router.Handle(pattern, okay)
			if place, below := strings.CutSuffix(pattern, "/*"); below {
				router.Handle(place, okay) // which the rule is for too
			}
			continue
		}
		router.Method(method, path, okay)
		if method == http.MethodGet {
			router.Method(http.MethodHead, path, okay)
		}
	}
	router.Handle("/healthz", okay)
	router.Handle("/internal", okay)
	router.Handle("/internal/*", okay)

	rapid.Check(t, func(t *rapid.T) {
		pick := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
		q := rules.Request{
			Method: pick("method", "", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"),
			Path: pick("path", "/", "/users/42", "/users/me", "/users/42/files/a", "/users/42/files/a/b", "/users/42/else", "/users/me/files/x",
				"/beta/x", "/beta/x/y", "/beta", "/healthz", "/internal/a/b", "/internal", "/only", "/nowhere", "/nowhere/else"),
			IP:            pick("ip", "", "192.0.2.7", "198.51.100.7", "203.0.113.7", "10.0.0.1", "2001:db8:1:2::3"),
			Tier:          pick("tier", "", "", "free", "paid", "other"),
			User:          pick("user", "", "42", "eve"),
			Header:        http.Header{},
			ContentLength: rapid.SampledFrom([]int64{0, -1, 1024, 1025, 1 << 40}).Draw(t, "length"),
		}
		for _, name := range []string{"X-Tenant", "Origin", "Access-Control-Request-Method", "X-Forwarded-For"} {
			if rapid.IntRange(0, 3).Draw(t, name) == 0 {
				q.Header.Set(name, "192.0.2.99")
			}
		}
		explanation, err := r.Explain(q)
		require.NoError(t, err)

		taken.charges = nil
		w := httptest.NewRecorder()
		request := httptest.NewRequest(cmp.Or(q.Method, "GET"), q.Path, nil)
		request.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(cmp.Or(q.IP, "192.0.2.1")), 9).String()
		request.Header, request.ContentLength = q.Header.Clone(), q.ContentLength
		ctx := keyfunc.WithUser(middleware.WithTier(request.Context(), q.Tier), q.User)
		router.ServeHTTP(w, request.WithContext(ctx))

		var steps, want []string
		for _, s := range explanation.Steps {
			if s.Limit != "" {
				steps = append(steps, fmt.Sprintf("%s %s %s %s %d %s", s.Rule, s.Tier, s.Key, s.Limit, s.Cost, s.Outage))
			}
		}
		for _, c := range taken.charges {
			want = append(want, fmt.Sprintf("%s %s %s %s %d %s", c.Quota.Rule(), c.Quota.Tier(), c.Key, c.Quota.Limit(), c.Cost, c.Quota.OnOutage))
		}
		require.Equal(t, want, steps, "%+v", explanation)
		last := explanation.Steps[len(explanation.Steps)-1]
		switch w.Code {
		case http.StatusTooManyRequests: // nothing else is answered so: the ledger takes all
			require.Contains(t, last.Says, "banned: answered 429")
		case http.StatusUnauthorized:
			require.Contains(t, last.Says, "answered 401")
		default:
			require.NotContains(t, last.Says, "answered")
		}
	})
}
