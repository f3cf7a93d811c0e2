package counters

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/wire"
)

func tiered(t testing.TB, rule, tier string) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewQuota(rule, tier, limiter.PerHour(10))
	require.NoError(t, err)
	return q
}

func TestASlotIsWhereRedisPutsTheKey(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	random := rand.New(rand.NewPCG(7, 8))
	keys := New("weir", nil, Format)
	q := tiered(t, "rule", "tier")
	pipeline := client.Pipeline()
	var want []int64
	var got []*redis.IntCmd
	for i := range 2000 {
		tag := keys.Digest(fmt.Sprint("key ", i))
		if i%2 == 0 { // slot takes any bytes, and names are made of few
			for j := range tag {
				tag[j] = byte(random.IntN(256))
			}
			tag = keyfunc.Digest(bytes.ReplaceAll(bytes.ReplaceAll(tag[:], []byte("{"), []byte("(")), []byte("}"), []byte(")")))
		}
		want = append(want, int64(wire.SlotOf(tag[:])))
		got = append(got, pipeline.ClusterKeySlot(context.Background(), keys.Name(tag, q)))
	}
	_, err := pipeline.Exec(context.Background())
	require.NoError(t, err)
	for i := range want {
		require.Equal(t, got[i].Val(), want[i], "slot is not where Redis puts the key")
	}
}

func TestANameIsAPrefixADigestAndTheRule(t *testing.T) {
	for _, tt := range []struct{ prefix, rule, tier, want string }{
		{"weir", "ip", "", "weir:3:{ypeBEsobvcr6wjGzmiPcTQ}:ip"},
		{"weir", "plan", "premium", "weir:3:{ypeBEsobvcr6wjGzmiPcTQ}:plan:premium"},
		{"a:b", "GET /search", "", "a:b:3:{ypeBEsobvcr6wjGzmiPcTQ}:GET /search"},
		{"weir", "a:b", "c", "weir:3:{ypeBEsobvcr6wjGzmiPcTQ}:a%3Ab:c"},
		{"weir", "a", "b:c", "weir:3:{ypeBEsobvcr6wjGzmiPcTQ}:a:b%3Ac"},
		{"weir", "a%3Ab", "%", "weir:3:{ypeBEsobvcr6wjGzmiPcTQ}:a%253Ab:%25"},
		{"weir", "{a}", "}{", "weir:3:{ypeBEsobvcr6wjGzmiPcTQ}:{a}:}{"},
	} {
		keys := New(tt.prefix, nil, Format)
		assert.Equal(t, tt.want, keys.Name(keys.Digest("a"), tiered(t, tt.rule, tt.tier)))
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
			keys := New("weir", nil, Format)
			return keys.Name(keys.Digest("key"), q)
		}
		if name(rule, tier) == name(other, otherTier) {
			t.Fatalf("rule %q tier %q and rule %q tier %q share the name %q", rule, tier, other, otherTier, name(rule, tier))
		}
	})
}
