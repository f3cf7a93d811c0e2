package limiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
)

// What a reload changes while events are under way, in each form that a state has.

// formsOf is limits of so many events, by how their states are held.
func formsOf(t *testing.T, rule string, events int64) map[string][]*Quota {
	per := 100 * 24 * time.Hour
	one := func(a Algorithm, settles bool) []*Quota {
		q := named(t, rule, "", Limit{Events: events, Per: per, Algorithm: a})
		q.Settles = settles
		return []*Quota{q}
	}
	return map[string][]*Quota{
		"window": one(SlidingCounter, false), "fixed": one(FixedWindow, false), "bucket": one(TokenBucket, false),
		"queue": one(LeakyBucket, false), "settling": one(TokenBucket, true), "log": one(SlidingLog, false),
	}
}

func TestWhatIsSettledUnderAnOldLimitForgetsNothing(t *testing.T) {
	for from, before := range formsOf(t, "rule", 8) {
		for to, after := range formsOf(t, "rule", 100) {
			phase.Run(t, fmt.Sprint(from, " to ", to), func(t *testing.T) {
				m := newMemory(t, 0)
				held := m.decide(chargesOf(before, "key", 2)...)
				last := after[len(after)-1]
				m.decide(chargesOf(after, "key", 1)...)
				require.True(t, m.take(last, "key", m.remaining(last, "key")))
				old := chargesOf(before, "key", 1)
				for i := range old {
					old[i].Receipt.At = held[i].Receipt.At
				}
				require.NoError(t, m.Refund(t.Context(), old))
				assert.LessOrEqual(t, m.remaining(last, "key"), int64(1), "after a refund of 1")
				require.NoError(t, m.Owe(t.Context(), old))
				assert.LessOrEqual(t, m.remaining(last, "key"), int64(1), "after a debt")
				require.NoError(t, m.Refund(t.Context(), chargesOf(before, "key", 1)))
				assert.LessOrEqual(t, m.remaining(last, "key"), int64(2), "after another refund")
			})
		}
	}
}

func TestARaisedLimitIsOneForWhoOnlyOwes(t *testing.T) {
	for from, before := range formsOf(t, "rule", 8) {
		for to, after := range formsOf(t, "rule", 100) {
			phase.Run(t, fmt.Sprint(from, " to ", to), func(t *testing.T) {
				m := newMemory(t, 0)
				require.NoError(t, m.Owe(t.Context(), chargesOf(before, "key", 1)))
				require.NoError(t, m.Owe(t.Context(), chargesOf(after, "key", 1000)))
				for _, q := range after {
					assert.False(t, m.take(q, "key", 1), "%v", q.Limit())
				}
			})
		}
	}
}
