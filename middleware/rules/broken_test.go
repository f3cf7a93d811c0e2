package rules_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// problemsOf is what is wrong with a file, a line each.
func problemsOf(t testing.TB, err error) []string {
	t.Helper()
	var wrong *rules.Error
	require.ErrorAs(t, err, &wrong)
	lines := make([]string, len(wrong.Problems))
	for i, p := range wrong.Problems {
		lines[i] = p.String()
	}
	return lines
}

func TestABrokenFileIsRefusedWithAllThatIsWrongWithItAndWhere(t *testing.T) {
	for _, broken := range brokenFiles {
		t.Run(broken.name, func(t *testing.T) {
			got, err := rules.Parse([]byte(broken.text), rules.Options{})
			assert.Nil(t, got)
			require.Equal(t, broken.problems, problemsOf(t, err))
			require.Equal(t, strings.Join(broken.problems, "\n"), err.Error())
		})
	}
}

func TestTwentyProblemsAreToldAtOnceInTheOrderOfTheFile(t *testing.T) {
	const text = `version: 3
mode: loud
proxies: {trusted: [10.0.0.0/8, localhost], hops: 2}
ban: {cidrs: [198.51.100.0/99], keys: [nobody], status: 404, fil: banned.txt}
allow: {routes: [healthz]}
global: 10/fortnight
tiers:
  free: {requests: 100}
endpoints:
  "GET /a": {limit: 3/s, window: 1s}
  search: 3/s
  "POST /b": {limit: 3/s, key: [ip, nobody], cost: {per: 3}}
  "POST /c": {limit: 3/s, escalate: {after: 0, within: 1m, ban: 1m}}
  "POST /c": 3/s
default: {limit: 3/s, algorithm: fixed_window, burst: 3, tiers: {fre: 3/s}, on_outage: shut}
soft: 120%
`
	_, err := rules.Parse([]byte(text), rules.Options{})
	want := []string{
		`1:10: version: is 3: this program reads version 1`,
		`2:7: mode: "loud" is not`,
		`3:10: proxies: has trusted and hops: `,
		`3:33: proxies.trusted.1: it is neither`,
		`4:15: ban.cidrs.0: it is neither`,
		`4:40: ban.keys.0: is neither`,
		`4:57: ban.status: is 404: `,
		`4:62: ban.fil: unknown field "fil": did you mean "file"?`,
		`5:18: allow.routes.0: pattern "healthz" has no path`,
		`6:9: global: parse "10/fortnight": `,
		`8:20: tiers.free.requests: needs a window`,
		`10:13: endpoints."GET /a": has limit, and requests or window too`,
		`11:3: endpoints.search: pattern "search" has no path`,
		`12:37: endpoints."POST /b".key.1: the key is not one of `,
		`12:52: endpoints."POST /b".cost: has neither units nor a header`,
		`13:45: endpoints."POST /c".escalate.after: is 0: `,
		`14:3: endpoints."POST /c": duplicate key: the first is on line 13`,
		`15:55: default.burst: burst is 3: fixed-window has no burst`,
		`15:66: default.tiers.fre: the tier "fre" is never used: did you mean "free"?`,
		`15:88: default.on_outage: outage policy "shut" is not`,
		`16:7: soft: "120%" is not a percentage`,
	}
	got := problemsOf(t, err)
	require.Len(t, got, len(want), "%s", err)
	for i := range want {
		require.True(t, strings.HasPrefix(got[i], want[i]), "want %s...\ngot  %s", want[i], got[i])
	}
}

func TestMoreProblemsThanPeopleReadAreCounted(t *testing.T) {
	text := "version: 1\nendpoints:\n" + strings.Repeat("  x: 3/s\n", 150)
	_, err := rules.Parse([]byte(text), rules.Options{})
	problems := problemsOf(t, err)
	require.Len(t, problems, 101)
	require.Regexp(t, `^\d+:\d+: and \d+ problems more, from here on$`, problems[len(problems)-1])
}

