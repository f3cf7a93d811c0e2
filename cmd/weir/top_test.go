package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/redisbans"
)

func TestNamesStandInPlaceOfDigests(t *testing.T) {
	url, client := startRedis(t)
	t.Setenv("WEIR_SECRET", "0123456789abcdef")
	secret := []byte("0123456789abcdef")
	store := patientStore(t, client, string(secret))
	for key, cost := range map[string]int64{"user:known": 10, "2001:db8::/64": 5, "user:unknown": 1} {
		use(t, store, "", limiter.PerHour(10).With(limiter.SlidingLog), key, cost)
	}
	list, err := redisbans.New(t.Context(), client, redisbans.Options{Secret: secret})
	require.NoError(t, err)
	require.NoError(t, list.Ban(t.Context(), "user:known", 0))
	digest := keyfunc.NewDigester(secret).Digest("user:known").String()
	file := write(t, "limits.yaml", "version: 1\ndefault: {limit: 10/h sliding-log, key: user|ip}\n")
	keys := "user:known\n\n 2001:db8::7 \nuser:another\n"
	for _, args := range [][]string{{"top"}, {"bans"}, {"peek", file, "--key", digest}} {
		out := succeed(t, keys, append(args, url, "--names=-")...)
		assert.Contains(t, out, "user:known", args)
		if args[0] == "top" {
			assert.Contains(t, out, "2001:db8::/64", "an address is the key that it is counted under")
			assert.Equal(t, 1, strings.Count(out, keyfunc.NewDigester(secret).Digest("user:unknown").String()))
		}
		out = succeed(t, keys, append(args, url, "--names=-", "--json")...)
		assert.Contains(t, out, `"key": "user:known"`)
		assert.Contains(t, out, `"digest": "`+digest+`"`)

		t.Setenv("WEIR_SECRET", "fedcba9876543210")
		if args[0] == "top" {
			_, out, _ = weir(t, keys, append(args, url, "--names=-")...)
			assert.NotContains(t, out, "user:known", "under another secret it is another digest")
		}
		t.Setenv("WEIR_SECRET", "0123456789abcdef")
		_, said := ends(t, exitUsage, "user:1\nsome:secret\n", append(args, url, "--names=-")...)
		assert.Contains(t, said, "--names: line 2: no request can have this key")
		assert.NotContains(t, said, "some:secret")
	}
}
