package middleware_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

func TestNewNamesEveryMistake(t *testing.T) {
	valid := limiter.PerHour(1)
	tests := []struct {
		name   string
		config middleware.Config
		want   []string
	}{
		{"no rules", middleware.Config{}, []string{"Config.Rules is empty"}},
		{"too many rules", middleware.Config{Rules: make([]middleware.Rule, 65)}, []string{"65 rules: at most 64"}},
		{"unknown headers", middleware.Config{Headers: middleware.Headers{Send: 9}, Rules: []middleware.Rule{{Name: "a", Limit: valid}}}, []string{"Config: middleware: Headers.Send is 9"}},
		{"names of fields that are not sent", middleware.Config{Headers: middleware.Headers{Send: middleware.HeadersDraft11, Prefix: "RateLimit"}, Default: named(1)},
			[]string{"Headers.Send is without the legacy fields"}},
		{"a prefix that is a field's name", middleware.Config{Headers: middleware.Headers{Prefix: "X-Limit-Limit"}, Default: named(1)}, []string{`Headers.Prefix is "X-Limit-Limit"`}},
		{"a rule without a name or limit", middleware.Config{Rules: []middleware.Rule{{}}},
			[]string{"Rules[0]", "name is empty", "Limit is missing"}},
		{"two rules of one name", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid}, {Name: "a", Limit: valid}}},
			[]string{`Rules[1]: there is another rule named "a"`}},
		{"a name that no header can carry", middleware.Config{Rules: []middleware.Rule{{Name: "é\n", Limit: valid}}},
			[]string{`"é\n" has a character outside printable ASCII`}},
		{"a long name", middleware.Config{Rules: []middleware.Rule{{Name: strings.Repeat("n", 129), Limit: valid}}},
			[]string{"129 characters: at most 128"}},
		{"tiers", middleware.Config{Rules: []middleware.Rule{{Name: "plan", Limit: valid, Tiers: middleware.Tiers{
			"": valid, "free": limiter.Limit{}, "bad\x00": valid, "burst": limiter.Limit{Events: 1, Per: 1, Burst: -4}}}}},
			[]string{"a tier without a name", `"plan" tier "free"`, `outside printable ASCII`, "Burst is -4"}},
		{"two quotas of one name in a tier", middleware.Config{Rules: []middleware.Rule{
			{Name: "api", Limit: valid, Tiers: middleware.Tiers{"pro": limiter.All(limiter.PerSecond(10), limiter.PerHour(1000))}},
			{Name: "api.3600", Limit: valid, Tiers: middleware.Tiers{"pro": valid, "free": valid}}}},
			[]string{`Rules[1] "api.3600" tier "pro": there is another rule named "api.3600"`}},
		{"an unknown NoKey", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid, NoKey: 7}}}, []string{"NoKey is 7"}},
		{"an overflowing limit", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: limiter.PerSecond(1 << 62)}}},
			[]string{`Rules[0] "a": limiter: Events is 4611686018427387904`}},
		{"an unknown algorithm", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid.With(200)}}},
			[]string{"Algorithm is 200"}},
		{"an unknown OnOutage", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid, OnOutage: 9}}},
			[]string{`Rules[0] "a"`, "OnOutage is 9"}},
		{"a fixed cost that the limit never allows", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: limiter.PerSecond(10), Cost: middleware.Units(20)}}},
			[]string{`Rules[0] "a": Units is 20: 10/1s allows at most 10 at once, so that no request would ever pass`}},
		{"one above a burst", middleware.Config{Default: []middleware.Rule{{Name: "a", Limit: limiter.PerSecond(10).WithBurst(3), Cost: middleware.Units(4)}}},
			[]string{`Default "a": Units is 4: 10/1s token-bucket burst 3 allows at most 3 at once`}},
		{"one that a tier never allows", middleware.Config{ByRoute: map[string][]middleware.Rule{"/a": {{Name: "a", Limit: limiter.PerHour(9), Cost: middleware.Units(8),
			Tiers: middleware.Tiers{"free": limiter.PerHour(5), "paid": limiter.PerHour(8)}}}}},
			[]string{`ByRoute["/a"] "a" tier "free": Units is 8: 5/1h allows at most 5 at once`}},
		{"costs that are none", middleware.Config{Rules: []middleware.Rule{
			{Name: "a", Limit: valid, Cost: middleware.Units(-1)}, {Name: "b", Limit: valid, Cost: middleware.Units(0)}, {Name: "c", Limit: valid, Cost: middleware.CostOf(nil)}}},
			[]string{`Rules[0] "a": Units is -1: it must be at least 1`, `Rules[1] "b": Units is 0`, `Rules[2] "c": Cost: CostOf needs a function`}},
		{"a pattern that nothing matches", middleware.Config{ByRoute: map[string][]middleware.Rule{"GET/a": {{Name: "a", Limit: valid}}}},
			[]string{`ByRoute: pattern "GET/a" has no space behind its method`}},
		{"only what is allowed", middleware.Config{Allow: func(*http.Request) bool { return true }}, []string{"Config.Rules is empty"}},
		{"64 rules and one by tier", middleware.Config{Rules: make([]middleware.Rule, 64), ByTier: map[string][]middleware.Rule{"free": {{}}}},
			[]string{"64 rules: at most 64"}},
		{"64 rules and one by route", middleware.Config{Rules: make([]middleware.Rule, 64), ByRoute: map[string][]middleware.Rule{"/": {{}}}},
			[]string{"64 rules: at most 64"}},
		{"64 rules and a default", middleware.Config{Rules: make([]middleware.Rule, 64), Default: []middleware.Rule{{}}},
			[]string{"64 rules: at most 64"}},
		{"a tier without a name", middleware.Config{ByTier: map[string][]middleware.Rule{"": {{Name: "a", Limit: valid}}}},
			[]string{"ByTier has a tier without a name"}},
		{"a mistake by tier", middleware.Config{ByTier: map[string][]middleware.Rule{"free": {{Name: "a"}}}},
			[]string{`ByTier["free"] "a": limiter: Limit is missing`}},
		{"a mistake by route", middleware.Config{ByRoute: map[string][]middleware.Rule{"/a": {{Name: "a", Limit: valid, NoKey: 7}}}},
			[]string{`ByRoute["/a"] "a": NoKey is 7`}},
		{"a mistake in the default", middleware.Config{Default: []middleware.Rule{{Name: "a"}}},
			[]string{`Default "a": limiter: Limit is missing`}},
		{"a pattern that cannot match", middleware.Config{ByRoute: map[string][]middleware.Rule{"get /a": {{Name: "a", Limit: valid}}}},
			[]string{`ByRoute: pattern "get /a" does not begin with a method in capitals`}},
		{"one route twice", middleware.Config{ByRoute: map[string][]middleware.Rule{"/a/{id}": {{Name: "a", Limit: valid}}, "/a/:name": {{Name: "b", Limit: valid}}}},
			[]string{`ByRoute["/a/{id}"] "a": it is the same route as that of "b"`}},
		{"one name in different places", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid}},
			ByTier: map[string][]middleware.Rule{"free": {{Name: "a", Limit: valid}}}, ByRoute: map[string][]middleware.Rule{"/a": {{Name: "a", Limit: valid}}},
			Default: []middleware.Rule{{Name: "a", Limit: valid}}},
			[]string{`ByTier["free"]: there is another rule named "a"`, `ByRoute["/a"]: there is another rule named "a"`, `Default: there is another rule named "a"`}},
		{"a name that strikes have", middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{{Name: "a strikes", Limit: valid}, {Name: "a", Key: keyfunc.IP(), Limit: valid, Escalate: strict}}},
			[]string{`Rules[1] "a": there is another rule named "a strikes"`}},
		{"a percentage below 0", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid, SoftAt: -1}}}, []string{`Rules[0] "a": SoftAt is -1`}},
		{"100 percent", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid, SoftAt: 100}}}, []string{"SoftAt is 100"}},
		{"a warning that nothing tells", middleware.Config{NoResult: true, Headers: middleware.Headers{Send: middleware.HeadersNone}, Rules: []middleware.Rule{{Name: "a", Limit: valid, SoftAt: 80}}},
			[]string{`Rules[0] "a": SoftAt is 80, and with Config.NoResult and HeadersNone nothing would tell of it`}},
		{"an answer to the banned", middleware.Config{Bans: middleware.Bans{Status: 404}, Rules: []middleware.Rule{{Name: "a", Limit: valid}}}, []string{"Config.Bans.Status is 404"}},
		{"a nil key of bans", middleware.Config{Bans: middleware.Bans{List: bansOf(t), Keys: []keyfunc.Func{keyfunc.IP(), nil}}, Rules: []middleware.Rule{{Name: "a", Limit: valid}}},
			[]string{"Config.Bans.Keys[1] is nil"}},
		{"keys of no bans", middleware.Config{Bans: middleware.Bans{Keys: []keyfunc.Func{keyfunc.IP()}}, Rules: []middleware.Rule{{Name: "a", Limit: valid}}},
			[]string{"Config.Bans.Keys needs a List or DenyKey"}},
		{"an escalation of nothing", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid, Escalate: bans.Escalation{Factor: 0.5}}}},
			[]string{"Escalate: bans: After is 0", "Within is 0s", "Ban is 0s", "Factor is 0.5", "Escalate needs a Key", "Escalate needs Config.Bans"}},
		{"an escalation without bounds", middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{{Name: "a", Key: keyfunc.IP(), Limit: valid,
			Escalate: bans.Escalation{After: 10_001, Within: time.Minute, Ban: time.Microsecond, Factor: 1001, Max: 367 * 24 * time.Hour}}}},
			[]string{"Escalate: bans: After is 10001", "Ban is 1µs", "Factor is 1001", "Max is 8808h0m0s"}},
		{"an escalation that shrinks", middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{{Name: "a", Key: keyfunc.IP(), Limit: valid,
			Escalate: bans.Escalation{After: 1, Within: time.Minute, Ban: time.Hour, Max: time.Minute}}}},
			[]string{"Max is 1m0s: it must be at least Ban, 1h0m0s"}},
		{"an escalation within no time", middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{{Name: "a", Key: keyfunc.IP(), Limit: valid,
			Escalate: bans.Escalation{After: 1, Ban: time.Hour}}}}, []string{`Escalate: bans: Within is 0s`}},
		{"all at once", middleware.Config{Headers: middleware.Headers{Send: 9}, Rules: []middleware.Rule{{NoKey: 7}, {Name: "b"}}},
			[]string{"Headers.Send", "Rules[0]", "NoKey is 7", `Rules[1] "b"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, err := middleware.New(test.config)
			require.Error(t, err)
			assert.Nil(t, l)
			for _, want := range test.want {
				assert.ErrorContains(t, err, want)
			}
			assert.Panics(t, func() { middleware.Must(middleware.New(test.config)) })
		})
	}
}

func TestAConfigNeedsARuleOnlyIfItRefusesNothingElse(t *testing.T) {
	rule := middleware.Rule{Name: "r", Limit: limiter.PerHour(1)}
	for name, config := range map[string]middleware.Config{
		"Bans":          {Bans: middleware.Bans{List: bansOf(t), Keys: []keyfunc.Func{keyfunc.IP()}}},
		"ByTier":        {ByTier: map[string][]middleware.Rule{"free": {rule}}},
		"ByRoute":       {ByRoute: map[string][]middleware.Rule{"/": {rule}}},
		"Default":       {Default: []middleware.Rule{rule}},
		"all that fits": {Rules: named(62), ByTier: map[string][]middleware.Rule{"free": {rule}}, ByRoute: map[string][]middleware.Rule{"/": {{Name: "s", Limit: rule.Limit}}}},
	} {
		_, err := middleware.New(config)
		assert.NoError(t, err, name)
	}
}

// named is so many rules.
func named(n int) (rules []middleware.Rule) {
	for i := range n {
		rules = append(rules, middleware.Rule{Name: strconv.Itoa(i), Limit: limiter.PerHour(1)})
	}
	return rules
}

func TestAConfigCanBeChangedAfterNew(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		tiers := middleware.Tiers{"premium": limiter.PerHour(2)}
		rules := []middleware.Rule{{Name: "a", Limit: limiter.PerHour(1), Tiers: tiers}}
		l, err := middleware.New(middleware.Config{Rules: rules})
		require.NoError(t, err)
		rules[0] = middleware.Rule{}
		delete(tiers, "premium")
		w := serve(l.Handler(ok), request().WithContext(middleware.WithTier(t.Context(), "premium")))
		assert.Equal(t, "2", w.Header().Get("X-RateLimit-Limit"))

		c := middleware.Config{Bans: middleware.Bans{List: bansOf(t), Keys: []keyfunc.Func{keyfunc.IP()}}, Default: []middleware.Rule{{Name: "d", Limit: limiter.PerHour(3)}},
			ByTier: map[string][]middleware.Rule{"premium": {{Name: "t", Limit: limiter.PerHour(4)}}}, ByRoute: map[string][]middleware.Rule{"/a": {{Name: "r", Limit: limiter.PerHour(5)}}}}
		l = limited(t, c)
		require.NoError(t, c.Bans.List.Ban(t.Context(), "192.0.2.1", 0))
		clear(c.ByTier)
		clear(c.ByRoute)
		c.Default[0], c.Bans.Keys[0] = middleware.Rule{}, keyfunc.User
		assert.Equal(t, 403, serve(l.Handler(ok), request()).Code)
		w = serve(l.Handler(ok), request(from("192.0.2.2:1"), routedBy("/a"), inTier("premium")))
		assert.Contains(t, w.Header().Get("RateLimit-Policy"), `"t";q=4;w=3600, "r";q=5;w=3600`)
		assert.Equal(t, "3", serve(l.Handler(ok), request(from("192.0.2.2:1"))).Header().Get("X-RateLimit-Limit"))
	})
}
