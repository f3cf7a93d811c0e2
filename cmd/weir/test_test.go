package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

const testedRules = `version: 1
proxies: {trusted: [10.0.0.0/8]}
ban: {cidrs: [203.0.113.0/24]}
allow: {cidrs: [198.18.0.0/24], routes: ["GET /healthz"]}
tiers:
  premium: {limit: 1000/m, key: user}
  blocked: {mode: deny, refusal: {status: 503, retry_after: 30m}}
endpoints:
  "POST /login": {name: login, limit: 5/m, counts: [401, 403], key: ip}
  "GET /search": {name: search, limit: 30/10s, key: user|ip, tiers: {premium: 100/10s}}
  "POST /exports": {name: exports, limits: [100/h], concurrency: 2, key: user, no_key: unauthorized}
  "POST /complete": {name: tokens, limit: 100/m, key: user, cost: {header: X-Tokens, settle: true}}
  "POST /try": {name: tries, limit: 2/m, distinct: "json:user", key: ip}
  "GET /items/{id}": {name: items, limit: 2/m, key: "path:id", refusal: {jitter: 20%}}
  "POST /pay": {name: pay, limit: 2/m, key: ip, escalate: {after: 2, within: 10m, ban: 1h}}
default: {limit: 100/m, key: ip, overrides: {192.0.2.99: 5/m}}
`

// writeTests writes the rules and a file of tests, and returns the file's path.
func writeTests(t *testing.T, steps string) string {
	t.Helper()
	if strings.HasPrefix(steps, "{") {
		steps = "rules: weir.yaml\ntests:\n- name: it\n  steps:\n  - " + strings.ReplaceAll(strings.TrimSpace(steps), "\n", "\n  - ")
	}
	return filepath.Join(folder(t, map[string]string{"weir.yaml": testedRules, "weir.test.yaml": steps}), "weir.test.yaml")
}

// folder writes files, and returns their folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestRequestsAreDecidedAsTestsExpect(t *testing.T) {
	for name, steps := range map[string]string{
		"failed logins": `{request: POST /login, ip: 192.0.2.1, answer: 401, times: 5, expect: allowed}
			{request: POST /login, ip: 192.0.2.1, expect: refused, rule: login, status: 429, retry_after: 1m}
			{request: POST /login, ip: 192.0.2.2, expect: allowed, remaining: 4}
			{at: 1m, request: POST /login, ip: 192.0.2.1, expect: allowed}`,
		"logins that succeed do not count": `{request: POST /login, ip: 192.0.2.1, times: 50, expect: {allowed: 50}}`,
		"tiers and intervals": `{request: GET /search, user: "42", tier: premium, every: 100ms, times: 40, expect: allowed, rule: search}
			{request: GET /search, user: "42", every: 100ms, times: 40, expect: {allowed: 30, refused: 10}}`,
		"a step without ip has an address of its own": strings.TrimSpace(strings.Repeat("{request: GET /, times: 100, expect: allowed}\n", 300)),
		"lists":  "{request: GET /, ip: 203.0.113.9, expect: banned, status: 403}\n{request: GET /, ip: 198.18.0.7, times: 200, expect: allowed}\n{request: GET /healthz, times: 200, expect: allowed}",
		"denied": `{request: GET /, tier: blocked, expect: denied, rule: "tier:blocked", status: 503, retry_after: 30m}`,
		"no key": `{request: POST /exports, expect: refused, rule: exports, status: 401}`,
		"in flight": `{request: POST /exports, user: a, takes: 10s, times: 2, expect: allowed}
			{request: POST /exports, user: a, takes: 10s, expect: refused, rule: exports}
			{at: 9999ms, request: POST /exports, user: a, takes: 10s, expect: refused}
			{at: 10s, request: POST /exports, user: a, takes: 10s, expect: allowed}`,
		"a cost that the service settles": `{request: POST /complete, user: a, headers: {x-tokens: "90"}, cost: 10, expect: allowed}
			{request: POST /complete, user: a, headers: {x-tokens: "90"}, cost: 90, expect: allowed, remaining: 0}
			{request: POST /complete, user: a, expect: refused}`,
		"bodies": `{request: POST /try, ip: 192.0.2.1, headers: {Content-Type: application/json}, body: '{"user": "a"}', times: 9, expect: allowed}
			{request: POST /try, ip: 192.0.2.1, headers: {Content-Type: application/json}, body: '{"user": "b"}', expect: allowed}
			{request: POST /try, ip: 192.0.2.1, headers: {Content-Type: application/json}, body: '{"user": "c"}', expect: refused}`,
		"parameters, and no jitter": `{request: GET /items/1, times: 2, expect: allowed}
			{request: GET /items/1?x=y, expect: refused, retry_after: 1m}
			{request: GET /items/2, expect: allowed}`,
		"bans": `{request: POST /pay, ip: 192.0.2.1, times: 5, expect: {allowed: 2, refused: 2, banned: 1}}
			{at: 59m, request: GET /, ip: 192.0.2.1, expect: banned, rule: pay, retry_after: 1m}
			{at: 61m, request: GET /, ip: 192.0.2.1, expect: allowed}`,
		"clients behind a proxy": `{request: GET /, ip: 10.0.0.1, headers: {X-Forwarded-For: 192.0.2.1}, times: 100, expect: allowed}
			{request: GET /, ip: 192.0.2.1, expect: refused}
			{request: GET /, ip: 10.0.0.1, headers: {X-Forwarded-For: 192.0.2.2}, expect: allowed}`,
	} {
		t.Run(name, func(t *testing.T) {
			steps = regexp.MustCompile(`\n\t+`).ReplaceAllString(steps, "\n")
			out := succeed(t, "", "test", writeTests(t, steps))
			assert.Regexp(t, `^ok  \S+weir.test.yaml  1 test, [\d,]+ requests?\n$`, out)
		})
	}
}

