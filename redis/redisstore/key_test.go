package redisstore

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

func tiered(t testing.TB, rule, tier string) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewQuota(rule, tier, limiter.Limit{Events: 10, Per: phase.Long()})
	require.NoError(t, err)
	return q
}

func TestASlotIsWhereRedisPutsTheKey(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	client := connect(t, server)
	random := rand.New(rand.NewPCG(7, 8))
	keys := newKeys("weir", nil)
	q := tiered(t, "rule", "tier")
	pipeline := client.Pipeline()
	var want []int64
	var got []*redis.IntCmd
	for i := range 2000 {
		tag := keys.tag(fmt.Sprint("key ", i))
		if i%2 == 0 { // slot takes any bytes, and names are made of few
			for j := range tag {
				tag[j] = byte(random.IntN(256))
			}
			tag = [tagSize]byte(bytes.ReplaceAll(bytes.ReplaceAll(tag[:], []byte("{"), []byte("(")), []byte("}"), []byte(")")))
		}
		want = append(want, int64(slot(tag)))
		got = append(got, pipeline.ClusterKeySlot(context.Background(), keys.name(tag, q)))
	}
	_, err := pipeline.Exec(context.Background())
	require.NoError(t, err)
	for i := range want {
		require.Equal(t, got[i].Val(), want[i], "slot is not where Redis puts the key")
	}
}

func TestANameIsAPrefixADigestAndTheRule(t *testing.T) {
	for _, tt := range []struct{ prefix, rule, tier, want string }{
		{"weir", "ip", "", "weir:1:{ypeBEsobvcr6wjGzmiPcTQ}:ip"},
		{"weir", "plan", "premium", "weir:1:{ypeBEsobvcr6wjGzmiPcTQ}:plan:premium"},
		{"a:b", "GET /search", "", "a:b:1:{ypeBEsobvcr6wjGzmiPcTQ}:GET /search"},
		{"weir", "a:b", "c", "weir:1:{ypeBEsobvcr6wjGzmiPcTQ}:a%3Ab:c"},
		{"weir", "a", "b:c", "weir:1:{ypeBEsobvcr6wjGzmiPcTQ}:a:b%3Ac"},
		{"weir", "a%3Ab", "%", "weir:1:{ypeBEsobvcr6wjGzmiPcTQ}:a%253Ab:%25"},
		{"weir", "{a}", "}{", "weir:1:{ypeBEsobvcr6wjGzmiPcTQ}:{a}:}{"},
	} {
		keys := newKeys(tt.prefix, nil)
		assert.Equal(t, tt.want, keys.name(keys.tag("a"), tiered(t, tt.rule, tt.tier)))
	}
}

// The answers are from another program:
//
//	printf %s "$key" | openssl dgst -sha256 -mac HMAC -macopt key:"$secret"
//	printf %s "$key" | openssl dgst -sha256
//
// and the first is case 2 of RFC 4231 besides, though with a secret too short to be allowed.
func TestADigestIsTheBeginningOfAnHMACUnderTheSecret(t *testing.T) {
	for _, tt := range []struct{ secret, key, want string }{
		{"Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c7"},
		{"0123456789abcdef", "203.0.113.7", "e25e7aa15f18e79a3fd02a8fa35b11c2"},
		{"0123456789abcdef", "", "496dc93fa2d26eae500ec0bc37a12270"},
		{"", "203.0.113.7", "fec52565aa0cf18f57d7cf5b3ac72850"},
		{"", "", "e3b0c44298fc1c149afbf4c8996fb924"},
		{"", "abc", "ba7816bf8f01cfea414140de5dae2223"},
	} {
		want, err := hex.DecodeString(tt.want)
		require.NoError(t, err)
		keys := newKeys("weir", []byte(tt.secret))
		for range 3 { // the hashes are used again
			tag := keys.tag(tt.key)
			got, err := base64.RawURLEncoding.DecodeString(string(tag[:]))
			require.NoError(t, err)
			assert.Equal(t, want, got, "of %q under %q", tt.key, tt.secret)
		}
	}
}

