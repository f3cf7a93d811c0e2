package leasestore

import (
	"strconv"
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
	return newLedger(client, false, counters.New("", nil, counters.Format), percent, life, 10*time.Second)
}

// Units are not granted of what is not known.
func TestLeasesTakeWhatIsNoCounterForNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	l := ledgerOf(client, 50, time.Minute)
	for what, command := range map[string][]string{
		"a list":           {"RPUSH", "@", "a"},
		"text":             {"SET", "@", "text"},
		"57 bytes of text": {"SET", "@", strings.Repeat("x", 57)},
	} {
		for _, a := range []limiter.Algorithm{limiter.SlidingWindow, limiter.TokenBucket, limiter.FixedWindow} {
			server.MustDo("FLUSHALL")
			q := quotaOf(t, "rule", limiter.Limit{Events: 100, Per: phase.Long(), Algorithm: a})
			name := l.names.Name(l.Tag("key"), q)
			server.MustDo(command[0], name, command[2])
			before := server.MustDo("DUMP", name)
			leases := []refill{{tag: l.Tag("key"), quota: q, want: 10, need: 10}}
			require.NoError(t, l.Refill(t.Context(), leases))
			assert.True(t, leases[0].foreign, "%s, %v", what, a)
			assert.Zero(t, leases[0].granted, "%s, %v", what, a)
			assert.Equal(t, before, server.MustDo("DUMP", name), "%s, %v", what, a)
		}
	}
}

func TestALeaseOfACounterAheadOfTheClockIsWhatItsQuotaSays(t *testing.T) {
	t.Parallel()
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr}))
	l := ledgerOf(client, 50, time.Minute)
	for _, a := range []limiter.Algorithm{limiter.SlidingCounter, limiter.TokenBucket, limiter.FixedWindow} {
		q := quotaOf(t, "rule "+a.String(), limiter.Limit{Events: 100, Per: time.Hour, Algorithm: a})
		for i, ahead := range []time.Duration{30 * time.Minute, 3 * time.Hour} {
			tag := l.Tag(strconv.Itoa(i))
			now, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			before, _ := q.Take(limiter.State{}, now.Add(ahead).UnixMicro(), 90)
			value := counters.AppendQuota(nil, q, 0)
			for _, n := range []int64{before.Last, before.Level, before.Prev, before.Last} {
				value = counters.AppendNumber(value, n)
			}
			require.NoError(t, client.Set(t.Context(), l.names.Name(tag, q), value, time.Minute).Err())
			leases := []refill{{tag: tag, quota: q, want: 20, need: 20}}
			require.NoError(t, l.Refill(t.Context(), leases))
			got := leases[0]
			want := q.Describe(before, int64(got.now), 0, true).Remaining
			assert.Equal(t, min(20, want), got.granted, "%v, %v ahead", a, ahead)
			assert.Equal(t, want-got.granted, q.Describe(got.state, int64(got.now), 0, true).Remaining, "%v, %v ahead", a, ahead)
		}
	}
}
