package middleware_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
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
		{"unknown headers", middleware.Config{Headers: 9, Rules: []middleware.Rule{{Name: "a", Limit: valid}}}, []string{"Config.Headers is 9"}},
		{"a rule without a name or limit", middleware.Config{Rules: []middleware.Rule{{}}},
			[]string{"Rules[0]", "name is empty", "Events is 0", "Per is 0s"}},
		{"two rules of one name", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid}, {Name: "a", Limit: valid}}},
			[]string{`Rules[1]: there is another rule named "a"`}},
		{"a name that no header can carry", middleware.Config{Rules: []middleware.Rule{{Name: "é\n", Limit: valid}}},
			[]string{`"é\n" has a character outside printable ASCII`}},
		{"a long name", middleware.Config{Rules: []middleware.Rule{{Name: strings.Repeat("n", 129), Limit: valid}}},
			[]string{"129 characters: at most 128"}},
		{"tiers", middleware.Config{Rules: []middleware.Rule{{Name: "plan", Limit: valid, Tiers: middleware.Tiers{
			"": valid, "free": {}, "bad\x00": valid, "burst": {Events: 1, Per: 1, Burst: -4}}}}},
			[]string{"a tier without a name", `"plan" tier "free"`, `outside printable ASCII`, "Burst is -4"}},
		{"an unknown NoKey", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid, NoKey: 7}}}, []string{"NoKey is 7"}},
		{"an overflowing limit", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: limiter.PerSecond(1 << 62)}}},
			[]string{`Rules[0] "a": limiter: Events is 4611686018427387904`}},
		{"an unknown algorithm", middleware.Config{Rules: []middleware.Rule{{Name: "a", Limit: valid.With(200)}}},
			[]string{"Algorithm is 200"}},
		{"all at once", middleware.Config{Headers: 9, Rules: []middleware.Rule{{NoKey: 7}, {Name: "b"}}},
			[]string{"Config.Headers", "Rules[0]", "NoKey is 7", `Rules[1] "b"`}},
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

func TestAConfigCanBeChangedAfterNew(t *testing.T) {
	tiers := middleware.Tiers{"premium": limiter.PerHour(2)}
	rules := []middleware.Rule{{Name: "a", Limit: limiter.PerHour(1), Tiers: tiers}}
	l, err := middleware.New(middleware.Config{Rules: rules})
	require.NoError(t, err)
	rules[0] = middleware.Rule{}
	delete(tiers, "premium")
	w := serve(l.Handler(ok), request().WithContext(middleware.WithTier(t.Context(), "premium")))
	assert.Equal(t, "2", w.Header().Get("X-RateLimit-Limit"))
}
