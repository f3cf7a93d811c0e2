package rules_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// secretPlaces are where a credential stands in a rules file, or is put by mistake. The
// last of them also has it in the file of bans.
var secretPlaces = []string{
	"ban: {keys: [SECRET]}",
	"ban: {keys: [user:1, \"SECRET\"]}",
	"ban: {keys: SECRET}",
	"ban: {keys: SECRET, SECRET}",
	"ban: {keys: {SECRET: }}",
	"ban: {SECRET: 1}",
	"ban: {SECRET: 1, SECRET: 2}",
	"ban: SECRET",
	"ban: [SECRET]",
	"ban:\n  keys:\n  - SECRET\n  - x: SECRET: y",
	"ban:\n  keys:\n  - SECRET\n - SECRET",
	"ban:\n  keys: [SECRET\ndefault: 1/s",
	"ban:\n  keys:\n  - 'SECRET\n",
	"ban:\n  keys:\n  - \"SECRET\\q\"\n",
	"ban:\n  keys:\n  - &SECRET x\n  - *SECRET\n  - *xSECRET\n",
	"ban:\n  keys: &SECRET [*SECRET]",
	"ban:\n  keys:\n  - !SECRET x\n",
	"ban:\n  keys:\n  - |\n    SECRET\n",
	"ban:\n  keys:\n  SECRET\n",
	"ban:\nSECRET\n",
	"SECRET\n",
	"SECRET: x\n",
	"%SECRET\n",
	"? SECRET\n",
	"ban: {cidrs: [SECRET]}",
	"ban: {cidrs: [198.51.100.0/SECRET]}",
	"ban: {status: SECRET}",
	"allow: {cidrs: [SECRET]}",
	"default: {limit: 1/s, key: user, overrides: {SECRET: 1/s}}",
	"default: {limit: 1/s, key: bearer, overrides: {\"bearer:SECRET\": {limt: 1/s}, SECRET: x}}",
	"default: {limit: 1/s, key: \"header:x-a\", overrides: {\"header:x-a:SECRET\": {limits: [1/s, 1/s]}, SECRET: 1/s, SECRET: 2/s}}",
	"allow: {keys: [SECRET]}",
	"allow: {keys: [\"header:x-a:SECRET\", \"cookie:a:SECRET\"]}",
	"proxies: {trusted: [SECRET]}",
	"default: {limit: 1/s, key: SECRET}",
	"default: {limit: 1/s, key: [ip, SECRET, SECRET]}",
	"default: {limit: 1/s, key: \"ip|SECRET\"}",
	"default: {limit: 1/s, key: \"SECRET|ip\"}",
	"default: [{limit: 1/s, key: \"SECRET\"}, {limit: 2/s, key: \"SECRET\"}]",
	"default: {limit: 1/s, key: \"apikey:X-Api-Key\", overrides: {\"SECRET\": 2/s}}",
	"default: {limit: 1/s, key: \"SECRET\", overrides: {\"user:1\": 2/s}}",
	"default: {concurrency: 2, key: \"SECRET\"}",
	"default: {limit: 1/s, key: \"header:X-Api-Key: SECRET\"}",
	"default: {limit: 1/s, key: \"cookie:session=SECRET\"}",
	"default: {limit: 1/s, cost: {header: \"Authorization: SECRET\"}}",
	"default: {limit: 1/s, key: \"apikey:X-Api-Key\"}\nban: {keys: [SECRET]}",
	"default: {limit: 1/s, key: [\"apikey:X-Api-Key\", bearer]}\nban: {keys: [SECRET]}",
	"default: 1/s\nban: {file: banned.txt}",
	"default: 1/m\nban: {keys: [user:1], file: banned.txt}",
}

// secretForms are what such a credential looks like as a key.
var secretForms = []string{
	"SECRET", "apikey:SECRET", "apikey: SECRET", "bearer:SECRET", "bearer:a SECRET", "user:SECRET", "header:X-Api-Key:SECRET",
	"header:x-api-key:SECRET", "cookie:s e:SECRET", "host:EXAMPLE.SECRET", "method:SECRET", "join:6:SECRET", "hash:SECRET",
	"fp:SECRET", "tenant:SECRET", "password=SECRET", "AKIA SECRET", "root:SECRET:0:0::/root:/bin/sh", "SECRET@example.org",
}

// requireSecret requires that nothing of it is in a text but by chance.
func requireSecret(t require.TestingT, secret, text string) {
	const window = 6
	lower := strings.ToLower(text)
	for i := range len(secret) - window + 1 {
		if part := strings.ToLower(secret[i : i+window]); strings.Contains(lower, part) {
			require.Fail(t, "it is told", "%q of the secret is in %s", part, text)
		}
	}
}

func TestNoProblemWarningLogOrExplanationHasAKeyInIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	told, good := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		secret := rapid.StringMatching(`[b-y][b-y0-9]{15,60}`).Draw(rt, "secret")
		form := strings.ReplaceAll(rapid.SampledFrom(secretForms).Draw(rt, "form"), "SECRET", secret)
		place := rapid.SampledFrom(secretPlaces).Draw(rt, "place")
		text := "version: 1\n" + strings.ReplaceAll(place, "SECRET", form)
		if rapid.Bool().Draw(rt, "without kind") {
			text = "version: 1\n" + strings.ReplaceAll(place, "SECRET", secret)
		}
		require.NoError(rt, os.WriteFile(path, []byte(text), 0o600))
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{form, secret, "# " + form, "user:1 " + form, form + "/24"}), 1, 3).Draw(rt, "lines")
		require.NoError(rt, os.WriteFile(filepath.Join(dir, "banned.txt"), []byte(strings.Join(lines, "\n")), 0o600))

		var log bytes.Buffer
		o := rules.Options{Config: middleware.Config{Logger: slog.New(slog.NewJSONHandler(&log, nil))}}
		if rapid.Bool().Draw(rt, "a key of the application's") {
			o.Keys = map[string]keyfunc.Func{"tenant": keyfunc.User}
		}
		loaded, err := rules.Load(path, o)
		if err != nil {
			told++
			requireSecret(rt, secret, err.Error())
			var problems *rules.Error
			require.True(rt, errors.As(err, &problems), "%v", err)
			asJSON, err := json.Marshal(problems)
			require.NoError(rt, err)
			requireSecret(rt, secret, string(asJSON))
		} else {
			good++
			asJSON, err := json.Marshal(loaded.Warnings())
			require.NoError(rt, err)
			requireSecret(rt, secret, string(asJSON))
			explained, err := loaded.Explain(rules.Request{Path: "/"})
			require.NoError(rt, err)
			asJSON, err = json.Marshal(explained)
			require.NoError(rt, err)
			requireSecret(rt, secret, string(asJSON))
		}

		o.Fallback = []byte("version: 1\ndefault: 1/s")
		watcher, err := rules.Watch(t.Context(), path, o)
		require.NoError(rt, err)
		if status := watcher.Status(); status.Err != nil {
			requireSecret(rt, secret, status.Err.Error())
		}
		require.NoError(rt, watcher.Close())
		requireSecret(rt, secret, log.String())
	})
	if !testing.Short() { // with the few files of a short run, all may be refused
		require.Positive(t, told)
		require.Positive(t, good)
	}
}