func TestRulesThatLimitNothingAreTestedToo(t *testing.T) {
	dir := folder(t, map[string]string{
		"weir.yaml": "version: 1\nban: {cidrs: [192.0.2.0/24]}\n",
		"weir.test.yaml": "rules: weir.yaml\ntests: [{name: banned, steps: [" +
			"{request: GET /, ip: 192.0.2.1, expect: banned}, {request: GET /, expect: allowed}]}]\n",
	})
	succeed(t, "", "test", filepath.Join(dir, "weir.test.yaml"))
}

func TestOverridesAndBansEndByTheClockOfTheTests(t *testing.T) {
	path := writeTests(t, `rules: weir.yaml
start: 2020-01-01T23:59:00Z
tests:
- name: it
  steps:
  - {request: GET /, ip: 198.51.100.1, expect: banned}
  - {request: GET /, ip: 192.0.2.98, times: 10, expect: {allowed: 9, refused: 1}}
  - {request: GET /, ip: 192.0.2.97, times: 200, expect: allowed}
  - {at: 1m, request: GET /, ip: 198.51.100.1, expect: allowed}
  - {request: GET /, ip: 192.0.2.98, times: 50, expect: allowed}
  - {request: GET /, ip: 192.0.2.97, times: 5, expect: refused, rule: default}
`)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "weir.yaml"), []byte(`version: 1
proxies: {}
ban: {cidrs: {198.51.100.0/24: {until: 2020-01-02}}}
default: {limit: 100/m, overrides: {192.0.2.98: {limit: 9/m, until: 2020-01-02}, 192.0.2.97: {limit: 200/m, until: 2020-01-02}}}
`), 0o600))
	succeed(t, "", "test", path)
}

