package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/redisbans"
)

var (
	timeFields = []string{"at", "until", "from", "to", "first", "begin", "time", "since"}
	snakeCase  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

// requireForm checks JSON against output.go's comment, and adds the paths of fields to paths.
func requireForm(t *testing.T, v any, path, name string, paths map[string]bool) {
	t.Helper()
	switch v.(type) {
	case string, float64, bool:
		paths[path] = true
	}
	switch v := v.(type) {
	case nil:
		t.Errorf("%s is null: what there is not is left out", path)
	case map[string]any:
		for key, inner := range v {
			assert.Regexp(t, snakeCase, key, path)
			requireForm(t, inner, strings.TrimPrefix(path+"."+key, "."), key, paths)
		}
	case []any:
		for _, inner := range v {
			requireForm(t, inner, path+"[]", name, paths)
		}
	case string:
		assert.NotContains(t, v, "0001-01-01", path)
		assert.False(t, strings.HasSuffix(name, "_seconds"), "%s is %q", path, v)
		if slices.Contains(timeFields, name) {
			at, err := time.Parse(time.RFC3339, v)
			assert.NoError(t, err, path)
			assert.Equal(t, time.UTC, at.Location(), path)
		}
		ofFile := name == "old" || name == "new" // a value as rules files write it
		if _, err := time.ParseDuration(v); err == nil && v != "0" && !ofFile {
			t.Errorf("%s is %q: a duration is a number of seconds", path, v)
		}
	case float64:
		if strings.HasSuffix(name, "_seconds") {
			assert.GreaterOrEqual(t, v, 0.0, path)
		}
	}
}

// The JSON of all commands has one form, and testdata/json.md lists its fields. To update the list:
// WEIR_UPDATE=1 go test ./cmd/weir -run OneForm
func TestTheJSONOfAllCommandsHasOneForm(t *testing.T) {
	url, client := startRedis(t)
	t.Setenv("WEIR_REDIS", strings.TrimPrefix(url, "--redis="))
	store := patientStore(t, client, "")
	for _, tier := range []string{"", "free"} {
		use(t, store, tier, limiter.PerHour(10), "user:42", 10)
	}
	running, err := limiter.NewConcurrency("default", "", 5)
	require.NoError(t, err)
	require.NoError(t, store.Decide(t.Context(), []limiter.Charge{{Quota: running, Key: "user:42", Cost: 2}}))
	file := write(t, "limits.yaml", `version: 1
default:
  limit: 10/h
  key: user|ip
  tiers: {free: 10/h}
  concurrency: {max: 5, queue: 2, max_wait: 1500ms}
  cost: {units: 2, settle: true}
  counts: [2xx]
  when: after
  soft: 80%
  escalate: {after: 3, within: 1m, ban: 1h}
endpoints: {"/off": {limit: 1/s, mode: off}, "/static/": {limit: 9/s, mode: shadow, key: user|ip, overrides: {"user:42": 5/h}}, "/deny": {mode: deny}}
`)
	other := write(t, "other.yaml", "version: 1\ndefault: {limit: 5/h, key: user|ip, tiers: {free: 2/h}}\n")
	log := write(t, "access.log", attacked())
	empty := write(t, "empty.log", line("192.0.2.1", 0, "GET /"))
	keys := write(t, "keys.txt", "user:42\n")

	byCommand, has := map[string]map[string]bool{}, []string{}
	run := func(args ...string) {
		t.Helper()
		exit, out, said := weir(t, "", append(args, "--json")...)
		require.Contains(t, []int{exitGood, exitBad, exitUsage}, exit, said)
		var v any
		require.NoError(t, json.Unmarshal([]byte(out), &v), "%s: %s%s", args, out, said)
		if byCommand[args[0]] == nil {
			byCommand[args[0]] = map[string]bool{}
			has = append(has, args[0])
		}
		requireForm(t, v, "", "", byCommand[args[0]])
	}
	run("check", file, write(t, "bad.yaml", bad), write(t, "calendar.yaml", "version: 1\ndefault: 3 daily\n"))
	run("explain", file, "--path=/static/a", "--servemux", "--user=42")
	run("explain", file, "--path=/", "--user=42", "--tier=free")
	run("diff", file, other)
	run("diff", file, file)
	run("test", writeTests(t, "{request: GET /, expect: refused}"), "--rules", file)
	run("test", writeTests(t, "{request: GET /}"))
	simulated := write(t, "limited.yaml", limited)
	run("simulate", simulated, log)
	run("simulate", simulated, write(t, "looser.yaml", strings.ReplaceAll(limited, "2/1m", "9/1m")), log)
	run("simulate", simulated, empty)
	run("recommend", log)
	run("publish", file)
	run("rules")
	run("top", "--names", keys)
	run("peek", file, "--key=user:42")
	run("reset", file, "--key=user:42")
	run("ban", "user:42", "--for=1h")
	banned, err := redisbans.New(t.Context(), client, redisbans.Options{})
	require.NoError(t, err)
	_, err = banned.Escalate(t.Context(), "user:44", "default", bans.Escalation{Ban: time.Hour, Factor: 1, Max: time.Hour})
	require.NoError(t, err)
	run("ban", "user:43", "--reason=card testing", "--by=ann")
	run("bans", "--names", keys)
	run("unban", "user:43")
	run("unban", "user:43")
	for _, c := range commands() {
		if flagsOf(t, c.name).Lookup("json") != nil {
			assert.Contains(t, has, c.name, "its JSON is tried")
		}
	}

	var table strings.Builder
	table.WriteString("| command | fields |\n|---|---|\n")
	for _, name := range has {
		if name == "simulate" || name == "recommend" {
			continue
		}
		fields := strings.Join(slices.Sorted(maps.Keys(byCommand[name])), "`, `")
		fmt.Fprintf(&table, "| `%s` | `%s` |\n", name, fields)
	}
	const list = "testdata/json.md"
	if os.Getenv("WEIR_UPDATE") != "" {
		require.NoError(t, os.WriteFile(list, []byte(table.String()), 0o644))
	}
	written, err := os.ReadFile(list)
	require.NoError(t, err)
	require.Equal(t, table.String(), string(written))
}
