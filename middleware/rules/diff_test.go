package rules_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/race"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

func parsed(t require.TestingT, text string) *rules.Rules {
	r, err := rules.Parse([]byte(text), rules.Options{Overload: shed.FromRules})
	require.NoError(t, err, text)
	return r
}

// says is what a diff says, a line for each change.
func says(changes []rules.Change) (lines []string) {
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	return lines
}

// Each entry of testdata/diffs.txt is two files, and a line (>) for each change. To write the lines
// anew: WEIR_UPDATE=1 go test ./middleware/rules -run ADiffSays
func TestADiffSaysWhatChangesForWhichRequests(t *testing.T) {
	t.Parallel()
	const path = "testdata/diffs.txt"
	text, found := readText(t, path), ""
	for of := range strings.SplitSeq(strings.TrimPrefix(text, "=== "), "\n=== ") {
		name, files, _ := strings.Cut(of+"\n", "\n")
		files, _, _ = strings.Cut(files, "> ")
		one, other, _ := strings.Cut(files, "---\n")
		before, after := parsed(t, one), parsed(t, other)
		changes := rules.Diff(before, after)
		found += "=== " + name + "\n" + strings.TrimSuffix(files, "\n") + "\n"
		for _, change := range changes {
			found += "> " + change.String() + "\n"
		}
		assert.NotContains(t, fmt.Sprint(changes), "secret", "no key is quoted")
		assert.Equal(t, len(changes) == 0, len(rules.Diff(after, before)) == 0, "%s, the other way", name)
	}
	if os.Getenv("WEIR_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(found), 0o644))
		return
	}
	require.Equal(t, text, found)
}

func TestADiffKnowsWhatIsInFilesOfBans(t *testing.T) {
	t.Parallel()
	loaded := func(bans string) *rules.Rules {
		return load(t, map[string]string{"limits.yaml": "version: 1\nban: {file: bans.txt}\n", "bans.txt": bans}, rules.Options{})
	}
	a, b := loaded("user:1\n"), loaded("user:2\n")
	assert.Empty(t, rules.Diff(a, loaded("user:1\n")))
	assert.Equal(t, []string{"ban: file bans.txt → bans.txt, with other contents"}, says(rules.Diff(a, b)))
	assert.NotEqual(t, a.Version(), b.Version())
}

// everyField has each field that a file can have, but those that exclude each other.
const everyField = `
version: 1
mode: enforce
proxies: {trusted: [10.0.0.0/8], unix_socket: true, ipv6_prefix: 56}
ban: {cidrs: [198.51.100.0/24], keys: ["user:7"], status: 429}
allow: {cidrs: [192.0.2.0/24], keys: ["user:8"], routes: ["GET /healthz"], preflights: true}
global: {limit: 9000/s, concurrency: {max: 500, queue: 5, max_wait: 2s}, key: global}
tiers:
  free: {limit: 100/h, key: user}
  trial: {limit: 10/h}
  premium: [{requests: 1000, window: 1h, algorithm: token_bucket, burst: 50}, {name: second, limit: 5/s, key: ip}]
endpoints:
  "GET /a":
    name: a
    limit: 30/m
    tiers: {free: 10/m, premium: {limit: 40/m, concurrency: 3}}
    overrides: {"user:1": 500/s}
    key: user|ip
    no_key: skip
    cost: {header: X-Cost, per: 3, missing: 2, max: 9}
    on_outage: closed
    mode: shadow
    refusal: {status: 503, type: "https://example.org/a", title: A, message: "B", jitter: 20%}
    soft: {at: 80%}
  "POST /b":
    limits: [10/s, 1000/h]
    counts: [401, 403]
    when: {charge: after, header: {X-Plan: beta}, query: {debug: "1"}}
    escalate: {after: 3, within: 10m, ban: 1m, factor: 3, max: 12h, of: outcomes}
  "POST /c": {limit: 30/m, cost: {units: 5, settle: true}}
  "POST /d": {mode: deny, refusal: {status: 503, retry_after: 1h}}
  "POST /e": {mode: off, limit: 5/s, key: user}
default: {limit: 100/m}
overload: {priority: [free, premium], max_wait: 1s, per_route: true, exempt: [/live]}
soft: {at: 50%}
headers: {send: both, limit: X-Rate, reset: delta}
refusal: {message: "C"}
`

