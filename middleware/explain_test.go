package middleware_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// What is explained is what then is asked of the store, or why it is not asked.
func TestExplainTellsWhatIsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) middleware.Rule {
			rule := middleware.Rule{
				Name: name, Limit: limiter.PerDay(rapid.Int64Range(1, 5).Draw(t, "limit")),
				Key:      rapid.SampledFrom([]keyfunc.Func{keyfunc.Global, keyfunc.IP(), keyfunc.Header("X-Key")}).Draw(t, "key"),
				NoKey:    middleware.NoKey(rapid.IntRange(0, 3).Draw(t, "no key")),
				Mode:     inShadow(rapid.Bool().Draw(t, "shadow")),
				OnOutage: limiter.Outage(rapid.IntRange(0, 2).Draw(t, "on outage")),
			}
			if rapid.Bool().Draw(t, "tiered") {
				rule.Tiers = middleware.Tiers{"gold": limiter.PerDay(7)}
			}
			if rapid.Bool().Draw(t, "costly") {
				rule.Cost = middleware.CostOf(func(r *http.Request) int64 { return int64(len(r.Header.Get("X-Key"))) })
			}
			if rapid.IntRange(0, 4).Draw(t, "matching") == 0 {
				rule.Match = middleware.MatchFunc(func(r *http.Request) bool { return r.Header.Get("X-Key") != "" })
			}
			return rule
		}
		store := &spy{}
		list := bansOf(t)
		otherwise := draw("default")
		c := middleware.Config{
			Store: store, Bans: middleware.Bans{List: list, Keys: byIP, Deny: middleware.MatchFunc(func(r *http.Request) bool { return r.Pattern == "/bad" })},
			Shadow:  rapid.Bool().Draw(t, "all in shadow"),
			Rules:   []middleware.Rule{draw("a"), draw("b")},
			ByTier:  map[string][]middleware.Rule{"gold": {draw("gold")}},
			ByRoute: map[string][]middleware.Rule{"/a": {draw("/a")}, "/b/*": {draw("/b")}},
			Default: []middleware.Rule{otherwise},
			Allow:   middleware.MatchFunc(func(r *http.Request) bool { return r.Pattern == "/free" }),
		}
		l := limited(t, c)
		require.NoError(t, list.Ban(t.Context(), "192.0.2.9", 0))
		for range 10 {
			edits := []func(*http.Request){
				from(rapid.SampledFrom([]string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.9:1"}).Draw(t, "peer")),
				routedBy(rapid.SampledFrom([]string{"", "/a", "/b/c", "/c", "/free", "/bad"}).Draw(t, "route")),
				header("X-Key", rapid.SampledFrom([]string{"", "k", "key"}).Draw(t, "value")),
			}
			if rapid.Bool().Draw(t, "in a tier") {
				edits = append(edits, inTier("gold"))
			}
			store.asked = nil
			e := l.Explain(request(edits...))
			require.Empty(t, store.asked, "to explain is not to ask")
			w, result := check(l, request(edits...))

			if len(store.asked) == 0 {
				require.Empty(t, e.Rules)
			} else {
				require.Equal(t, len(store.asked[0]), len(e.Rules))
				for i, asked := range store.asked[0] {
					q := asked.Quota
					shadow := c.Shadow || slices.ContainsFunc(result.Rules, func(r middleware.RuleResult) bool { return r.Rule.Name == q.Rule() && r.Rule.Mode == middleware.Shadow })
					if w.Code != 200 {
						shadow = e.Rules[i].Rule.Mode == middleware.Shadow // no warning tells
					}
					mode := middleware.Enforce
					if shadow {
						mode = middleware.Shadow
					}
					rule := *e.Rules[i].Rule
					rule.Route, rule.ForTier, rule.Default = "", "", false // which no store is told
					require.Equal(t, middleware.RuleInfo{Name: q.Rule(), Tier: q.Tier(), Limit: q.Limit(), OnOutage: q.OnOutage, Mode: mode}, rule)
					require.Equal(t, asked.Key, e.Rules[i].Key)
					require.Equal(t, asked.Cost, e.Rules[i].Cost)
					require.Zero(t, e.Rules[i].Decision)
				}
			}
			switch w.Code {
			case 200, 429:
				require.Zero(t, e.Status)
				require.True(t, !e.Banned || c.Shadow)
			case 403:
				require.True(t, e.Banned)
			default:
				require.Equal(t, w.Code, e.Status)
			}
		}
	})
}