func TestAnExpectationThatIsNotMetIsShownWithItsPlace(t *testing.T) {
	for steps, want := range map[string]string{
		`{request: POST /login, expect: refused, rule: login}`:             `expected refused by login, but allowed (login: 4 of 5 left)`,
		`{request: GET /, times: 101, expect: allowed}`:                    `expected allowed, but 100 allowed and 1 refused, the last refused by default (429, retry after 1m1s)`,
		`{request: GET /search, expect: allowed, rule: login}`:             `expected a decision of login, but allowed (search: 29 of 30 left)`,
		`{request: GET /, expect: allowed, remaining: 98}`:                 `expected remaining 98, but it is 99`,
		`{request: GET /, ip: 203.0.113.9, expect: banned, status: 429}`:   `expected status 429, but it is 403`,
		`{request: GET /, tier: blocked, expect: denied, retry_after: 1m}`: `expected retry_after 1m0s, but it is 30m0s`,
		`{request: GET /, tier: blocked, expect: refused}`:                 `expected refused, but denied by tier:blocked (503, retry after 30m0s)`,
		`{request: GET /a//b, expect: refused}`:                            `expected refused, but answered 400 by the gateway: it cannot tell which path or host is requested`,
		`{request: GET /healthz, expect: refused}`:                         `expected refused, but allowed (never limited)`,
		`{request: POST /exports, expect: allowed}`:                        `expected allowed, but refused by exports (401)`,
		`{request: GET /, cost: 5, expect: allowed}`:                       `the step has a cost, and no rule with cost.settle applies`,
		`{request: GET /, times: 2, expect: {banned: 1, allowed: 1}}`:      `expected 1 allowed and 1 banned, but 2 allowed, the last allowed (default: 98 of 100 left)`,
	} {
		path := writeTests(t, steps)
		out, _ := ends(t, exitBad, "", "test", path)
		assert.Contains(t, out, path+":5:5: it: "+want+"\nFAIL  "+path+"  1 of 1 test, ")
	}
}

func TestATestThatCannotRunIsAnErrorWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		`{request: GET /, tims: 3, expect: allowed}`:        `5:22: tests.0.steps.0.tims: unknown field "tims": did you mean "times"?`,
		`{request: GET /, times: x, expect: allowed}`:       `5:29: tests.0.steps.0.times: is text: want a whole number`,
		`{request: GET /, at: soon, expect: allowed}`:       `5:26: tests.0.steps.0.at: period "soon" is not a duration such as 10s, 1m, 24h or 30d`,
		`{request: GET /, expect: alowed}`:                  `5:30: tests.0.steps.0.expect.all: "alowed" is not allowed here: did you mean "allowed"?`,
		`{request: GET /}`:                                  `5:5: tests.0.steps.0.expect: is required, and missing`,
		`{request: GET /, expect: {}}`:                      `5:5: tests.0.steps.0: the step expects nothing`,
		`{request: GET /, times: 0, expect: allowed}`:       `5:29: tests.0.steps.0.times: is 0: it must be from 1 to 1000000`,
		`{request: GET /, times: 2000000, expect: allowed}`: `5:29: tests.0.steps.0.times: is 2000000: it must be from 1 to 1000000`,
		`{request: get /, expect: allowed}`:                 `5:15: tests.0.steps.0.request: "get /" is not a method and a path, such as GET /search?q=1`,
		`{request: "GET http://x/", expect: allowed}`:       `5:15: tests.0.steps.0.request: "GET http://x/" is not a method and a path, such as GET /search?q=1`,
		`{request: GET /, ip: 192.0.2, expect: allowed}`:    `5:26: tests.0.steps.0.ip: ParseAddr("192.0.2"): IPv4 address too short`,
		`{request: GET /, answer: 42, expect: allowed}`:     `5:30: tests.0.steps.0.answer: is 42: it must be from 200 to 599`,
		`{request: GET /, cost: -1, expect: allowed}`:       `5:28: tests.0.steps.0.cost: is -1: it must be at least 0`,
		`{request: GET /, expect: {allowed: -1}}`:           `5:40: tests.0.steps.0.expect.allowed: is -1: it must be at least 0`,
		`{request: GET /, expect: allowed, tier: gold}`:     `5:5: tests.0.steps.0: the rules have no tier "gold"`,
		"{request: GET /, times: 3, every: 1m, expect: allowed}\n{at: 119s, request: GET /, expect: allowed}": `6:5: tests.0.steps.1: at 1m59s is before the step before has ended, at 2m0s`,
		"rules: weir.yaml\ntests: []\n":          `2:8: tests: is empty: leave it out`,
		"rules: weir.yaml\n":                     `1:1: tests: is required, and missing`,
		"rules: weir.yaml\ntests: [{name: a}]\n": `2:9: tests.0: a test has steps, or a log`,
		"rules: weir.yaml\ntests: [{name: a, tier: premium, steps: [{request: GET /, expect: allowed}]}]\n": `2:9: tests.0: format, zone, map, trust, tier and expect of a test are for its log`,
		"rules: weir.yaml\ntests: [{name: a, log: access.log}]\n":                                           `2:9: tests.0: the test expects nothing`,
		"rules: weir.yaml\ntests:\n- name: a\n  expect: {allowed: 1}\n  log: none.log\n":                    `3:3: tests.0: open `,
		"rules: weir.yaml\ntests: [\n":                                `3:1: syntax: did not find expected node content`,
		"rules: weir.yaml\n---\nrules: weir.yaml\n":                   `2:1: another document begins here: want one`,
		`{request: GET /, times: 10000, every: 30d, expect: allowed}`: `5:5: tests.0.steps.0: the step ends more than a hundred years after the start`,
		"rules: weir.yaml\nstart: 1066-10-14T09:00:00Z\ntests: [{name: a, steps: [{request: GET /, expect: allowed}]}]\n": `2:8: start: "1066-10-14T09:00:00Z" is not a time from 1970 to 2100`,
	} {
		path := writeTests(t, text)
		out, _ := ends(t, exitUsage, "", "test", path)
		assert.Contains(t, out, path+":"+want)
		assert.Contains(t, out, "FAIL  "+path+"  cannot run\n")
	}
	for text, want := range map[string]string{
		"rules: none.yaml\ntests: [{name: a, steps: [{request: GET /, expect: allowed}]}]\n": "none.yaml: no such file",
		"tests: [{name: a, steps: [{request: GET /, expect: allowed}]}]\n":                   "it names no rules: add rules: FILE, or use --rules FILE",
	} {
		out, _ := ends(t, exitUsage, "", "test", writeTests(t, text))
		assert.Contains(t, out, want)
	}
	out, _ := ends(t, exitUsage, "", "test", writeTests(t, "{request: GET /, expect: allowed}"), "--rules", write(t, "bad.yaml", bad))
	assert.Contains(t, out, `bad.yaml:4:14: endpoints."GET /a".limt: unknown field "limt": did you mean "limit"?`)
}

const testedLog = `{"time":"2026-03-02T10:00:00Z","local":"2026-03-02 10:00:00","ip":"192.0.2.1","m":"GET","p":"/","tier":"premium","user":"a"}
{"time":"2026-03-02T10:00:01Z","local":"2026-03-02 10:00:01","ip":"192.0.2.2","m":"POST","p":"/pay"}
{"time":"2026-03-02T10:00:02Z","local":"2026-03-02 10:00:02","ip":"192.0.2.2","m":"POST","p":"/pay"}
`

