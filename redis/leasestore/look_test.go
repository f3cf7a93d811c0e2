package leasestore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

// Whichever process is asked, what all have used is what a look finds, but for what is still
// being told.
func TestALookFindsWhatOtherProcessesHaveUsed(t *testing.T) {
	for _, mode := range []Mode{Exact, Leased, Synchronized} {
		for _, l := range []limiter.Limit{limiter.PerHour(100), limiter.PerHour(100).With(limiter.FixedWindow), limiter.PerHour(100).With(limiter.TokenBucket)} {
			synctest.Test(t, func(t *testing.T) {
				f, q := newFake(), quotaOf(t, "r", l)
				fleet := []*Store{f.instance(t, 1, Options{Mode: mode}), f.instance(t, 2, Options{Mode: mode})}
				look := func(s *Store, used int64, why string) {
					t.Helper()
					held := int64(1)
					if mode == Leased {
						held = 25 // units that processes hold count as used
					}
					d := decideOne(t, s, q, "k", 0)
					assert.True(t, d.Allowed)
					assert.GreaterOrEqual(t, d.Limit-d.Remaining, used, "%v, %v: %s", mode, l, why)
					assert.LessOrEqual(t, d.Limit-d.Remaining, used+held, "%v, %v: %s", mode, l, why)
				}
				look(fleet[1], 0, "nothing was used")
				for range 40 {
					require.True(t, decideOne(t, fleet[0], q, "k", 1).Allowed)
				}
				time.Sleep(200 * time.Millisecond)
				look(fleet[1], 40, "another process has used it")
				time.Sleep(time.Minute)
				for range 20 {
					require.True(t, decideOne(t, fleet[0], q, "k", 1).Allowed)
				}
				time.Sleep(200 * time.Millisecond)
				if l.Algorithm == limiter.TokenBucket {
					return // it has refilled by a unit and more
				}
				look(fleet[1], 60, "what was heard a minute ago is old")
				look(fleet[0], 60, "it has used it itself")
				third := f.instance(t, 3, Options{Mode: mode})
				require.True(t, decideOne(t, third, q, "k", 1).Allowed)
				look(third, 60, "what it has not told yet is not all that was used")
			})
		}
	}
}

func TestALookThatRedisDoesNotAnswerIsNotTakenForTheWholeTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, local, closed := newFake(), quotaOf(t, "local", limiter.PerHour(100)), quotaOf(t, "closed", limiter.PerHour(100))
		closed.OnOutage = limiter.FailClosed
		s := f.instance(t, 1, Options{Mode: Synchronized})
		f.down.Store(true)
		for range 3 {
			assert.True(t, decideOne(t, s, local, "k", 0).Degraded)
			var d [1]limiter.Decision
			assert.Error(t, s.Decide(t.Context(), []limiter.Charge{{Quota: closed, Key: "k"}}, d[:]))
			time.Sleep(100 * time.Millisecond)
		}
	})
}
