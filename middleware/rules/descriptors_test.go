package rules_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

const shop = `
version: 1
descriptors:
  - {domain: shop, entries: [{key: kind, value: checkout}, {key: user}], limit: 5/m}
  - {domain: shop, entries: {key: user}, name: users, limits: [5/s, 9/h], mode: shadow, on_outage: open, when: after}
  - {domain: shop, entries: {key: gone}, limit: 1/s, mode: "off"}
`

func TestDescriptorsAreLimitsOfTheirEntries(t *testing.T) {
	r, err := rules.Parse([]byte(shop), rules.Options{})
	require.NoError(t, err)
	assert.Equal(t, []rules.Descriptor{{
		Domain: "shop", Entries: []rules.Entry{{"kind", "checkout"}, {"user", ""}},
		Rule: middleware.Rule{Name: "shop/kind=checkout,user", Limit: limiter.PerMinute(5)},
	}, {
		Domain: "shop", Entries: []rules.Entry{{"user", ""}}, After: true,
		Rule: middleware.Rule{Name: "users", Limit: limiter.All(limiter.PerSecond(5), limiter.PerHour(9)), Mode: middleware.Shadow, OnOutage: limiter.FailOpen},
	}}, r.Descriptors())
	assert.Empty(t, r.Config().Rules, "a program of HTTP ignores them")
}

func TestDiffKnowsDescriptorsByTheirEntries(t *testing.T) {
	before, err := rules.Parse([]byte(shop), rules.Options{})
	require.NoError(t, err)
	after, err := rules.Parse([]byte(`
version: 1
descriptors:
  - {domain: shop, entries: {key: user}, name: users, limits: [5/s, 9/h], mode: shadow, on_outage: open}
  - {domain: shop, entries: [{key: kind, value: checkout}, {key: user}], limit: 6/m}
`), rules.Options{})
	require.NoError(t, err)
	var said []string
	for _, c := range rules.Diff(before, after) {
		said = append(said, c.String())
	}
	assert.Equal(t, []string{
		`descriptors."shop/gone": mode off → none`,
		`descriptors."shop/kind=checkout,user".limit: 5/1m → 6/1m; what was used stays used`,
		`descriptors."shop/user".when.charge: after → before`,
	}, said)
}

// Of descriptors that match the same entries, the one with the earliest value goes first.
func TestTheExactnessOfDescriptorsIsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := []rules.Entry{{"a", "1"}, {"b", "2"}, {"c", "3"}}
		draw := func(label string) rules.Descriptor {
			d := rules.Descriptor{Entries: slices.Clone(given)}
			for i, has := range rapid.SliceOfN(rapid.Bool(), len(given), len(given)).Draw(t, label) {
				if !has {
					d.Entries[i].Value = ""
				}
			}
			return d
		}
		p, q := draw("one"), draw("other")
		assert.True(t, p.Matches(given) && q.Matches(given))
		assert.Equal(t, p.CompareExactness(&q), -q.CompareExactness(&p))
		assert.Equal(t, slices.Equal(p.Entries, q.Entries), p.CompareExactness(&q) == 0)
		first := slices.IndexFunc(given, func(e rules.Entry) bool {
			i := slices.Index(given, e)
			return p.Entries[i] != q.Entries[i]
		})
		if first >= 0 {
			assert.Equal(t, p.Entries[first].Value != "", p.CompareExactness(&q) < 0)
		}
		assert.False(t, p.Matches(given[:2]), "fewer entries")
		assert.False(t, p.Matches(append(slices.Clone(given), rules.Entry{Key: "d"})), "more entries")
	})
}