func TestATestOfALogCountsItsRequests(t *testing.T) {
	rules := "version: 1\nproxies: {}\ntiers: {premium: {limit: 1/m, key: user}}\nendpoints: {\"POST /pay\": 1/m}\ndefault: 100/m\n"
	const places = `map: {client: $.ip, method: $.m, target: $.p, tier: $.tier, user: $.user, time: $.time}, `
	withoutZone := strings.Replace(places, "time: $.time", "time: $.local", 1)
	slots := strings.Replace(rules, "default: 100/m", "default: {concurrency: 2, key: ip}", 1)
	for _, test := range []struct {
		rules, test string
		exit        int
		want        string
	}{
		{rules, places + "expect: {allowed: 2, refused: 1}", exitGood, "ok  t.yaml  1 test, 3 requests\n"},
		{rules, places + "tier: premium, expect: {refused: 0}", exitGood, "ok  t.yaml  1 test, 1 request\n"},
		{rules, places + "expect: allowed", exitBad, "t.yaml:3:3: it: expected allowed, but 2 allowed and 1 refused, the last "},
		{rules, "map: {client: $.ip, method: $.m, target: $.p, time: $.time}, tier: premium, expect: {refused: 0}", exitUsage,
			"the log does not have tier: say where with --map tier=PLACE"},
		{rules, strings.Replace(places, "$.tier", "$.m", 1) + "tier: premium, expect: {refused: 0}", exitUsage, "t.yaml:3:3: tests.0: the log has no such request"},
		{rules, strings.Replace(places, "$.ip", "$.who", 1) + "expect: allowed", exitUsage, "access.log: "},
		{rules, withoutZone + "expect: {refused: 1}", exitUsage, "is a time without a zone: say which with --zone"},
		{rules, "zone: Europe/Berlin, " + withoutZone + "expect: {refused: 1}", exitGood, "ok  "},
		{rules, "zone: Berlin, " + places + "expect: {refused: 1}", exitUsage, "t.yaml:3:3: tests.0: there is no time zone \"Berlin\""},
		{slots, places + "expect: {refused: 0}", exitUsage, "default needs how long requests took, which the log does not have: " +
			"say where with --map took_ms=PLACE (a test has fields in place of these flags)\n"},
	} {
		tests := "rules: weir.yaml\ntests:\n- {name: it, log: access.log, " + test.test + "}\n"
		dir := folder(t, map[string]string{"weir.yaml": test.rules, "access.log": testedLog, "t.yaml": tests})
		out, _ := ends(t, test.exit, "", "test", filepath.Join(dir, "t.yaml"))
		assert.Contains(t, strings.ReplaceAll(out, dir+string(filepath.Separator), ""), test.want)
	}
}

func TestATestOfALogHasNoBansOfTheTestBefore(t *testing.T) {
	dir := folder(t, map[string]string{
		"weir.yaml":  "version: 1\nproxies: {}\nendpoints: {\"POST /pay\": {limit: 1/m, key: ip, escalate: {after: 1, within: 10m, ban: 1h}}}\n",
		"access.log": testedLog,
		"t.yaml": `rules: weir.yaml
start: 2026-03-02T09:59:00Z
tests:
  - {name: banned, steps: [{request: POST /pay, ip: 192.0.2.2, times: 3, expect: {allowed: 1, refused: 1, banned: 1}}]}
  - {name: log, log: access.log, map: {client: $.ip, method: $.m, target: $.p, time: $.time}, expect: {allowed: 2, refused: 1, banned: 0}}
`,
	})
	succeed(t, "", "test", filepath.Join(dir, "t.yaml"))
}

func TestTheFlagsOfTest(t *testing.T) {
	path := writeTests(t, `rules: weir.yaml
start: 2026-03-29T00:30:00Z
tests:
  - {name: good, steps: [{request: GET /, expect: allowed, rule: default}]}
  - {name: bad, steps: [{request: GET /, ip: 192.0.2.1, expect: refused}]}
`)
	out := succeed(t, "", "test", path, "--run", "^good$", path)
	assert.Equal(t, strings.Repeat("ok  "+path+"  1 test, 1 request\n", 2), out)
	_, err := ends(t, exitUsage, "", "test", path, "--run", "none")
	assert.Contains(t, err, "--run matches no test")
	_, err = ends(t, exitUsage, "", "test", path, "--run", "(")
	assert.Contains(t, err, "--run: error parsing regexp")
	out, _ = ends(t, exitBad, "", "test", "-v", path)
	assert.Equal(t, `=== good
    4:26: at 0s, 1 × GET / from 198.19.0.1: allowed (default: 99 of 100 left)
=== bad
    5:25: at 0s, 1 × GET / from 192.0.2.1: allowed (default: 99 of 100 left)
`+path+":5:25: bad: expected refused, but allowed (default: 99 of 100 left)\nFAIL  "+path+"  1 of 2 tests, 2 requests\n", out)

	out, _ = ends(t, exitUsage, "", "test", "--json", path, filepath.Join(t.TempDir(), "none.yaml"))
	var reports []testReport
	require.NoError(t, json.Unmarshal([]byte(out), &reports))
	assert.Equal(t, []rules.Problem{{Line: 5, Column: 25, Message: "expected refused, but allowed (default: 99 of 100 left)"}}, reports[0].Tests[1].Failures)
	assert.True(t, reports[0].Tests[0].Passed)
	assert.False(t, reports[0].Passed)
	assert.Contains(t, reports[1].Problems[0].Message, "none.yaml")

	other := write(t, "other.yaml", "version: 1\nproxies: {}\noverload: {}\ndefault: {limit: 1/h, concurrency: {max: 1, queue: 5, max_wait: 1s}}\n")
	out = succeed(t, "", "test", path, "--rules", other, "--run", "good")
	assert.Contains(t, out, "note: Not simulated: the queue of \"default\".")
	assert.Contains(t, out, "note: Not simulated: the overload section.\n")
}