func TestTwoCountersNeverShareAName(t *testing.T) {
	// Few characters, so that what differs is where they separate.
	names := rapid.StringOfN(rapid.SampledFrom([]rune(":%3A25a{}")), 1, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		rule, tier := names.Draw(t, "rule"), rapid.OneOf(names, rapid.Just("")).Draw(t, "tier")
		other, otherTier := names.Draw(t, "other rule"), rapid.OneOf(names, rapid.Just("")).Draw(t, "other tier")
		if rule == other && tier == otherTier {
			t.Skip("the same")
		}
		name := func(rule, tier string) string {
			q, err := limiter.NewQuota(rule, tier, limiter.PerHour(10))
			if err != nil {
				t.Fatal(err)
			}
			keys := newKeys("weir", nil)
			return keys.name(keys.tag("key"), q)
		}
		if name(rule, tier) == name(other, otherTier) {
			t.Fatalf("rule %q tier %q and rule %q tier %q share the name %q", rule, tier, other, otherTier, name(rule, tier))
		}
	})
}

// What a client sends is no part of a name, whatever it is.
func TestNothingOfAKeyIsInRedis(t *testing.T) {
	server, client := startRedis(t)
	keys := []string{
		"", "{", "}", "{}", "{other}", "}:{", "weir:{aaaaaaaaaaaaaaaaaaaaaa}:rule", "a\r\nFLUSHALL\r\n", "\n", "\x00",
		"203.0.113.7", "user:42", "\xff\xfe", "' .. redis.call('FLUSHALL') .. '", strings.Repeat("long", 1<<14),
	}
	form := regexp.MustCompile(`^weir:1:\{[A-Za-z0-9_-]{22}\}:rule$`)
	for _, secret := range []string{"", "a secret of 16 bytes"} {
		s := newStore(client, Options{ForgetRefusals: true, Secret: []byte(secret)}).Within(10 * time.Second)
		q := tiered(t, "rule", "")
		for _, key := range keys {
			assert.Equal(t, int64(9), decideOne(t, s, q, key, 1).Remaining, "%.20q is counted apart", key)
			assert.Equal(t, int64(8), decideOne(t, s, q, key, 1).Remaining, "%.20q is the same each time", key)
		}
		stored := strings.Split(server.MustDo("KEYS", "*"), "\n")
		require.Len(t, stored, len(keys))
		for _, name := range stored {
			assert.Regexp(t, form, name)
			value := server.MustDo("GET", name)
			for _, key := range keys {
				if len(key) > 3 {
					assert.NotContains(t, name, key)
					assert.NotContains(t, value, key)
				}
			}
		}
		server.MustDo("FLUSHALL")
	}
}

func TestASecretChangesEveryName(t *testing.T) {
	q := tiered(t, "rule", "")
	seen := map[string]string{}
	for _, secret := range []string{"", "0123456789abcdef", "0123456789abcdeg", "0123456789abcdef\x01"} {
		keys := newKeys("weir", []byte(secret))
		for _, key := range []string{"a", "b", "", "203.0.113.7"} {
			name := keys.name(keys.tag(key), q)
			by := fmt.Sprintf("%q under %q", key, secret)
			assert.Empty(t, seen[name], "the name of %s is that of another", by)
			seen[name] = by
		}
	}
}

func TestASecretCanBeWipedAfterNew(t *testing.T) {
	secret := []byte("0123456789abcdef")
	keys := newKeys("weir", secret)
	clear(secret)
	want := newKeys("weir", []byte("0123456789abcdef"))
	assert.Equal(t, want.tag("key"), keys.tag("key"))
}

func TestPrefixesAndSecretsAreApart(t *testing.T) {
	_, client := startRedis(t)
	q := tiered(t, "rule", "")
	for _, o := range []Options{
		{}, {Prefix: "other"}, {Prefix: "weir:"}, {Prefix: "w"}, {Secret: []byte("0123456789abcdef")},
		{Prefix: "other", Secret: []byte("0123456789abcdef")}, {Secret: []byte("0123456789abcdeg")},
		{Prefix: strings.Repeat("p", 64)}, {Prefix: `!"#$%&'()*+,-./:;<=>?@[\]^_|~` + "`"},
	} {
		o.ForgetRefusals = true
		s := newStore(client, o).Within(10 * time.Second)
		assert.Equal(t, int64(7), decideOne(t, s, q, "key", 3).Remaining, "%+v shares counters with another", o)
		again := newStore(client, o).Within(10 * time.Second)
		assert.Equal(t, int64(6), decideOne(t, again, q, "key", 1).Remaining, "%+v does not find its own counters", o)
	}
	asWritten := newStore(client, Options{Prefix: "weir", ForgetRefusals: true}).Within(10 * time.Second)
	assert.Equal(t, int64(6), decideOne(t, asWritten, q, "key", 0).Remaining, "the prefix is weir if none is given")
}