func TestExplainTellsWhyNothingIsCounted(t *testing.T) {
	list := bansOf(t)
	require.NoError(t, list.Ban(t.Context(), "192.0.2.9", 0))
	l := limited(t, middleware.Config{
		Bans:  middleware.Bans{List: list, Keys: byIP, Deny: middleware.MatchFunc(func(r *http.Request) bool { return r.Pattern == "/bad" })},
		Allow: middleware.MatchFunc(func(r *http.Request) bool { return r.Pattern == "/free" }),
		Rules: []middleware.Rule{{Name: "r", Limit: plenty, Key: keyfunc.Header("X-Key"), NoKey: middleware.NoKeyBadRequest}},
	})
	ban, _ := list.Find("192.0.2.9")
	assert.Equal(t, middleware.Explanation{Banned: true, Ban: ban}, l.Explain(request(from("192.0.2.9:1"), routedBy("/free"))))
	assert.Equal(t, middleware.Explanation{Banned: true}, l.Explain(request(routedBy("/bad"))))
	assert.Equal(t, middleware.Explanation{Exempt: true}, l.Explain(request(routedBy("/free"))))
	assert.Equal(t, middleware.Explanation{Status: 400, Keyless: "r"}, l.Explain(request()))
	ambiguous := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{{Name: "r", Limit: plenty, Key: keyfunc.APIKey("X-Api-Key"), Escalate: first}}})
	assert.Equal(t, middleware.Explanation{Status: 400}, ambiguous.Explain(request(twice("X-Api-Key", "a", "b"))), "no rule refuses: it may be banned")
}

func TestExplainLogsNoBansInShadow(t *testing.T) {
	logger, log := logged()
	l := limited(t, middleware.Config{Logger: logger, Shadow: true, Bans: middleware.Bans{Deny: always}, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: plenty}}})
	e := l.Explain(request())
	assert.True(t, e.Banned)
	assert.Len(t, e.Rules, 1, "it goes on all the same")
	assert.Empty(t, log.String())
}

// It asks what would happen, and changes nothing.
func TestExplainLooksForNoMistakeInAuthentication(t *testing.T) {
	logger, log := logged()
	l := limited(t, middleware.Config{Logger: logger,
		Rules:  []middleware.Rule{{Name: "r", Key: keyfunc.APIKey("X-Key"), Limit: plenty}},
		ByTier: map[string][]middleware.Rule{"gold": {{Name: "gold", Key: keyfunc.Global, Limit: plenty}}},
	})
	middleware.WithTier(t.Context(), "gold")
	for range 10 {
		l.Explain(request())
	}
	assert.Empty(t, log.String())
}

func TestExplainCountsAndLogsNoRefusal(t *testing.T) {
	none := func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }
	for name, rule := range map[string]middleware.Rule{
		"deny":         {Mode: middleware.Deny},
		"no key":       {Key: none, Limit: plenty, NoKey: middleware.NoKeyUnauthorized},
		"no value":     {Key: keyfunc.Global, Limit: plenty, Distinct: none, NoKey: middleware.NoKeyBadRequest},
		"a zero limit": {Key: keyfunc.IP(), Limit: plenty},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger, log := logged()
				rule.Name = "shadow"
				l := limited(t, middleware.Config{Shadow: true, Logger: logger, Rules: []middleware.Rule{rule},
					ByRoute: map[string][]middleware.Rule{"/a": {{Name: "a", Key: keyfunc.Global, Limit: plenty}}}})
				suspended := func(r *http.Request) {
					ctx, err := middleware.WithLimit(r.Context(), "shadow", limiter.PerHour(0))
					require.NoError(t, err)
					*r = *r.WithContext(ctx)
				}
				for range 10 {
					l.Explain(request(suspended))
				}
				assert.Empty(t, log.String())
				time.Sleep(time.Hour)
				assert.Equal(t, 200, serve(l.Handler(noop), request(suspended)).Code)
				assert.Contains(t, log.String(), "code=weir-shadow requests=1\n")
			})
		})
	}
}