// First tests pass, and fail if the limit is changed by one.
func TestFirstTestsPassAndDependOnTheLimits(t *testing.T) {
	for rule, want := range map[string]string{
		`"POST /login": {limit: 7/m, counts: [401, 403], key: ip}`:      "times: 7, expect: allowed",
		`"GET /users/{id}": {limit: 7/m, key: user, no_key: skip}`:      `user: "1", times: 7`,
		`"/files/*": {limit: 99/m burst 7}`:                             `"GET /files/1", ip: 198.18.0.1, times: 7`,
		`"/slow": {concurrency: 7}`:                                     "takes: 1s, times: 7",
		`"*.example.org/*": {limit: 7/m}`:                               `host: "www.example.org"`,
		`"/tier": {limit: 7/m, tiers: {free: 8/m}}`:                     `tier: "free", times: 8`,
		`"/day": {limit: 7 daily Europe/Berlin}`:                        "times: 7",
		`"/page": {limits: [7/s, 70/m]}`:                                "times: 7",
		`"/key": {limit: 7/m, key: "apikey:X-Api-Key"}`:                 `# "/key" is not tested: it needs header:X-Api-Key`,
		`"/shadow": {limit: 7/m, mode: shadow}`:                         `# "/shadow" is not tested: it is in shadow`,
		`"/many": {limit: 20_000/s}`:                                    `# "/many" is not tested: it refuses none of 10000 requests`,
		`"/deny": {mode: deny}`:                                         "expect: denied, rule: \"/deny\", status: 403",
		`"/two": [{limit: 9/m}, {name: hidden, limit: 100/m, key: ip}]`: `# "hidden" is not tested: refused by /two (429, retry after 1m0s) first`,
	} {
		t.Run(rule, func(t *testing.T) {
			text := "version: 1\nproxies: {}\ndefault: 100/m\nendpoints:\n  " + rule + "\n"
			dir := folder(t, map[string]string{"weir.yaml": text})
			first := succeed(t, "", "test", "--init", filepath.Join(dir, "weir.yaml"))
			assert.Contains(t, first, want)
			tests := filepath.Join(dir, "weir.test.yaml")
			require.NoError(t, os.WriteFile(tests, []byte(first), 0o600))
			succeed(t, "", "test", tests)
			if strings.Contains(want, "times: 7") {
				for _, other := range []string{"6", "8"} {
					ends(t, exitBad, "", "test", tests, "--rules", write(t, "changed.yaml", strings.Replace(text, "7", other, 1)))
				}
			}
		})
	}
}

// docs/rules.md shows a test of its first file.
func TestTheFirstFileOfThePageHasItsTest(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules.md")
	require.NoError(t, err)
	_, rules, _ := strings.Cut(string(page), "```yaml\n")
	rules, _, _ = strings.Cut(rules, "```\n")
	files := filesOfPage.FindAllStringSubmatch(string(page), -1)
	require.Len(t, files, 1)
	dir := folder(t, map[string]string{"weir.yaml": rules, files[0][1]: files[0][2]})
	succeed(t, "", "test", filepath.Join(dir, files[0][1]))
}