func TestOptionsThatMakeNoSenseAreNamedWithTheirValue(t *testing.T) {
	for _, tt := range []struct {
		options Options
		want    []string
	}{
		{Options{Prefix: strings.Repeat("p", 65)}, []string{"redisstore: Prefix", "pppp", "65 characters", "at most 64"}},
		{Options{Prefix: "a b"}, []string{`redisstore: Prefix "a b" has a space`}},
		{Options{Prefix: "{a"}, []string{`redisstore: Prefix "{a" has a space, a brace`}},
		{Options{Prefix: "a}"}, []string{`redisstore: Prefix "a}" has`}},
		{Options{Prefix: "a\n"}, []string{`redisstore: Prefix "a\n" has`}},
		{Options{Prefix: "größe"}, []string{`redisstore: Prefix "größe" has`}},
		{Options{Prefix: "\xff"}, []string{`redisstore: Prefix "\xff" has`}},
		{Options{Prefix: "\x7f"}, []string{`redisstore: Prefix "\x7f" has`}},
		{Options{Secret: []byte("123456789012345")}, []string{"redisstore: Secret has 15 bytes", "at least 16, or none"}},
		{Options{Secret: []byte("1")}, []string{"redisstore: Secret has 1 bytes"}},
		{Options{MaxBatch: -1}, []string{"redisstore: MaxBatch is -1", "from 1 to 1000"}},
		{Options{MaxBatch: 1001}, []string{"redisstore: MaxBatch is 1001", "from 1 to 1000"}},
		{Options{Failover: failover.Options{Deadline: -1}}, []string{"redisstore: Failover: failover: Deadline is -1ns"}},
		{Options{Prefix: " ", Secret: []byte("short"), MaxBatch: 5000, Failover: failover.Options{Replicas: -2}},
			[]string{`Prefix " "`, "Secret has 5 bytes", "MaxBatch is 5000", "Replicas is -2"}},
	} {
		err := tt.options.Validate()
		require.Error(t, err, "%+v", tt.options)
		for _, want := range tt.want {
			assert.ErrorContains(t, err, want)
		}
		assert.NotContains(t, err.Error(), "123456789012345", "a secret is not told")
		assert.Less(t, len(err.Error()), 400)
		assert.PanicsWithError(t, err.Error(), func() { New(redis.NewClient(&redis.Options{}), tt.options) })
	}
}

func TestOptionsThatMakeSenseAreTaken(t *testing.T) {
	for _, o := range []Options{
		{}, {Prefix: "a"}, {Prefix: strings.Repeat("p", 64)}, {Prefix: "app:prod~!"}, {Secret: make([]byte, 16)},
		{Secret: make([]byte, 4096)}, {MaxBatch: 1}, {MaxBatch: 1000}, {ForgetRefusals: true},
	} {
		assert.NoError(t, o.Validate(), "%+v", o)
	}
}

func TestNewSaysWhatItNeeds(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		assert.PanicsWithValue(t, "redisstore: New needs a client", func() { New(client) }, "%T", client)
	}
	client := closeAfter(t, redis.NewClient(&redis.Options{}))
	assert.PanicsWithValue(t, "redisstore: New takes one Options", func() { New(client, Options{}, Options{}) })
	assert.NotPanics(t, func() { New(client) }, "nothing is asked of Redis yet")
}

func TestATagIsTheDigestOfTheWholeKey(t *testing.T) {
	for _, secret := range []string{"", "a secret of 16 bytes"} {
		keys := newKeys("weir", []byte(secret))
		rapid.Check(t, func(t *rapid.T) {
			key := rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "key")
			digest := sha256.New()
			if secret != "" {
				digest = hmac.New(sha256.New, []byte(secret))
			}
			digest.Write(key)
			tag := keys.tag(string(key))
			require.Equal(t, base64.RawURLEncoding.EncodeToString(digest.Sum(nil)[:16]), string(tag[:]))
		})
	}
}
