package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const good = `version: 1
ban: {cidrs: [198.51.100.0/24]}
tiers: {free: 100/h}
endpoints:
  "GET /users/{id}": {limit: 5/s, key: [user, tenant]}
  "POST /login": {limit: 5/m, key: "user|header:X-Device", escalate: {after: 3, within: 10m, ban: 1m}}
default: 100/m
`

const bad = `version: 1
default: {limit: 100/m, mode: shadwo}
endpoints:
  "GET /a": {limt: 5/s}
`

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		dropsEvery = 100 * time.Millisecond
		main()
	}
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}

// weir runs the command with args.
func weir(t *testing.T, in string, args ...string) (exit int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	exit = execute(strings.NewReader(in), &stdout, &stderr, args)
	return exit, stdout.String(), stderr.String()
}

// succeed runs the command, which must end with 0, and returns its output.
func succeed(t *testing.T, in string, args ...string) (out string) {
	t.Helper()
	out, _ = ends(t, exitGood, in, args...)
	return out
}

// ends runs the command, which must end with this exit code, and returns its output.
func ends(t *testing.T, want int, in string, args ...string) (out, err string) {
	t.Helper()
	exit, out, err := weir(t, in, args...)
	require.Equal(t, want, exit, "%v: %s", args, out+err)
	return out, err
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestCheckTellsWhatIsWrongAndWhere(t *testing.T) {
	path := write(t, "bad.yaml", bad)
	out, _ := ends(t, exitBad, "", "check", path)
	assert.Equal(t, path+`:2:31: default.mode: "shadwo" is not allowed here: did you mean "shadow"?
`+path+`:4:14: endpoints."GET /a".limt: unknown field "limt": did you mean "limit"?
`+path+": 2 problems\n", out)
}

func TestCheckOfAGoodFileEndsWithZero(t *testing.T) {
	path := write(t, "good.yaml", good)
	out := succeed(t, "", "check", path, "--keys", "tenant")
	assert.Equal(t, path+`:6:36: endpoints."POST /login".key: warning: a client that sends another user|header:X-Device each time has a new key each time: no limit stops it (a limit under global with key: ip would), it is never banned
`+path+": good\n", out)
	out = succeed(t, good, "check", "--keys=tenant", "-")
	assert.Contains(t, out, "-: good\n")
}

func TestCheckKnowsWhatItIsTold(t *testing.T) {
	out, _ := ends(t, exitBad, good, "check", "-")
	assert.Contains(t, out, `endpoints."GET /users/{id}".key.1: the key is not one of`)
	out, _ = ends(t, exitBad, good, "check", "-", "--keys", "tenant", "--tiers", "fre, premium")
	assert.Contains(t, out, `the tier "free" is never used: did you mean "fre"?`)
}

func TestCheckAsJSONIsReadByPrograms(t *testing.T) {
	out, _ := ends(t, exitBad, "", "check", "--json", write(t, "good.yaml", good), write(t, "bad.yaml", bad), "none.yaml")
	var reports []report
	require.NoError(t, json.Unmarshal([]byte(out), &reports), out)
	require.Len(t, reports, 3)
	require.Len(t, reports[1].Problems, 2)
	assert.False(t, reports[1].Good)
	assert.Equal(t, 2, reports[1].Problems[0].Line)
	assert.Equal(t, 31, reports[1].Problems[0].Column)
	assert.Equal(t, `endpoints."GET /a".limt`, reports[1].Problems[1].Field)
	assert.Contains(t, reports[2].Problems[0].Message, "none.yaml")

	out = succeed(t, good, "check", "--json", "--keys", "tenant", "-")
	require.NoError(t, json.Unmarshal([]byte(out), &reports))
	assert.True(t, reports[0].Good)
	assert.Len(t, reports[0].Warnings, 1)
}

func TestExplainTellsTheRulesOfARequest(t *testing.T) {
	out := succeed(t, good, "explain", "-", "--path", "/users/42", "--tier", "free", "--ip", "203.0.113.7", "--keys", "tenant")
	assert.Equal(t, `GET /users/42, routed as /users/{id}
1.  ban        line 2  not banned
2.  allow              not on the list
3.  tiers      line 3  "tier:free": 100/1h for "203.0.113.7"
4.  endpoints  line 5  "GET /users/{id}": 5/1s for "tenant:..." together, the key "join:0:10:tenant:..."
`, out)

	_, out, _ = weir(t, good, "explain", "-", "--keys=tenant", "--path", "/", "--ip", "198.51.100.4")
	assert.Equal(t, "GET /, routed as /\n1.  ban  line 2  banned: answered 403\n", out)

	const internal = "version: 1\nproxies: {}\nallow: {cidrs: [192.0.2.0/24]}\ndefault: 5/s\n"
	_, out, _ = weir(t, internal, "explain", "-", "--path", "/")
	assert.Contains(t, out, "on the list: not limited\nnote: the request comes from 192.0.2.1, as none was named: set IP (--ip)\n")
	_, out, _ = weir(t, internal, "explain", "-", "--path", "/", "--ip", "192.0.2.1")
	assert.NotContains(t, out, "note")

	out = succeed(t, good, "explain", "-", "--keys=tenant", "--json", "--method", "POST", "--path", "/login", "--header", "X-Device: 7")
	var explanation struct {
		Steps []struct{ Section, Key, Limit string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &explanation), out)
	last := explanation.Steps[len(explanation.Steps)-1]
	assert.Equal(t, "endpoints header:X-Device:7 5/1m", last.Section+" "+last.Key+" "+last.Limit)
}

func TestExplainKnowsHostsAndWhatAServeMuxMakesOfASlash(t *testing.T) {
	const hosted = "version: 1\nendpoints: {\"*.example.org/*\": 5/s, \"/static/\": 2/s}\ndefault: 9/s\n"
	for _, test := range []struct {
		args []string
		last string
	}{
		{[]string{"--path", "/news", "--host", "A.Example.org.:8080"}, `"*.example.org/*": 5/1s for "192.0.2.1"`},
		{[]string{"--path", "/static/a", "--host", "example.org", "--servemux"}, `"/static/": 2/1s for "192.0.2.1"`},
		{[]string{"--path", "/news"}, "note: some endpoints are for one host, but the request names no host: set Host (--host)"},
	} {
		out := succeed(t, hosted, append([]string{"explain", "-"}, test.args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		assert.True(t, strings.HasSuffix(lines[len(lines)-1], test.last), out)
	}
}

func TestSchemaIsJSON(t *testing.T) {
	out := succeed(t, "", "schema")
	assert.True(t, json.Valid([]byte(out)))
}

func TestAMistakeOnTheCommandLineIsTold(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "Usage:"},
		{[]string{"chekc"}, "Did you mean this?\n\tcheck"},
		{[]string{"frobnicate"}, `weir: unknown command "frobnicate"`},
		{[]string{"help", "tpo"}, "Did you mean this?\n\ttop"},
		{[]string{"check", "--jsno", "x"}, "weir check: there is no flag --jsno: weir check --help lists the flags\n"},
		{[]string{"serve", "x", "--log-level=loud"}, "weir serve: --log-level: "},
		{[]string{"top", "--n", "1", "--rul=x"}, "there is no flag --rul"},
		{[]string{"top", "--n", "one"}, "--n: want a value of type int"},
		{[]string{"check"}, "weir check: want: weir check FILE...\n"},
		{[]string{"simulate", "a"}, "want: weir simulate FILE [NEW-FILE] LOG\n"},
		{[]string{"simulate", "a", "b", "c", "d"}, "want: weir simulate FILE"},
		{[]string{"peek", "--key=x"}, "want: weir peek FILE --key KEY\n"},
		{[]string{"ban"}, "want: weir ban KEY\n"},
		{[]string{"ban", " "}, "the key is empty"},
		{[]string{"check", "--bogus", "x"}, "there is no flag --bogus"},
		{[]string{"explain", "-"}, "name a --path"},
		{[]string{"explain", "-", "--keys=tenant", "--path", "x"}, `path "x" does not begin with /`},
		{[]string{"explain", "-", "--keys=tenant", "--path", "/", "--ip", "x"}, `ip "x" is not an address`},
		{[]string{"explain", "-", "--keys=tenant", "--path", "/", "--host", "http://x"}, `host "http://x" is not a host`},
		{[]string{"explain", "-", "--path", "/", "--header", "x"}, "want a name, a colon and a value"},
		{[]string{"schema", "x"}, "want: weir schema\n"},
	} {
		exit, out, err := weir(t, good, test.args...)
		assert.Equal(t, exitUsage, exit, test.args)
		assert.Contains(t, err, test.want, test.args)
		assert.Empty(t, out, test.args)
	}
	_, err := ends(t, exitBad, bad, "explain", "-", "--path", "/")
	assert.Contains(t, err, `did you mean "limit"?`)
}

// A proxy that asks takes the 200 of a stream for a yes.
func TestStreamsAreRefusedWhereAProxyAsks(t *testing.T) {
	for text, at := range map[string]string{
		"version: 1\nproxies: {}\nendpoints: {\"GET /events\": {limit: 2/m, refusal: {stream: true}}}\n": "3:51: endpoints.\"GET /events\".refusal.stream: ",
		"version: 1\nproxies: {}\nrefusal: {stream: true}\nendpoints: {\"GET /events\": {limit: 2/m}}\n": "3:11: refusal.stream: ",
	} {
		file := write(t, "weir.yaml", text)
		want := "weir.yaml:" + at + "answers with status 200, which a proxy that asks takes for a yes"
		assert.Equal(t, file+": good\n", succeed(t, "", "check", file))
		out, _ := ends(t, exitBad, "", "check", "--ask", file)
		assert.Contains(t, out, want)
		_, said := ends(t, exitBad, "", "serve", file, "--proxy", "127.0.0.1:0=http://127.0.0.1:1", "--ask", "127.0.0.1:0")
		assert.Contains(t, said, want)
	}
}

func TestCheckFailsOnWarningsIfTheyAreStrict(t *testing.T) {
	const warned = "version: 1\nproxies: {header: {name: X-Real-IP}}\ndefault: 5/s\n"
	file := write(t, "good.yaml", "version: 1\nproxies: {}\ndefault: 5/s\n")
	for _, test := range []struct {
		text string
		args []string
		exit int
	}{
		{warned, []string{"check", "-"}, exitGood},
		{warned, []string{"check", "--strict", "-", file}, exitBad},
		{"", []string{"check", "--strict", file}, exitGood},
		{"", []string{"check", "--strict", rulesExample + "/weir.yaml"}, exitGood},
	} {
		exit, out, err := weir(t, test.text, test.args...)
		assert.Equal(t, test.exit, exit, "%v %s %s", test.args, out, err)
		assert.Equal(t, test.text != "", strings.Contains(out, "warning: "), out)
	}
	out, err := ends(t, exitBad, "", "check", "nowhere.yaml", file)
	assert.Equal(t, file+": good\n", out)
	assert.Equal(t, "weir check: stat nowhere.yaml: no such file or directory\n", err)
}

func TestErrorsHaveNoNamesOfPackages(t *testing.T) {
	const nowhere = "--redis=redis://127.0.0.1:1"
	for want, args := range map[string][]string{
		"weir ban: dial tcp 127.0.0.1:1: ":                              {"ban", nowhere, "--for", "1m", "user:1"},
		"weir ban: --for: period \"-1m\" has a sign\n":                  {"ban", nowhere, "--for", "-1m", "user:1"},
		"weir rules: read Redis key \"limits\": dial tcp 127.0.0.1:1: ": {"rules", nowhere},
		"weir explain: stat nowhere.yaml: no such file or directory\n":  {"explain", "nowhere.yaml", "--path", "/"},
		"weir check: stat nowhere.yaml: no such file or directory\n":    {"check", "nowhere.yaml"},
	} {
		exit, out, err := weir(t, "", args...)
		require.NotZero(t, exit)
		require.True(t, strings.HasPrefix(err+out, want), "%v: %s", args, err+out)
	}
}