func TestProblemsOfAFileOfBansHaveItsNameAndLines(t *testing.T) {
	for name, of := range map[string]struct {
		banned string
		want   []string
	}{
		"lines that are neither": {
			"192.0.2.1\n# a comment\n\n  everybody  # all of them\n10.0.0.0/33\nuser:42\r\n\theader:x-a:b\n0.0.0.0/0\n",
			[]string{
				`banned.txt:4:3: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
				`banned.txt:5:1: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
				`banned.txt:7:2: is a key of kind header that no request can have: want something like header:X-Tenant:acme`,
				`banned.txt:8:1: it takes in everyone, or nearly; networks wider than /8 are refused`,
			},
		},
		"nothing but bytes": {"\x00\xff\n", []string{
			`banned.txt:1:1: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
		}},
	} {
		dir := write(t, map[string]string{"limits.yaml": "version: 1\nban: {file: banned.txt}\n", "banned.txt": of.banned})
		_, err := rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
		problems := problemsOf(t, err)
		for i := range problems {
			problems[i] = strings.TrimPrefix(problems[i], dir+"/")
		}
		require.Equal(t, of.want, problems, name)
	}
}

func TestAFileOfBansThatIsNoneIsRefusedBeforeItCostsMuch(t *testing.T) {
	dir := write(t, map[string]string{
		"limits.yaml": "version: 1\nban: {file: banned.txt}\n",
		"banned.txt":  strings.Repeat("x\n", 4<<20),
	})
	_, err := rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
	require.LessOrEqual(t, len(problemsOf(t, err)), 101)

	require.NoError(t, os.Truncate(filepath.Join(dir, "banned.txt"), 32<<20+1))
	_, err = rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
	require.Equal(t, []string{dir + "/limits.yaml:2:13: ban.file: can't be read: " + dir + "/banned.txt is larger than 32 MiB"}, problemsOf(t, err))
}

func TestAFileOfBansThatCantBeReadIsAProblemOfTheFileThatNamesIt(t *testing.T) {
	dir := write(t, nil)
	for name, want := range map[string]string{
		"missing.txt": "2:13: ban.file: can't be read: stat " + dir + "/missing.txt: no such file or directory",
		".":           "2:13: ban.file: can't be read: " + dir + " is not a regular file",
		`""`:          "2:13: ban.file: is empty: name a file, or leave it out",
	} {
		path := filepath.Join(dir, "limits.yaml")
		require.NoError(t, os.WriteFile(path, []byte("version: 1\nban: {file: "+name+"}\n"), 0o600))
		_, err := rules.Load(path, rules.Options{})
		require.Equal(t, []string{path + ":" + want}, problemsOf(t, err))
	}
}

func TestRulesThatCantBeReadAreAnError(t *testing.T) {
	dir := write(t, nil)
	_, err := rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = rules.Load(dir, rules.Options{})
	require.EqualError(t, err, "rules: "+dir+" is not a regular file")
	path := filepath.Join(dir, "large.yaml")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20+1), 0o600))
	_, err = rules.Load(path, rules.Options{})
	require.EqualError(t, err, "rules: "+path+" is larger than 1 MiB")
}

func TestRulesOfTheApplicationAndOfTheFileHaveDifferentNames(t *testing.T) {
	o := rules.Options{Config: middleware.Config{Rules: []middleware.Rule{{Name: "default", Limit: limiter.PerSecond(3)}}}}
	_, err := rules.Parse([]byte("version: 1\ndefault: 3/s\n"), o)
	require.Equal(t, []string{
		`2:1: default: there is another rule named "default", among the application's own: give one of them a name of its own`,
	}, problemsOf(t, err))
	_, err = rules.Parse([]byte("version: 1\ndefault: {limit: 3/s, name: others}\n"), o)
	require.NoError(t, err)
}

func TestATierThatTheApplicationDoesNotHaveIsAProblem(t *testing.T) {
	o := rules.Options{Tiers: []string{"free", "paid"}}
	_, err := rules.Parse([]byte("version: 1\ntiers: {pad: 3/s}\ndefault: {limit: 3/s, tiers: {gold: 3/s, free: 1/s}}\n"), o)
	require.Equal(t, []string{
		`2:9: tiers.pad: the tier "pad" is never used: did you mean "paid"?`,
		`3:31: default.tiers.gold: the tier "gold" is never used: there are free, paid`,
	}, problemsOf(t, err))
}

// What only package middleware can find out is told too, where the file begins.
func TestProblemsOfTheApplicationsConfigAreFound(t *testing.T) {
	o := rules.Options{Config: middleware.Config{Rules: []middleware.Rule{{Name: "mine"}}}}
	_, err := rules.Parse([]byte("version: 1\ndefault: 3/s\n"), o)
	problems := problemsOf(t, err)
	require.Len(t, problems, 1)
	require.True(t, strings.HasPrefix(problems[0], `1:1: Rules[0] "mine": `), problems[0])
}

func TestAnErrorIsOneOfTheFile(t *testing.T) {
	_, err := rules.Parse(nil, rules.Options{})
	require.True(t, errors.As(err, new(*rules.Error)))
	_, err = rules.Parse(nil, rules.Options{Poll: 1})
	require.False(t, errors.As(err, new(*rules.Error)))
}

// brokenFiles have every problem that the package finds in the text of a file.
var brokenFiles = []struct {
	name, text string
	problems   []string
}{
	{"an empty file", ``, []string{
		`1:1: the document is empty`,
	}},
	{"nothing but a version", `version: 1
`, []string{
		`1:1: limits nothing: it has no global, tiers, endpoints, default, overload or ban`,
	}},
	{"no version", `default: 3/s
`, []string{
		`1:1: version: is required, and missing`,
	}},
	{"a file below rate_limits", `rate_limits:
  default: {requests: 3, windw: 60}
  endpoints: {search: 3/s}
`, []string{
		`2:23: default.requests: needs a window, the time that so many requests fit in`,
		`2:26: default.windw: unknown field "windw": did you mean "window"?`,
		`3:15: endpoints.search: pattern "search" has no path: want "/search"`,
	}},
	{"a file below rate_limits of another version", `version: 2
rate_limits: {default: 3/s, version: 1}
`, []string{
		`1:1: version: duplicate key: the first is on line 2`,
	}},
	{"a file of which a part is below rate_limits", `version: 1
rate_limits: {default: 3/s}
global: 9/s
`, []string{
		`2:1: unknown field: want one of version, mode, proxies, ban, allow, global, tiers, endpoints, default, overload, soft, headers, refusal`,
	}},
	{"nothing below rate_limits", `rate_limits: [3/s]
`, []string{
		`1:14: is a list: want a mapping`,
	}},
	{"a version of another format", `version: 2
default: 3/s
`, []string{
		`1:10: version: is 2: this program reads version 1`,
	}},
	{"a version that is no number", `version: one
default: 3/s
`, []string{
		`1:10: version: is text: want a whole number, written in digits: 1000, or 1_000`,
	}},
	{"a version without a value", `version:
default: 3/s
`, []string{
		`1:1: version: has no value`,
	}},
	{"a list where the file should be", `- version: 1
`, []string{
		`1:1: is a list: want a mapping`,
	}},
	{"a field that is mistyped", `version: 1
default: {limit: 3/s, burts: 5}
`, []string{
		`2:23: default.burts: unknown field "burts": did you mean "burst"?`,
	}},
	{"a field that nothing is like", `version: 1
default: 3/s
colour: green
`, []string{
		`3:1: unknown field: want one of version, mode, proxies, ban, allow, global, tiers, endpoints, default, overload, soft, headers, refusal`,
	}},
	{"a field that is there twice", `version: 1
default: 3/s
default: 4/s
`, []string{
		`3:1: default: duplicate key: the first is on line 2`,
	}},
	{"a syntax error", `version: 1
default: {limit: 3/s
`, []string{
		`2:10: syntax: did not find expected ',' or '}', while parsing a flow mapping`,
	}},
	{"a limit that can't be read", `version: 1
default: {limit: 3 per second}
`, []string{
		`2:18: default.limit: parse "3 per second": it does not begin with events/period, such as 100/1m`,
	}},
	{"a limit in short that can't be read", `version: 1
endpoints:
  "GET /search": 30/1x
`, []string{
		`3:18: endpoints."GET /search": parse "30/1x": period "1x" is not a duration such as 10s, 1m, 24h or 30d`,
	}},
	{"a limit of a tier in short that can't be read", `version: 1
default: {limit: 3/s, tiers: {free: 0/s}}
`, []string{
		`2:37: default.tiers.free: parse "0/s": requests is 0: it must be from 1 to 1000000000000`,
	}},
	{"a limit that is a number", `version: 1
default: 100
`, []string{
		`2:10: default: parse "100": it does not begin with events/period, such as 100/1m`,
	}},
	{"a rule that is a list in a list", `version: 1
default: [3/s, [4/s]]
`, []string{
		`2:16: default.1: is a list: want text, or a mapping`,
	}},
	{"rules that are none", `version: 1
default: []
global:
endpoints:
  "GET /a":
`, []string{
		`2:1: default: has no rule: write a limit such as 100/1m, or leave it out`,
		`3:1: global: has no rule: write a limit such as 100/1m, or leave it out`,
		`5:3: endpoints."GET /a": has no rule: write a limit such as 100/1m, or leave it out`,
	}},
	{"several rules of one endpoint", `version: 1
endpoints:
  "POST /login":
    - {limit: 5/m, burts: 3}
    - {limit: 20/h, key: [user, nobody]}
    - {limit: 9/m, key: user}
    - {requests: 9, key: user}
    - {limit: 9/m, name: "POST /login"}
`, []string{
		`4:20: endpoints."POST /login".0.burts: unknown field "burts": did you mean "burst"?`,
		`5:33: endpoints."POST /login".1.key.1: the key is not one of apikey:NAME, bearer, cookie:NAME, fingerprint, global, header:NAME, host, ip, method, path:NAME, query:NAME, route, user`,
		`7:7: endpoints."POST /login".3: there is another rule named "POST /login by user", at endpoints."POST /login".2: give one of them a name of its own`,
		`7:18: endpoints."POST /login".3.requests: needs a window, the time that so many requests fit in`,
		`8:20: endpoints."POST /login".4.name: there is another rule named "POST /login", at endpoints."POST /login".0: give one of them a name of its own`,
	}},
	{"a rule without a limit", `version: 1
default: {key: ip}
`, []string{
		`2:10: default: has no limit: write limit: 100/1m, or requests and window, or concurrency: 5`,
	}},
	{"a tier of a rule without a limit", `version: 1
default: {limit: 3/s, tiers: {free: {}}}
`, []string{
		`2:37: default.tiers.free: has no limit: write limit: 100/1m, or requests and window, or concurrency: 5`,
	}},
	{"both spellings of a limit", `version: 1
default: {limit: 3/s, window: 1s}
`, []string{
		`2:10: default: has limit, and requests or window too: they are two ways to write one thing, keep one`,
	}},
	{"requests without a window", `version: 1
default: {requests: 3}
`, []string{
		`2:21: default.requests: needs a window, the time that so many requests fit in`,
	}},
	{"a window without requests", `version: 1
default: {window: 3s}
`, []string{
		`2:19: default.window: needs requests, how many fit in the window`,
	}},
	{"no requests", `version: 1
default: {requests: 0, window: 1s}
`, []string{
		`2:21: default.requests: is 0: it must be at least 1`,
	}},
	{"more requests than can be counted", `version: 1
default: {requests: 2_000_000_000_000, window: 1h}
`, []string{
		`2:21: default.requests: requests is 2000000000000: it must be from 1 to 1000000000000`,
	}},
	{"more requests than can be, in a limit", `version: 1
default: 100_000_000/s
`, []string{
		`2:10: default: parse "100_000_000/s": requests is 100000000 per 1s: the rate must be at most 10 million per second`,
	}},
	{"requests that are not whole", `version: 1
default: {requests: 1.5, window: 1s}
`, []string{
		`2:21: default.requests: is "1.5": want a whole number, written in digits: 1000, or 1_000`,
	}},
	{"a window that is not a duration", `version: 1
default: {requests: 3, window: soon}
`, []string{
		`2:32: default.window: period "soon" is not a duration such as 10s, 1m, 24h or 30d`,
	}},
	{"a window that is no time at all", `version: 1
default: {requests: 3, window: 0}
`, []string{
		`2:32: default.window: period "0s" is 0s: it must be more than 0 and at most 366 days`,
	}},
	{"a window that is longer than a year", `version: 1
default: {requests: 3, window: 367d}
`, []string{
		`2:32: default.window: period "367d" is 8808h0m0s: it must be more than 0 and at most 366 days`,
	}},
	{"a window that is negative", `version: 1
default: {requests: 3, window: -60}
`, []string{
		`2:32: default.window: period "-60" has a sign`,
	}},
	{"a window of digits that may be octal", `version: 1
default: {requests: 3, window: 010}
`, []string{
		`2:32: default.window: "010" is not a whole number of seconds, nor a duration such as 10s, 1m, 24h or 30d`,
	}},
	{"a window without digits", `version: 1
default: {requests: 3, window: _}
`, []string{
		`2:32: default.window: "_" is not a whole number of seconds, nor a duration such as 10s, 1m, 24h or 30d`,
	}},
	{"an algorithm that is mistyped", `version: 1
default: {limit: 3/s, algorithm: tokn_bucket}
`, []string{
		`2:34: default.algorithm: "tokn_bucket" is not an algorithm: did you mean "token_bucket"?`,
	}},
	{"an algorithm there is not", `version: 1
default: {limit: 3/s, algorithm: magic}
`, []string{
		`2:34: default.algorithm: "magic" is not an algorithm: there are sliding_window, token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_window_counter, sliding_window_log, gcra`,
	}},
	{"two algorithms", `version: 1
default: {limit: 3/s token_bucket, algorithm: fixed_window}
`, []string{
		`2:47: default.algorithm: is fixed-window, but limit says token-bucket: keep one`,
	}},
	{"a burst below one", `version: 1
default: {limit: 3/s, burst: 0}
`, []string{
		`2:30: default.burst: is 0: it must be at least 1`,
	}},
	{"two bursts", `version: 1
default: {limit: 3/s burst 5, burst: 5}
`, []string{
		`2:38: default.burst: is given in limit too: keep one`,
	}},
	{"a burst of what has none", `version: 1
default: {limit: 3/s, algorithm: fixed_window, burst: 5}
`, []string{
		`2:55: default.burst: burst is 5: fixed-window has no burst, only token-bucket and leaky-bucket do`,
	}},
	{"a burst that takes years to come back", `version: 1
default: {requests: 1, window: 1d, burst: 400}
`, []string{
		`2:43: default.burst: burst is 400: at 1 per 24h0m0s it would take more than 366 days to come back`,
	}},
	{"a burst in a limit of what has none", `version: 1
default: 3/s fixed_window burst 5
`, []string{
		`2:10: default: parse "3/s fixed_window burst 5": burst is 5: fixed-window has no burst, only token-bucket and leaky-bucket do`,
	}},
	{"a log that is too long", `version: 1
default: {requests: 10_001, window: 1h, algorithm: sliding_log}
`, []string{
		`2:21: default.requests: requests is 10001: sliding-log remembers every event and takes at most 10000`,
	}},
	{"a key there is not", `version: 1
default: {limit: 3/s, key: [ip, usr]}
`, []string{
		`2:33: default.key.1: the key is not one of apikey:NAME, bearer, cookie:NAME, fingerprint, global, header:NAME, host, ip, method, path:NAME, query:NAME, route, user`,
	}},
	{"a key without its name", `version: 1
default: {limit: 3/s, key: header}
`, []string{
		`2:28: default.key: the key is of kind header and has no name: want something like header:X-Name`,
	}},
	{"a key of what is no header", `version: 1
default: {limit: 3/s, key: "header:X Tenant"}
`, []string{
		`2:28: default.key: the key is of kind header and has a wrong name: it is not the name of a header`,
	}},
	{"a key that is a number", `version: 1
default: {limit: 3/s, key: 5}
`, []string{
		`2:28: default.key: is a number: want text, so put it in quotes`,
	}},
	{"no key in a list", `version: 1
default: {limit: 3/s, key: []}
`, []string{
		`2:28: default.key: names no key: leave it out, or write ip, user and the like`,
	}},
	{"an empty key", `version: 1
default: {limit: 3/s, key: ""}
`, []string{
		`2:28: default.key: the key is not one of apikey:NAME, bearer, cookie:NAME, fingerprint, global, header:NAME, host, ip, method, path:NAME, query:NAME, route, user`,
	}},
	{"a key twice", `version: 1
default: {limit: 3/s, key: [ip, user, ip]}
`, []string{
		`2:39: default.key.2: is in the list twice`,
	}},
	{"what becomes of requests without a key that is not asked for", `version: 1
global: {limit: 3/s, no_key: skip}
`, []string{
		`2:30: global.no_key: needs a key: without one there is one counter for all`,
	}},
	{"what becomes of requests without a key that can't be", `version: 1
default: {limit: 3/s, no_key: skp}
`, []string{
		`2:31: default.no_key: "skp" is not what can be written here: did you mean "skip"?`,
	}},
	{"a cost of nothing", `version: 1
default: {limit: 3/s, cost: 0}
`, []string{
		`2:29: default.cost: is 0: it must be at least 1`,
	}},
	{"a cost that is no number", `version: 1
default: {limit: 3/s, cost: much}
`, []string{
		`2:29: default.cost: "much" is neither a whole number nor a mapping`,
	}},
	{"a cost that is fixed and is not", `version: 1
default: {limit: 3/s, cost: {units: 3, header: Content-Length}}
`, []string{
		`2:29: default.cost: has units and a header: a cost is either fixed or read from a header`,
	}},
	{"a cost of neither kind", `version: 1
default: {limit: 3/s, cost: {per: 1MiB}}
`, []string{
		`2:29: default.cost: has neither units nor a header to read them from`,
	}},
	{"a cost by what is no header", `version: 1
default: {limit: 3/s, cost: {header: "Content Length"}}
`, []string{
		`2:38: default.cost.header: is not the name of a header`,
	}},
	{"a cost by a list of headers", `version: 1
default: {limit: 3/s, cost: {header: [Content-Length]}}
`, []string{
		`2:38: default.cost.header: is a list: want text`,
	}},
	{"a cost by sizes that can't be", `version: 1
default: {limit: 3/s, cost: {header: Content-Length, per: 1Mb, missing: 0, max: -1}}
`, []string{
		`2:59: default.cost.per: "1Mb" is not a size such as 1MiB, 500KB or 4096`,
		`2:73: default.cost.missing: is 0: it must be at least 1`,
		`2:81: default.cost.max: is -1: it must be at least 1`,
	}},
	{"an outage policy there is not", `version: 1
default: {limit: 3/s, on_outage: close}
`, []string{
		`2:34: default.on_outage: outage policy "close" is not one of local, open, closed`,
	}},
	{"a mode there is not", `version: 1
mode: dark
default: {limit: 3/s, mode: of}
`, []string{
		`2:7: mode: "dark" is not what can be written here: there are enforce, shadow`,
		`3:29: default.mode: "of" is not what can be written here: did you mean "off"?`,
	}},
	{"a limit that is left empty", `version: 1
default: {limit: }
global: {limit: , mode: deny}
endpoints: {"/a": {mode: off}}
`, []string{
		`2:11: default.limit: has no value`,
		`3:10: global.limit: has no value`,
		`4:19: endpoints."/a": has no limit: write limit: 100/1m, or requests and window, or concurrency: 5`,
	}},
	{"header fields that can't be", `version: 1
headers: {send: all, limit: "X Rate", reset: soon}
default: 3/s
`, []string{
		`2:17: headers.send: "all" is not what can be written here: there are both, legacy, draft, none`,
		`2:29: headers.limit: is "X Rate": it must be up to 64 letters, digits and -`,
		`2:46: headers.reset: "soon" is not what can be written here: there are unix, delta`,
	}},
	{"header fields that are not sent", `version: 1
headers: {send: none, limit: "", reset: delta}
default: 3/s
`, []string{
		`2:30: headers.limit: is about the legacy fields, which are not sent`,
		`2:41: headers.reset: is about the legacy fields, which are not sent`,
	}},
	{"refusals that can't be", `version: 1
refusal: {status: 200, retry_after: 1m}
default: {limit: 3/s, refusal: {status: 600, type: "a b", title: "", message: "in {hours}", retry_after: 1m}}
global: {mode: deny, refusal: {status: 404, retry_after: 367d, message: "\x01"}}
`, []string{
		`2:19: refusal.status: is 200: it must be from 400 to 599`,
		`2:37: refusal.retry_after: is for mode: deny: a limit knows by itself when to come back`,
		`3:41: default.refusal.status: is 600: it must be from 400 to 599`,
		`3:52: default.refusal.type: is "a b": it is not a URI`,
		`3:66: default.refusal.title: is empty: leave it out for what Weir says`,
		`3:79: default.refusal.message: has a { that begins none of {retry_after}, {seconds}, {rule}, {limit}`,
		`3:106: default.refusal.retry_after: is for mode: deny: a limit knows by itself when to come back`,
		`4:40: global.refusal.status: is 404: with mode: deny it must be 403, 429 or 503`,
		`4:58: global.refusal.retry_after: period "367d" is 8808h0m0s: it must be more than 0 and at most 366 days`,
		`4:73: global.refusal.message: has a control character, such as the end of a line`,
	}},
	{"limits of single keys that can't be", `version: 1
global: {limit: 3/s, overrides: {"user:1": 5/s}}
default:
  limit: 3/s
  key: user|ip
  overrides:
    "user:1": 5/fortnight
    "user:2": {limits: [5/s, 7/h]}
    "header:X-A:b": 5/s
    10.0.0.0/8: 5/s
    "2001:db8::1": 5/s
    "2001:db8::/64": 6/s
    "user:": 6/s
endpoints:
  "/a": {limit: 3/s, key: [user, ip], overrides: {"user:1": 3/s}}
  "/b": {limit: 3/s burst 9, cost: 8, overrides: {192.0.2.7: 5/s}}
`, []string{
		`2:33: global.overrides: needs a key: without one there is one counter for all`,
		`7:15: default.overrides: parse "5/fortnight": period "fortnight" is not a duration such as 10s, 1m, 24h or 30d`,
		`8:24: default.overrides.limits: is for rules: a key has one limit, which takes the place of all that the rule has`,
		`9:5: default.overrides: is not a key of this rule, which counts by user|ip: want one as weir explain shows it`,
		`10:5: default.overrides: is a network, and a key is one client: give clients of a network a tier`,
		`11:5: default.overrides: is a key that stands there twice, in two spellings`,
		`13:5: default.overrides: is a key of kind user that no request can have: want something like user:42`,
		`15:51: endpoints."/a".overrides: is not a key of this rule, which counts by user and ip: want one as weir explain shows it`,
		`16:36: endpoints."/b".cost: is 8: 5/1s, the limit of a key in overrides, allows at most 5 at once, so no request would ever pass`,
	}},
	{"a warning without a percentage", `version: 1
soft: {}
default: {limit: 3/s, soft: 80}
`, []string{
		`2:7: soft: has no at: write soft: 80%, or soft: off`,
		`3:29: default.soft: "80" is not a percentage from 1% to 99%, or off`,
	}},
	{"a warning at all of the limit", `version: 1
default: {limit: 3/s, soft: 100%}
`, []string{
		`2:29: default.soft: "100%" is not a percentage from 1% to 99%, or off`,
	}},
	{"an escalation without its parts", `version: 1
default: {limit: 3/s, escalate: {}}
`, []string{
		`2:23: default.escalate.after: is required, and missing`,
		`2:23: default.escalate.within: is required, and missing`,
		`2:23: default.escalate.ban: is required, and missing`,
	}},
	{"an escalation that is text", `version: 1
default: {limit: 3/s, escalate: 3}
`, []string{
		`2:33: default.escalate: is a number: want a mapping`,
	}},
	{"an escalation of parts that can't be read", `version: 1
default: {limit: 3/s, escalate: {after: x, within: y, ban: z, factor: 0.5, max: w}}
`, []string{
		`2:41: default.escalate.after: is text: want a whole number, written in digits: 1000, or 1_000`,
		`2:52: default.escalate.within: period "y" is not a duration such as 10s, 1m, 24h or 30d`,
		`2:60: default.escalate.ban: period "z" is not a duration such as 10s, 1m, 24h or 30d`,
		`2:71: default.escalate.factor: "0.5" is not a number from 1 to 1000`,
		`2:81: default.escalate.max: period "w" is not a duration such as 10s, 1m, 24h or 30d`,
	}},
	{"an escalation after nothing", `version: 1
default: {limit: 3/s, escalate: {after: 0, within: 1m, ban: 1m}}
`, []string{
		`2:41: default.escalate.after: is 0: it must be from 1 to 10,000`,
	}},
	{"an escalation after more than are counted", `version: 1
default: {limit: 3/s, escalate: {after: 10_001, within: 1m, ban: 1m}}
`, []string{
		`2:41: default.escalate.after: is 10001: it must be from 1 to 10,000`,
	}},
	{"an escalation that ends below its beginning", `version: 1
default: {limit: 3/s, escalate: {after: 3, within: 1m, ban: 10m, max: 1m}}
`, []string{
		`2:33: default.escalate: max is 1m0s: it must be at least ban, 10m0s`,
	}},
	{"an escalation by parts of a millisecond", `version: 1
default: {limit: 3/s, escalate: {after: 3, within: 1m, ban: 500us}}
`, []string{
		`2:33: default.escalate: ban is 500µs: it must be whole milliseconds, at least one`,
	}},
	{"an escalation without a key", `version: 1
global: {limit: 3/s, escalate: {after: 3, within: 1m, ban: 1m}}
`, []string{
		`2:32: global.escalate: needs a key: it is keys that are banned`,
	}},
	{"an escalation that bans everybody", `version: 1
default: {limit: 3/s, key: [method, "host|route"], escalate: {after: 3, within: 1m, ban: 1m}}
`, []string{
		`2:62: default.escalate: needs a key that tells clients apart: method and host|route is shared by many clients`,
	}},
	{"two rules of one name", `version: 1
global: {limit: 3/s, name: default}
default: 3/s
`, []string{
		`3:1: default: there is another rule named "default", at global: give one of them a name of its own`,
	}},
	{"a name that is too long", `version: 1
default: {limit: 3/s, name: "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}
`, []string{
		`2:23: default.name: the rule name "01234567890123456789"... has 130 characters: at most 128 are allowed`,
	}},
	{"an endpoint that can't be a name", `version: 1
endpoints:
  "/süß": {limit: 3/s, tiers: {gold: 5/s}}
`, []string{
		`3:3: endpoints."/süß": the rule name "/süß" has a character outside printable ASCII`,
	}},
	{"a tier that can't be a name", `version: 1
tiers: {"größte": 3/s}
`, []string{
		`2:9: tiers.größte: the rule name "tier:größte" has a character outside printable ASCII`,
	}},
	{"a tier of a rule that can't be a name", `version: 1
default: {limit: 3/s, tiers: {" gold": 5/s}}
`, []string{
		`2:31: default.tiers." gold": the tier name " gold" begins or ends with a space`,
	}},
	{"a tier without a name", `version: 1
tiers: {"": 3/s}
`, []string{
		`2:9: tiers."": a tier has no name`,
	}},
	{"a tier that no request is in", `version: 1
tiers: {free: 3/s, premium: 9/s}
default: {limit: 3/s, tiers: {premum: 5/s}}
`, []string{
		`3:31: default.tiers.premum: the tier "premum" is never used: did you mean "premium"?`,
	}},
	{"endpoints that are none", `version: 1
endpoints:
  search: 3/s
  "get /x": 3/s
  "GET /x?y=1": 3/s
`, []string{
		`3:3: endpoints.search: pattern "search" has no path: want "/search"`,
		`4:3: endpoints."get /x": pattern "get /x" does not begin with a method in capitals: want "GET /x"`,
		`5:3: endpoints."GET /x?y=1": pattern "GET /x?y=1" has a space, ? or # in its path: want "GET /x"`,
	}},
	{"endpoints that no request can match", `version: 1
endpoints:
  "GET/a": 3/s
  "GET ^/api/.*$": 3/s
  "https://example.com/a": 3/s
  api/x: 3/s
  "GET,POST /x": 3/s
  "/users/{id": 3/s
  "/a//b": 3/s
  "example.com:8080/a": 3/s
  "{tenant}.example.com/a": 3/s
  "münchen.example/a": {limit: 3/s, name: munich}
`, []string{
		`3:3: endpoints."GET/a": pattern "GET/a" has no space behind its method: want "GET /a"`,
		`4:3: endpoints."GET ^/api/.*$": pattern "GET ^/api/.*$" looks like a regular expression, and is compared with what routes are registered as: want "GET /api/*"`,
		`5:3: endpoints."https://example.com/a": pattern "https://example.com/a" has a scheme: want "example.com/a"`,
		`6:3: endpoints."api/x": pattern "api/x" begins with "api", which reads as a host (write "api." if it is one): want "/api/x"`,
		`7:3: endpoints."GET,POST /x": pattern "GET,POST /x" has several methods, of which a pattern has one or none: want "GET /x" and "POST /x"`,
		`8:3: endpoints."/users/{id": pattern "/users/{id" has a brace without its other one: want "/users/{id}"`,
		`9:3: endpoints."/a//b": pattern "/a//b" has // in its path: want "/a/b"`,
		`10:3: endpoints."example.com:8080/a": pattern "example.com:8080/a" has a port, which no host is compared with: want "example.com/a"`,
		`11:3: endpoints."{tenant}.example.com/a": pattern "{tenant}.example.com/a" has a host that is not one: want "*.example.com/a"`,
		`12:3: endpoints."münchen.example/a": pattern "münchen.example/a" has a host outside ASCII, which clients ask for by its form within: want something like "xn--mnchen-3ya.example/search"`,
	}},
	{"endpoints with quotes and angle brackets, which nothing matches", `version: 1
endpoints:
  POST /login": 3/s
  "GET /docs/<id>": 3/s
`, []string{
		`3:3: endpoints."POST /login\"": pattern "POST /login\"" has a quotation mark or an angle bracket, which no route has: want "POST /login"`,
		`4:3: endpoints."GET /docs/<id>": pattern "GET /docs/<id>" has a quotation mark or an angle bracket, which no route has: want "GET /docs/{id}"`,
	}},
	{"a parameter that the endpoint does not have", `version: 1
endpoints:
  "GET /docs/{id}": {limit: 3/s, key: "path:doc"}
  "GET /a/{id}/{version}": [{limit: 3/s, key: [ip, "user | path:versoin"]}, {limit: 9/s, key: "path:id"}]
  "GET /b": {limit: 3/s, key: "path:id|ip"}
  "GET /c/*": {limit: 3/s, key: "path:id"}
`, []string{
		`3:39: endpoints."GET /docs/{id}".key: is of a parameter "doc" that the endpoint does not have: there are id`,
		`4:52: endpoints."GET /a/{id}/{version}".0.key.1: is of a parameter "versoin" that the endpoint does not have: did you mean "version"?`,
		`5:31: endpoints."GET /b".key: is of a parameter "id" that the endpoint does not have: it has none`,
	}},
	{"keys of an API with the name of their header, which no request has", `version: 1
ban: {keys: ["apikey:X-Api-Key:sk-2"]}
allow: {keys: ["apikey:x-api-key:sk-3"]}
global: 9/s
default: {limit: 3/s, key: "user|apikey:X-Api-Key", overrides: {"apikey:X-API-KEY:sk-4": 9/s}}
`, []string{
		`2:14: ban.keys.0: is a key of kind apikey with the name of its header: want apikey: and the key alone, as weir explain shows it`,
		`3:16: allow.keys.0: is a key of kind apikey with the name of its header: want apikey: and the key alone, as weir explain shows it`,
		`5:65: default.overrides: is a key of kind apikey with the name of its header: want apikey: and the key alone, as weir explain shows it`,
	}},
	{"limits of keys beside nothing but a concurrency", `version: 1
default: {concurrency: 5, key: user, overrides: {"user:42": 9/s}}
`, []string{
		`2:49: default.overrides: needs a limit: a key's own takes the place of that, and a concurrency has none`,
	}},
	{"a name that another rule's second window has", `version: 1
default: {limits: [10/s, 100/m], name: api}
endpoints: {"/x": {limit: 1/s, name: api.60}}
`, []string{
		`2:10: default: there is another rule named "api.60"`,
	}},
	{"the whole name of a field in place of a prefix", `version: 1
headers: {limit: X-Rate-Limit-Limit}
default: 3/s
`, []string{
		`2:18: headers.limit: is "X-Rate-Limit-Limit", the whole name of a field: it must be what the three names begin with, such as "X-Rate-Limit"`,
	}},
	{"endpoints that are the same but for how the host is spelled", `version: 1
endpoints: {"GET Example.org./x": 3/s, "GET example.org/x": 3/s}
`, []string{
		`2:40: endpoints."GET example.org/x": is the same route as "GET Example.org./x" in line 2: keep one`,
	}},
	{"an allowed route of a host, which clients write as they like", `version: 1
allow: {routes: ["GET /ok", "internal.example.org/*"]}
default: 3/s
`, []string{
		`2:29: allow.routes.1: has a host, which clients write as they like: name the route without it, or the clients in cidrs`,
	}},
	{"a fixed cost that the limit never allows", `version: 1
global: {limit: 10/s, cost: 20}
default: {limit: 100/s burst 5, cost: {units: 6}}
endpoints:
  "/a": {requests: 10, window: 1m, cost: 8, tiers: {paid: 9/m, team: 7/m}}
tiers:
  paid: {limit: 10/s, cost: 20}
  team: {limit: 5/s leaky-bucket burst 3, cost: 9}
`, []string{
		`2:29: global.cost: is 20: 10/1s allows at most 10 at once, so no request would ever pass`,
		`3:47: default.cost.units: is 6: 100/1s token-bucket burst 5 allows at most 5 at once, so no request would ever pass`,
		`5:42: endpoints."/a".cost: is 8: 7/1m, the limit of tier team, allows at most 7 at once, so no request would ever pass`,
		`7:29: tiers.paid.cost: is 20: 10/1s allows at most 10 at once, so no request would ever pass`,
		`8:49: tiers.team.cost: is 9: 5/1s leaky-bucket burst 3 allows at most 4 at once, so no request would ever pass`,
	}},
	{"endpoints that are the same", `version: 1
endpoints:
  "GET /users/{id}": 3/s
  "GET /users/:name": 3/s
`, []string{
		`4:3: endpoints."GET /users/:name": is the same route as "GET /users/{id}" in line 3: keep one`,
	}},
	{"a default behind an endpoint for all", `version: 1
endpoints: {"/*": 3/s}
default: 3/s
`, []string{
		`3:10: default: is never used, as the endpoint "/*" is for every request: keep one`,
	}},
	{"an allowed route that is none", `version: 1
allow: {routes: [healthz, "GET /ok"]}
default: 3/s
`, []string{
		`2:18: allow.routes.0: pattern "healthz" has no path: want "/healthz"`,
	}},
	{"allowed keys that are none", `version: 1
allow: {keys: [partner, "user:", "header:x-a:b", "method:GET", "apikey:ab", 0.0.0.0/0, 7], file: partners.txt}
default: 3/s
`, []string{
		`2:16: allow.keys.0: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
		`2:25: allow.keys.1: is a key of kind user that no request can have: want something like user:42`,
		`2:34: allow.keys.2: is a key of kind header that no request can have: want something like header:X-Tenant:acme`,
		`2:50: allow.keys.3: is a key of kind method, which all kinds of clients have: name routes in allow.routes, or clients`,
		`2:64: allow.keys.4: is a key of kind apikey, and no rule has such a key`,
		`2:77: allow.keys.5: it takes in everyone, or nearly; networks wider than /8 are refused`,
		`2:88: allow.keys.6: is a number: want text, so put it in quotes`,
		`2:98: allow.file: can't be used here: only rules that are in a file themselves can name one`,
	}},
	{"an endpoint that is allowed", `version: 1
allow: {routes: "/internal/*"}
endpoints: {"GET /internal/{id}": 3/s}
`, []string{
		`3:13: endpoints."GET /internal/{id}": is never limited, as "/internal/*" is in allow.routes: keep one`,
	}},
	{"proxies in two ways", `version: 1
proxies: {trusted: 10.0.0.0/8, hops: 1}
default: 3/s
`, []string{
		`2:10: proxies: has trusted and hops: an address is found in one way, keep one of them`,
	}},
	{"proxies that are nobody", `version: 1
proxies: {trusted: []}
default: 3/s
`, []string{
		`2:20: proxies.trusted: is empty: name your proxies`,
	}},
	{"proxies that are everybody", `version: 1
proxies: {trusted: [0.0.0.0/0, "::/1", proxy.example.com, "fe80::1%eth0"]}
default: 3/s
`, []string{
		`2:21: proxies.trusted.0: it takes in everyone, or nearly; networks wider than /8 are refused`,
		`2:32: proxies.trusted.1: it takes in everyone, or nearly; networks wider than /7 are refused`,
		`2:40: proxies.trusted.2: it is neither an address nor a CIDR`,
		`2:59: proxies.trusted.3: zones can't be told apart; leave it out`,
	}},
	{"no hops", `version: 1
proxies: {hops: 0}
default: 3/s
`, []string{
		`2:17: proxies.hops: is 0: it must be at least 1`,
	}},
	{"a header that is a list", `version: 1
proxies: {header: {name: X-Forwarded-For}}
default: 3/s
`, []string{
		`2:10: proxies: header ("X-Forwarded-For"): it is a list that the client may have begun; use trusted`,
	}},
	{"a header without its name", `version: 1
proxies: {header: {cidrs: 10.0.0.0/8}}
default: 3/s
`, []string{
		`2:11: proxies.header.name: is required, and missing`,
	}},
	{"a header that all proxies were taken from", `version: 1
proxies: {header: {name: X-Real-IP, cidrs: []}}
default: 3/s
`, []string{
		`2:44: proxies.header.cidrs: is empty: name the proxies, or leave it out to believe any peer`,
	}},
	{"a socket without a header", `version: 1
proxies: {unix_socket: true}
default: 3/s
`, []string{
		`2:10: proxies: unix_socket: it needs trusted or another way that says which header to read`,
	}},
	{"a socket that is neither", `version: 1
proxies: {trusted: 10.0.0.0/8, unix_socket: yes, ipv6_prefix: 16}
default: 3/s
`, []string{
		`2:45: proxies.unix_socket: is text: want true or false, without quotes`,
		`2:63: proxies.ipv6_prefix: is 16: it must be from 32 to 128`,
	}},
	{"a header's name that is none", `version: 1
proxies: {header: {name: "X Real"}}
default: 3/s
`, []string{
		`2:10: proxies: header ("X Real"): it is not the name of a header`,
	}},
	{"a header's name in words that fields have too", `version: 1
proxies: {header: {name: "Per is TrustProxies, Burst is Max is X"}}
default: 3/s
`, []string{
		`2:10: proxies: header ("Per is TrustProxies, Burst is Max is X"): it is not the name of a header`,
	}},
	{"bans that are none", `version: 1
ban:
  cidrs: [198.51.100.0/33, 0.0.0.0/1]
  keys: [eve, "user:", 0.0.0.0/0, "", 7]
`, []string{
		`3:11: ban.cidrs.0: it is neither an address nor a CIDR`,
		`3:28: ban.cidrs.1: it takes in everyone, or nearly; networks wider than /8 are refused`,
		`4:10: ban.keys.0: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
		`4:15: ban.keys.1: is a key of kind user that no request can have: want something like user:42`,
		`4:24: ban.keys.2: it takes in everyone, or nearly; networks wider than /8 are refused`,
		`4:35: ban.keys.3: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
		`4:39: ban.keys.4: is a number: want text, so put it in quotes`,
	}},
	{"bans of keys that no request has", `version: 1
ban: {keys: ["header:x-tenant:acme", "header:X-Tenant:", "cookie:a b:c", "method:get", "host:EXAMPLE.com", "route:", "apikey:x", "fp:x", "join:1:x", "bearer:a b"]}
`, []string{
		`2:14: ban.keys.0: is a key of kind header that no request can have: want something like header:X-Tenant:acme`,
		`2:38: ban.keys.1: is a key of kind header that no request can have: want something like header:X-Tenant:acme`,
		`2:58: ban.keys.2: is a key of kind cookie that no request can have: want something like cookie:session:8f3a`,
		`2:74: ban.keys.3: is a key of kind method that no request can have: want something like method:GET`,
		`2:88: ban.keys.4: is a key of kind host that no request can have: want something like host:example.com, in lower case and without a port`,
		`2:108: ban.keys.5: is a key of kind route that no request can have: want something like route:GET /search`,
		`2:118: ban.keys.6: is a key of kind apikey, and no rule has such a key`,
		`2:130: ban.keys.7: is a key of kind fp, and no rule has such a key`,
		`2:138: ban.keys.8: is a key of kind join, and no rule has such a key`,
		`2:150: ban.keys.9: is a key of kind bearer that no request can have: want something like bearer:TOKEN`,
	}},
	{"an answer to banned clients that is none", `version: 1
ban: {cidrs: 198.51.100.0/24, status: 418}
`, []string{
		`2:39: ban.status: is 418: it must be 403 or 429`,
	}},
	{"a file of bans in rules that are in none", `version: 1
ban: {file: banned.txt}
`, []string{
		`2:13: ban.file: can't be used here: only rules that are in a file themselves can name one`,
	}},
	{"an alias that is unknown", `version: 1
default: *limit
`, []string{
		`2:10: unknown alias: no anchor of its name stands before it; text that begins with * needs quotes`,
	}},
	{"a merge key", `version: 1
tiers: {a: &a {limit: 3/s}, b: {<<: *a}}
`, []string{
		`2:33: merge keys (<<) are not supported; write the fields, or give the whole mapping an alias`,
	}},
	{"JSON that is wrong", `{"version": 1, "default": {"limit": "9/s", "key": null, "cost": "5", "burst": 1e3}}
`, []string{
		`1:51: default.key: names no key: leave it out, or write ip, user and the like`,
		`1:79: default.burst: is "1e3": want a whole number, written in digits: 1000, or 1_000`,
	}},
}
