package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
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

func TestADiffSaysWhatChangesForWhichRequests(t *testing.T) {
	t.Parallel()
	const search = "version: 1\nendpoints: {\"GET /search\": {limit: 30/m, tiers: {free: 10/m}}}\n"
	for name, test := range map[string]struct {
		before, after string
		want          []string
	}{
		"a limit": {search, strings.Replace(search, "30/m", "60/m", 1), []string{
			`endpoints."GET /search".limit: 30/1m → 60/1m; what was used stays used`,
		}},
		"a tier's": {search, strings.Replace(search, "10/m", "20/m", 1), []string{
			`endpoints."GET /search".tiers.free.limit: 10/1m → 20/1m; what was used stays used`,
		}},
		"a tier's own": {search, strings.Replace(search, ", tiers: {free: 10/m}", "", 1), []string{
			`endpoints."GET /search".tiers.free.limit: 10/1m → none; what was used begins anew`,
		}},
		"a limit in other words": {search, strings.Replace(search, "limit: 30/m", "requests: 30, window: 60", 1), nil},
		"a key with spaces":      {"version: 1\ndefault: {limit: 9/s, key: user|ip}\n", "version: 1\ndefault: {limit: 9/s, key: [user | ip]}\n", nil},
		"a default in words":     {search, strings.Replace(search, "30/m", "30/m, no_key: share, when: before, mode: enforce, on_outage: local, key: ip", 1), nil},
		"a key and a limit": {search, strings.Replace(search, "30/m", "60/m, key: user|ip", 1), []string{
			`endpoints."GET /search".key: ip → user|ip; what was used stays used where the key is the same`,
			`endpoints."GET /search".limit: 30/1m → 60/1m; what was used stays used where the key is the same`,
		}},
		"another key": {search, strings.Replace(search, "30/m", "30/m, key: user", 1), []string{
			`endpoints."GET /search".key: ip → user; what was used begins anew`,
		}},
		"a part of a key": {
			"version: 1\ndefault: {limit: 9/s, key: [user|ip, method]}\n", "version: 1\ndefault: {limit: 9/s, key: [user, method]}\n",
			[]string{
				"default.key: user|ip and method → user and method; what was used stays used where the key is the same",
			},
		},
		"a name": {search, strings.Replace(search, "limit", "name: search, limit", 1), []string{
			`endpoints."GET /search".name: GET /search → search; what was used begins anew`,
		}},
		"a place": {
			"version: 1\nendpoints: {/a: {name: one, limit: 5/s}}\n", "version: 1\nendpoints: {/b: {name: one, limit: 5/s}}\n",
			[]string{
				`endpoints."/a": 5/1s, key ip → none`,
				`endpoints."/b": none → 5/1s, key ip; what was used stays used`,
			},
		},
		"come": {"version: 1\ndefault: 100/m\n", "version: 1\ndefault: 100/m\nendpoints: {\"GET /a/{id}\": 5/s}\n", []string{
			`endpoints."GET /a/{id}": none → 5/1s, key ip`,
		}},
		"gone": {"version: 1\nglobal: 9/s\nendpoints: {/a: 5/s}\n", "version: 1\nglobal: 9/s\n", []string{
			`endpoints."/a": 5/1s, key ip → none`,
		}},
		"modes": {"version: 1\ndefault: {limit: 100/m, mode: shadow}\nendpoints: {/a: {limit: 5/s, mode: off}}\n", "version: 1\nmode: shadow\ndefault: 100/m\nendpoints: {/a: 5/s}\n", []string{
			"mode: enforce → shadow",
			`endpoints."/a".mode: off → enforce`,
			"default.mode: shadow → enforce",
		}},
		"off in both": {"version: 1\nglobal: 9/s\ndefault: {limit: 100/m, mode: off}\n", "version: 1\nglobal: 9/s\ndefault: {limit: 200/m, mode: off}\n", []string{
			"default.limit: 100/1m → 200/1m",
		}},
		"a window that is off": {"version: 1\nglobal: 9/s\ndefault: {requests: 5, window: 60, mode: off}\n", "version: 1\nglobal: 9/s\ndefault: {requests: 5, window: month Europe/Berlin, mode: off}\n", []string{
			"default.limit: 5/1m → 5/month Europe/Berlin",
		}},
		"the calendar": {"version: 1\ndefault: 10_000/month\n", "version: 1\ndefault: 10_000/month Europe/Berlin\n", []string{
			"default.limit: 10000/month → 10000/month Europe/Berlin; what was used stays used",
		}},
		"several rules": {"version: 1\nendpoints: {/a: [5/s, {limit: 9/s, key: user}]}\n", "version: 1\nendpoints: {/a: [5/s, {limit: 8/s, key: user}]}\n", []string{
			`endpoints."/a"."/a by user".limit: 9/1s → 8/1s; what was used stays used`,
		}},
		"several limits": {"version: 1\ndefault: {limits: [10/s, 1000/h]}\n", "version: 1\ndefault: {limits: [10/s, 2000/h]}\n", []string{
			"default.limit: 10/1s, 1000/1h → 10/1s, 2000/1h; what was used stays used",
		}},
		"another window": {"version: 1\ndefault: {limits: [10/s, 1000/h]}\n", "version: 1\ndefault: {limits: [10/s, 1000/h, 9000/d]}\n", []string{
			"default.limit: 10/1s, 1000/1h → 10/1s, 1000/1h, 9000/1d; what was used stays used, but of windows that are new or the first now",
		}},
		"the first is gone": {"version: 1\ndefault: {limits: [10/s, 1000/h]}\n", "version: 1\ndefault: 1000/h\n", []string{
			"default.limit: 10/1s, 1000/1h → 1000/1h; what was used stays used, but of windows that are new or the first now",
		}},
		"the last is gone": {"version: 1\ndefault: {limits: [10/s, 1000/h]}\n", "version: 1\ndefault: 10/s\n", []string{
			"default.limit: 10/1s, 1000/1h → 10/1s; what was used stays used",
		}},
		"bans": {"version: 1\nban: {cidrs: [192.0.2.0/24, 203.0.113.7], keys: [\"user:secret\"]}\n", "version: 1\nban: {cidrs: [203.0.113.7, 198.51.100.7], keys: [\"user:other\", \"user:third\"]}\n", []string{
			"ban.cidrs: 192.0.2.0/24 → 198.51.100.7/32",
			"ban.keys: 1 key → 2 keys",
		}},
		"overrides": {"version: 1\ndefault: {limit: 5/s, key: user, overrides: {\"user:1\": 9/s, \"user:2\": 9/s}}\n", "version: 1\ndefault: {limit: 5/s, key: user, overrides: {\"user:1\": 10/s, \"user:2\": 10/s, \"user:3\": 7/s}}\n", []string{
			"default.overrides: 2 keys → 3 keys; what was used stays used",
		}},
		"escalation": {"version: 1\ndefault: 5/s\n", "version: 1\ndefault: {limit: 5/s, escalate: {after: 3, within: 10m, ban: 1m}}\n", []string{
			"default.escalate.after: none → 3",
			"default.escalate.within: none → 10m0s",
			"default.escalate.ban: none → 1m0s",
		}},
		"the rest": {
			"version: 1\nglobal: 9/s\nproxies: {trusted: [10.0.0.0/8]}\noverload: {}\nheaders: {reset: delta}\n",
			"version: 1\nglobal: {limit: 9/s, concurrency: {max: 5, queue: 2, max_wait: 1s}, soft: 80%}\noverload: {priority: [a, b], max_wait: 0.3s}\nrefusal: {status: 503}\nsoft: 50%\ntiers: {a: 1/s, b: 1/s}\n", []string{
				"proxies.trusted: 10.0.0.0/8 → none",
				"overload.priority: all are equal → a, b",
				"soft.at: off → 50%",
				"headers.reset: delta → unix",
				"refusal.status: 429 → 503",
				"global.limit: 9/1s → 9/1s, 5 at once, 2 more wait up to 1s; what was used stays used",
				"global.soft.at: off → 80%",
				"tiers.a: none → 1/1s, key user|ip",
				"tiers.b: none → 1/1s, key user|ip",
			},
		},
	} {
		changes := rules.Diff(parsed(t, test.before), parsed(t, test.after))
		assert.Equal(t, test.want, says(changes), name)
		assert.NotContains(t, fmt.Sprint(changes), "secret", "no key is quoted")
		assert.Equal(t, len(changes) == 0, len(rules.Diff(parsed(t, test.after), parsed(t, test.before))) == 0, "%s, the other way", name)
	}
}

