package rls

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

func imported(text string) (*Imported, error) {
	return Import([]Source{{"old.yaml", []byte(text)}})
}

// found is the node of envoyproxy/ratelimit's tree for these entries, as that service walks it: a
// value before none at each level, and never back.
func found(nodes []sourceNode, entries []rules.Entry) *sourceNode {
	var next *sourceNode
	for i := range nodes {
		n := &nodes[i]
		if n.Key == entries[0].Key && (n.Value == entries[0].Value || n.Value == "" && next == nil) {
			next = n
		}
	}
	if next == nil || len(entries) == 1 {
		return next
	}
	return found(next.Descriptors, entries[1:])
}

func TestAnImportedFileLimitsAsTheTreeDid(t *testing.T) {
	var number uint32
	var draw func(t *rapid.T, depth int) []sourceNode
	draw = func(t *rapid.T, depth int) (nodes []sourceNode) {
		seen := map[string]bool{}
		for range rapid.IntRange(1, 4).Draw(t, "nodes") {
			n := sourceNode{Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), Value: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value")}
			if seen[n.is()] {
				continue
			}
			seen[n.is()] = true
			switch rapid.IntRange(0, 3).Draw(t, "limit") {
			case 0:
				n.RateLimit = &sourceLimit{Unlimited: true}
			case 1, 2:
				number++
				n.RateLimit = &sourceLimit{RequestsPerUnit: number, Unit: "hour"}
				n.ShadowMode = rapid.Bool().Draw(t, "shadow")
			}
			if depth > 1 {
				n.Descriptors = draw(t, depth-1)
			}
			nodes = append(nodes, n)
		}
		return nodes
	}
	some := rapid.Custom(func(t *rapid.T) []rules.Entry {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rules.Entry {
			return rules.Entry{Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), Value: rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(t, "value")}
		}), 1, 4).Draw(t, "entries")
	})
	rapid.Check(t, func(t *rapid.T) {
		number = 0
		tree := draw(t, 3)
		text, err := yaml.Marshal(sourceRoot{Domain: "shop", Descriptors: tree})
		require.NoError(t, err)
		got, err := imported(string(text))
		if number == 0 {
			require.ErrorContains(t, err, "no limit can be translated")
			return
		}
		require.NoError(t, err, "%s", text)
		assert.Empty(t, got.Lost)
		r, err := rules.Parse(got.Text, rules.Options{})
		require.NoError(t, err)
		store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
		table, err := newTable(r, store)
		require.NoError(t, err)
		for range 20 {
			entries := some.Draw(t, "asked")
			descriptor := of()
			for _, e := range entries {
				descriptor.Entries = append(descriptor.Entries, of(e.Key, e.Value).Entries...)
			}
			want := found(tree, entries)
			l, _, err := table.find("shop", descriptor)
			require.NoError(t, err)
			if !want.isLimited() {
				assert.True(t, l == nil || l.shadow && l.quotas[0].Limit() == unlimited, "%v\n%s", entries, got.Text)
				continue
			}
			require.NotNil(t, l, "%v\n%s", entries, got.Text)
			assert.Equal(t, want.limit(), l.quotas[0].Limit(), "%v\n%s", entries, got.Text)
			assert.Equal(t, want.ShadowMode, l.shadow)
		}
	})
}

func TestImportNamesWhatItCannotKeep(t *testing.T) {
	got, err := imported(`
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: Month, requests_per_unit: 9, name: users}, detailed_metric: true}
  - {key: user, value: "no", rate_limit: {unit: second, requests_per_unit: 0, name: users, replaces: [{name: others}]}}
  - {key: user, value: "bot*", share_threshold: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: user, value: 7, rate_limit: {unit: second, requests_per_unit: 4294967295}}
  - {key: user, value: "jürgen \"x\"\n", quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: user, value: admin}
`)
	require.NoError(t, err)
	assert.Equal(t, []string{
		`"shop/user=no": requests_per_unit 0, which refuses everything; it is 1`,
		`"shop/user=no": replaces "others"; both limits apply`,
		`"shop/user=bot*": a value that ends with *, and all below it; limits without a value apply in its place`,
		`"shop/user=7": 4294967295 requests per second; it is 10000000/1s fixed-window`,
	}, got.Lost)
	assert.Equal(t, []string{
		`"shop/user": its metrics by value; metrics go by the rule's name`,
		`"shop/user=jürgen \"x\"\n": quota_mode's metadata about who is over the limit; it is in shadow`,
		`"shop/user=no": the name "users", which another limit has too`,
	}, got.Notes)
	for _, lost := range append(got.Lost, got.Notes...) {
		assert.Contains(t, string(got.Text), "# not kept: "+lost+"\n")
	}
	_, text, _ := strings.Cut(string(got.Text), "version")
	assert.Equal(t, `: 1
descriptors:
  - {domain: shop, entries: [{key: user}], name: users, limit: 9/30d fixed-window}
  - {domain: shop, entries: [{key: user, value: "no"}], limit: 1/1s fixed-window}
  - {domain: shop, entries: [{key: user, value: "7"}], limit: 10000000/1s fixed-window}
  - {domain: shop, entries: [{key: user, value: "jürgen \"x\"\n"}], name: "descriptor 4", limit: 1/1d fixed-window, mode: shadow}
  - {domain: shop, entries: [{key: user, value: admin}], limit: 10000000/1s fixed-window, mode: shadow} # unlimited
`, text)
}

func TestImportRefusesWhatEnvoyproxyRatelimitRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"version: 1\n":    "version",
		"descriptors: []": "old.yaml: domain is missing",
		"domain: shop":    "no limit can be translated",
		"domain: shop\ndescriptors: [{value: a}]":                                                          `old.yaml: "shop/": key is missing`,
		"domain: shop\ndescriptors: [{key: a}, {key: a}]":                                                  `"shop/a" stands twice`,
		"domain: shop\ndescriptors: [{key: a, descriptors: [{key: b, value: c}, {key: b, value: c}]}]":     `"shop/a,b=c" stands twice`,
		"domain: shop\ndescriptors: [{key: a, rate_limit: {requests_per_unit: 5}}]":                        `"shop/a": unit is ""`,
		"domain: shop\ndescriptors: [{key: a, rate_limit: {requests_per_unit: 5, unit: fortnight}}]":       `"shop/a": unit is "fortnight"`,
		"domain: shop\ndescriptors: [{key: a, rate_limit: {requests_per_unit: -5, unit: day}}]":            "old.yaml: ",
		"domain: shop\ndescriptors: [{key: a, rate_limit: {unlimited: true, unit: day}}]":                  `"shop/a": unlimited has no unit`,
		"domain: shop\ndescriptors: [{key: a, share_threshold: true}]":                                     `"shop/a": share_threshold`,
		"domain: shop\ndescriptors: [{key: a, ratelimit: {unit: day}}]":                                    "ratelimit",
		"domain: shop\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n---\nb: c ": "old.yaml: ",
	} {
		_, err := imported(text)
		assert.ErrorContains(t, err, want, text)
	}
	_, err := Import([]Source{{"a.yaml", []byte("domain: shop")}, {"b.yaml", []byte("domain: shop")}})
	assert.ErrorContains(t, err, `b.yaml: there is another file with the domain "shop"`)
}
