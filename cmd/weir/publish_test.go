package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisrules"
)

const loose = "version: 1\ndefault: 200/m\n"

func TestPublishedRulesAreThoseOfTheFleet(t *testing.T) {
	url, client := startRedis(t)
	old, newer := write(t, "old.yaml", "version: 1\ndefault: 100/m\n"), write(t, "new.yaml", loose)
	run := func(want int, args ...string) (out, err string) {
		t.Helper()
		exit, out, err := weir(t, "", append(args, url)...)
		require.Equal(t, want, exit, out+err)
		return out, err
	}
	_, said := run(exitBad, "rules")
	assert.Contains(t, said, "the key does not exist")
	_, said = run(exitBad, "publish", write(t, "bad.yaml", bad))
	assert.Contains(t, said, `did you mean "limit"?`)
	_, said = run(exitBad, "rules")
	assert.Contains(t, said, "the key does not exist", "what is wrong is not published")

	out, _ := run(exitGood, "publish", old, "--if-version", "none")
	first := rules.VersionOf([]byte("version: 1\ndefault: 100/m\n"))
	assert.Equal(t, "limits is version "+first+" from now on\n", out)
	service, err := redisrules.Watch(t.Context(), client, "limits", rules.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = service.Close() })
	limit := func() string { all := service.RateLimit.Rules(); return all[0].LimitText() }
	assert.Equal(t, "100/1m", limit())
	assert.Equal(t, first, service.Status().Version)

	out, _ = run(exitGood, "diff", "redis", newer)
	assert.Equal(t, "default: limit 100/1m → 200/1m\n", out)
	run(exitDiffers, "diff", "redis", newer, "--exit-code")
	out, _ = run(exitGood, "diff", "redis", old, "--exit-code")
	assert.Equal(t, "they are the same\n", out)

	_, said = run(exitBad, "publish", newer, "--if-version", "000000000000")
	assert.Contains(t, said, "are not of that version, but of \""+first+"\"")
	out, _ = run(exitGood, "publish", "--json", newer, "--if-version", first)
	var made published
	require.NoError(t, json.Unmarshal([]byte(out), &made))
	assert.Equal(t, published{"limits", rules.VersionOf([]byte(loose)), []rules.Problem{}}, made)
	await(t, func() bool { return limit() == "200/1m" })

	out, said = run(exitGood, "rules")
	assert.Equal(t, loose, out)
	assert.Equal(t, "limits, version "+made.Version+"\n", said)

	doubted := write(t, "doubted.yaml", "version: 1\ndefault: 100/m\nendpoints: {\"/static/\": 5/s}\n")
	_, said = run(exitBad, "publish", doubted, "--strict")
	assert.Contains(t, said, "warning: ")
	assert.Contains(t, said, "it is not published")
	_, said = run(exitGood, "publish", doubted)
	assert.Contains(t, said, "warning: ")

	require.NoError(t, client.HSet(t.Context(), "basket", "apples", 5).Err())
	_, said = run(exitBad, "publish", newer, "--rules-key=basket")
	assert.Contains(t, said, "WRONGTYPE")
	assert.Equal(t, "5", client.HGet(t.Context(), "basket", "apples").Val(), "what is no rules is left alone")

	require.NoError(t, client.Set(t.Context(), "limits", "version: 9\n", 0).Err())
	_, said = run(exitUsage, "publish", old, "--if-version=")
	assert.Contains(t, said, "want a version, or none")
}

func TestADiffIsOfFilesAndOfTheStandardInput(t *testing.T) {
	old := write(t, "old.yaml", "version: 1\ndefault: 100/m\n")
	out := succeed(t, loose, "diff", "--json", old, "-")
	var found difference
	require.NoError(t, json.Unmarshal([]byte(out), &found))
	assert.True(t, found.Differ)
	require.Len(t, found.Changes, 1)
	assert.Equal(t, rules.Change{Path: "default", Text: "limit 100/1m → 200/1m"}, found.Changes[0])
	_, out, _ = weir(t, "version: 1\ndefault: {requests: 100, window: 60}\n", "diff", old, "-", "--exit-code")
	assert.Equal(t, "they are written differently but mean the same\n", out)
	_, out, _ = weir(t, "version: 1\ndefault: {requests: 100, window: 60}\n", "diff", old, "-", "--json")
	assert.Contains(t, out, `"changes": []`)
	_, said := ends(t, exitBad, bad, "diff", old, "-")
	assert.True(t, strings.Contains(said, `did you mean "shadow"?`), said)
}