func TestADiffKnowsWhatIsInFilesOfBans(t *testing.T) {
	t.Parallel()
	load := func(bans string) *rules.Rules {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte("version: 1\nban: {file: bans.txt}\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "bans.txt"), []byte(bans), 0o600))
		r, err := rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
		require.NoError(t, err)
		return r
	}
	a, b := load("user:1\n"), load("user:2\n")
	assert.Empty(t, rules.Diff(a, load("user:1\n")))
	assert.Equal(t, []string{"ban.file: bans.txt → bans.txt, with other contents"}, says(rules.Diff(a, b)))
	assert.NotEqual(t, a.Version(), b.Version())
}

// everyField has each field that a file can have, but those that exclude each other.
const everyField = `
version: 1
mode: enforce
proxies: {trusted: [10.0.0.0/8], unix_socket: true, ipv6_prefix: 56}
ban: {cidrs: [198.51.100.0/24], keys: ["user:7"], status: 429}
allow: {cidrs: [192.0.2.0/24], keys: ["user:8"], routes: ["GET /healthz"], preflights: true}
global: {limit: 9000/s, concurrency: {max: 500, queue: 5, max_wait: 2s}}
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
    refusal: {status: 503, type: "https://example.org/a", title: A, message: "B"}
    soft: {at: 80%}
  "POST /b":
    limits: [10/s, 1000/h]
    counts: [401, 403]
    when: after
    escalate: {after: 3, within: 10m, ban: 1m, factor: 3, max: 12h, of: outcomes}
  "POST /c": {limit: 30/m, cost: {units: 5, settle: true}}
  "POST /d": {mode: deny, refusal: {status: 503, retry_after: 1h}}
  "POST /e": {mode: off, limit: 5/s, key: user}
default: {limit: 100/m}
overload: {priority: [free, premium], max_wait: 1s, per_route: true, exempt: [/live]}
soft: {at: 50%}
headers: {send: legacy, limit: X-Rate, reset: delta}
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
				assert.NotEqual(t, c.Old, c.New, c)
			}
		}
		l.node.Value, l.node.Tag = was, tag
		assert.True(t, changed > 0 || l.path == "/endpoints/POST /d/mode", "nothing else can stand at %s", l.path)
	}
}