// A leaf of a document, and how to have another value there.
type leaf struct {
	path string
	node *yaml.Node
}

func leavesOf(n *yaml.Node, path string) (all []leaf) {
	switch n.Kind {
	case yaml.DocumentNode:
		return leavesOf(n.Content[0], "")
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			all = append(all, leavesOf(n.Content[i+1], path+"/"+n.Content[i].Value)...)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			all = append(all, leavesOf(item, path+"/"+strconv.Itoa(i))...)
		}
	default:
		all = append(all, leaf{path, n})
	}
	return all
}

// others are texts that mean something else than this one wherever they can be read.
var others = []string{
	"true", "false", "7", "11", "418", "403", "503", "61", "3/h", "4/d burst 9", "17%", "3h", "7ms", "enforce", "shadow", "deny", "off", "local", "open", "ip", "method",
	"bad_request", "before", "after", "legacy", "both", "unix", "sliding_log", "leaky_bucket", "user", "trial", "refusals", "free", "premium", "9999", "203.0.113.0/24", "user:99", "/other", "https://example.org/other", "X-Other", "!5xx",
}

func isDigit(text string) bool { return text[0] >= '0' && text[0] <= '9' }

// Whatever is changed in a file, a diff says so.
func TestEveryChangeOfALeafIsInTheDiff(t *testing.T) {
	t.Parallel()
	before := parsed(t, everyField)
	var root yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(everyField), &root))
	for i, l := range leavesOf(&root, "") {
		if l.path == "/version" || i%race.Draws(1, 12) != 0 {
			continue
		}
		was, tag, changed := l.node.Value, l.node.Tag, 0
		for _, other := range others {
			if changed == 2 || other == was || isDigit(other) != isDigit(was) {
				continue
			}
			l.node.Value, l.node.Tag = other, ""
			text, err := yaml.Marshal(&root)
			require.NoError(t, err)
			after, err := rules.Parse(text, rules.Options{Overload: shed.FromRules})
			if err != nil {
				continue
			}
			changed++
			changes := rules.Diff(before, after)
			assert.NotEmpty(t, changes, "%s: %s in place of %s", l.path, other, was)
			for _, c := range changes {
				was, is, ok := strings.Cut(c.Text, " → ")
				assert.True(t, ok && was != is, c)
			}
		}
		l.node.Value, l.node.Tag = was, tag
		assert.True(t, changed > 0 || l.path == "/endpoints/POST /d/mode", "nothing else can stand at %s", l.path)
	}
}

// A change of one limit in a file of n overrides, tiers or rules: twice as many cost twice as much memory,
// not four times as much.
func TestAReloadCostsInProportionToTheFile(t *testing.T) {
	for name, line := range map[string]string{
		"overrides": "    user:%d: %d/h\n",
		"tiers":     "    tier%d: %d/h\n",
	} {
		bytes := func(n int) float64 {
			text := func(limit int) string {
				var b strings.Builder
				b.WriteString("version: 1\ndefault:\n  limit: 5/s\n  key: user\n  " + name + ":\n")
				for i := range n {
					fmt.Fprintf(&b, line, i, limit)
				}
				return b.String()
			}
			before, after := parsed(t, text(1000)), parsed(t, text(2000))
			var from, to runtime.MemStats
			runtime.ReadMemStats(&from)
			assert.NotEmpty(t, rules.Diff(before, after))
			runtime.ReadMemStats(&to)
			return float64(to.TotalAlloc - from.TotalAlloc)
		}
		assert.Less(t, bytes(2000), 3*bytes(1000), name)
	}
}
