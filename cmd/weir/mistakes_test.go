package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const rulesExample = "../../_examples/rules"

// mistakes are changes of the example's files after which the rules are still valid. The tests in its folder tests
// were written before the mistakes, from what the rules are for, by the same author.
var mistakes = []struct{ file, old, new, what string }{
	{"files/logins.yaml", `"POST /login"`, `"GET /login"`, "the wrong method"},
	{"files/customers.yaml", "limit: 100/1m", "limit: 100/1h", "per hour in place of per minute"},
	{"weir.yaml", "  premium:    {limit: 10_000/h}\n", "", "a tier without its limit"},
	{"files/keys.yaml", "proxies: {trusted: [10.0.0.0/8]}", "proxies: {}", "a proxy left out"},
	{"files/logins.yaml", "counts: 2xx, ", "", "counts forgotten"},
	{"files/logins.yaml", "counts: [401, 403]", "counts: [401]", "an outcome forgotten"},
	{"files/keys.yaml", "key: user, no_key: skip", "key: ip", "an account counted by address"},
	{"files/tenants.yaml", "key: [user, model]", "key: user", "half of a key"},
	{"weir.yaml", "algorithm: token_bucket, burst: 10", "algorithm: token_bucket", "a burst forgotten"},
	{"files/words.yaml", "{limit: 1/s,", "{limit: 1/s, mode: shadow,", "a rule left in shadow"},
	{"files/tokens.yaml", "missing: 1_000, settle: true", "missing: 1_000", "a reservation that is not settled"},
	{"files/plans.yaml", "100 daily America/New_York", "100 daily", "a time zone forgotten"},
	{"files/customers.yaml", `"user:42"`, `"user:24"`, "a customer's limit for another one"},
	{"files/partners.yaml", `["GET /healthz"]`, `["GET /*"]`, "far too many requests exempt"},
	{"files/tenants.yaml", ", no_key: bad_request", "", "requests without a tenant let through"},
	{"files/hosts.yaml", `"api.example.org/*"`, `"api.example.com/*"`, "a host misspelt"},
	{"files/keys.yaml", "ban: 15m", "ban: 15s", "seconds in place of minutes"},
	{"files/switch.yaml", `"POST /export"`, `"/export"`, "a method forgotten"},
	{"weir.yaml", "global:  {limit: 10_000/s", "global:  {limit: 1_000/s", "a zero forgotten"},
	{"weir.yaml", "on_outage: closed,", "on_outage: open,", "the wrong policy for outages"},
}

func testOfExample(t *testing.T, file, text string) (exit int, out string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(rulesExample)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	exit, out, _ = weir(t, "", "check", "--keys", "model", filepath.Join(dir, file))
	require.Equal(t, exitGood, exit, out)
	exit, out, _ = weir(t, "", "test", "--keys", "model", filepath.Join(dir, "tests", filepath.Base(file)))
	return exit, out
}

func TestTheExamplesAreAsTheirTestsExpect(t *testing.T) {
	files, err := filepath.Glob(rulesExample + "/files/*.yaml")
	require.NoError(t, err)
	for _, path := range append(files, rulesExample+"/weir.yaml") {
		if filepath.Base(path) == "part.yaml" {
			continue // it is about how a file is written
		}
		file, err := filepath.Rel(rulesExample, path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		exit, out := testOfExample(t, file, string(text))
		assert.Equal(t, exitGood, exit, out)
	}
}

func TestTestsFindMistakes(t *testing.T) {
	require.Len(t, mistakes, 20)
	found := 0
	for _, m := range mistakes {
		text, err := os.ReadFile(filepath.Join(rulesExample, m.file))
		require.NoError(t, err)
		require.Contains(t, string(text), m.old)
		exit, out := testOfExample(t, m.file, strings.Replace(string(text), m.old, m.new, 1))
		if exit != exitGood {
			found++
			continue
		}
		t.Logf("not found: %s: %s\n%s", m.file, m.what, out)
	}
	assert.GreaterOrEqual(t, found, 18)
}
