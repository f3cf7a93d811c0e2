package leasestore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
)

// ledgerOf waits longer for Redis than a Store does: a busy machine is no outage.
func ledgerOf(client redis.UniversalClient, percent int, life time.Duration) *redisLedger {
	return newLedger(client, counters.New("", nil, counters.Format), percent, life, 10*time.Second)
}

// Units are not granted of what is not known.
func TestLeasesTakeWhatIsNoCounterForNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Connect(t)
	l := ledgerOf(client, 50, time.Minute)
	for what, command := range map[string][]string{
		"a list": {"RPUSH", "@", "a"}, "text": {"SET", "@", "text"}, "57 bytes of text": {"SET", "@", strings.Repeat("x", 57)},
	} {
		for _, a := range []limiter.Algorithm{limiter.SlidingWindow, limiter.TokenBucket, limiter.FixedWindow} {
			server.MustDo("FLUSHALL")
			q := quotaOf(t, "rule", limiter.Limit{Events: 100, Per: phase.Long(), Algorithm: a})
			name := l.names.Name(l.Tag("key"), q)
			server.MustDo(command[0], name, command[2])
			before := server.MustDo("DUMP", name)
			leases := []lease{{tag: l.Tag("key"), quota: q, want: 10, need: 10}}
			require.NoError(t, l.Settle(t.Context(), leases))
			assert.True(t, leases[0].foreign, "%s, %v", what, a)
			assert.Zero(t, leases[0].granted, "%s, %v", what, a)
			assert.Equal(t, before, server.MustDo("DUMP", name), "%s, %v", what, a)
		}
	}
}
