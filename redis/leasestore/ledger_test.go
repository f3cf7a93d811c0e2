package leasestore

import (
	"fmt"
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

func TestTwoVersionsOfLeasesLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Connect(t)
	next := formats{holders: "next", sums: "next"}
	q := quotaOf(t, "rule", limiter.Limit{Events: 100, Per: phase.Long(), Algorithm: limiter.TokenBucket})
	for i, f := range []formats{current, next} {
		l := ledgerOf(client, 50, time.Minute)
		l.formats, l.names = f, counters.New("", nil, f.holders)
		leases := []lease{{tag: l.Tag("key"), quota: q, want: 40, need: 40}}
		_, err := l.Settle(t.Context(), leases)
		require.NoError(t, err)
		assert.Equal(t, int64(40), leases[0].granted, "version %d of 2", i+1)
		counts := []count{{tag: l.Tag("key"), quota: q, used: 60}}
		now, err := l.Exchange(t.Context(), counts)
		require.NoError(t, err)
		assert.Equal(t, int64(40), q.Describe(counts[0].state, now, 0, true).Remaining)
		assert.Equal(t, fmt.Sprint(3*(i+1)), server.MustDo("DBSIZE"), "a counter, its holders and a sum, of each version")
	}
}

// Units are not granted of what is not known, and a sum that is not known is not nothing.
func TestLeasesTakeWhatIsNoCounterForNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Connect(t)
	l := ledgerOf(client, 50, time.Minute)
	for what, command := range map[string][]string{
		"a list": {"RPUSH", "@", "a"}, "text": {"SET", "@", "text"}, "49 bytes of text": {"SET", "@", strings.Repeat("x", 49)},
	} {
		for _, a := range []limiter.Algorithm{limiter.SlidingWindow, limiter.TokenBucket, limiter.FixedWindow} {
			server.MustDo("FLUSHALL")
			q := quotaOf(t, "rule", limiter.Limit{Events: 100, Per: phase.Long(), Algorithm: a})
			name := l.names.Name(l.Tag("key"), q)
			put := func(name string) {
				server.MustDo(command[0], name, command[2])
			}
			put(name)
			before := server.MustDo("DUMP", name)
			leases := []lease{{tag: l.Tag("key"), quota: q, want: 10, need: 10}}
			_, err := l.Settle(t.Context(), leases)
			require.NoError(t, err)
			assert.True(t, leases[0].foreign, "%s, %v", what, a)
			assert.Zero(t, leases[0].granted, "%s, %v", what, a)
			assert.Equal(t, before, server.MustDo("DUMP", name), "%s, %v", what, a)

			put(l.sumOf(name))
			counts := []count{{tag: l.Tag("key"), quota: q}}
			now, err := l.Exchange(t.Context(), counts)
			require.NoError(t, err)
			d := q.Describe(counts[0].state, now, 0, true)
			assert.Zero(t, d.Remaining, "%s, %v", what, a)
			assert.NotContains(t, server.MustDo("PTTL", l.sumOf(name)), "-", "it comes back")
		}
	}
}

func TestTheFormatIsPartOfNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "name::lease:1", current.holdersOf("name"))
	assert.Equal(t, "name::sync:1", current.sumOf("name"))
}
