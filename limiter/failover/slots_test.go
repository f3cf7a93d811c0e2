package failover_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

func concurrency(t testing.TB, most int64, o limiter.Outage) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewConcurrency("slots", "", most)
	require.NoError(t, err)
	q.OnOutage = o
	return q
}

// A lazySlots tells its server of events that have ended in time, as redisstore does.
type lazySlots struct{ *server }

func (p lazySlots) Settle(_ context.Context, settlements []limiter.Settlement) error {
	return p.Memory.Settle(context.Background(), settlements)
}

// An eventIn is when an event is counted or settled.
type eventIn string

const (
	before eventIn = "before the outage"
	during eventIn = "during the outage"
	after  eventIn = "after the outage"
)

func TestAnEventEndsWhereItBegan(t *testing.T) {
	for _, began := range []eventIn{before, during, after} {
		for _, ended := range []eventIn{before, during, after} {
			if ended == before && began != before || ended == during && began == after {
				continue
			}
			t.Run(string(began)+", "+string(ended), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := newServer(t, fine)
					s := wrap(lazySlots{inner}, failover.Options{Replicas: 2, OnDegraded: ignore})
					q := concurrency(t, 5, limiter.FailLocal)
					other := charge(quota(t, "other", limiter.PerHour(100), limiter.FailLocal), "key")
					c := limiter.Charge{Quota: q, Key: "key", Cost: 1}
					var d limiter.Decision
					used := func() int64 { return inner.used(t, q, "key") + inUse(t, s, q, "key") }
					for _, now := range []eventIn{before, during, after} {
						switch now {
						case during:
							inner.is(dead)
							breakDown(t, s, other)
						case after:
							inner.comeBack(t, s, other)
							require.False(t, s.Health().Degraded)
						}
						if now == began {
							d = decide(t, s, c)[0]
							require.True(t, d.Allowed)
							assert.Equal(t, now == during, d.Degraded)
							assert.EqualValues(t, 1, used())
						}
						if now == ended {
							inner.calls.Store(0)
							require.NoError(t, settle(t, s, c, d, 0))
							assert.Zero(t, used(), "one slot is returned, where it was taken")
							if now == during {
								assert.Zero(t, inner.calls.Load(), "a server that is down is not waited for")
							}
						}
					}
					assert.Zero(t, used())
				})
			})
		}
	}
}

func TestSlotsInAnOutage(t *testing.T) {
	for _, tt := range []struct {
		replicas int
		outage   limiter.Outage
		want     int // admitted of 10, by 5 slots
	}{{1, limiter.FailLocal, 5}, {2, limiter.FailLocal, 2}, {9, limiter.FailLocal, 1}, {2, limiter.FailOpen, 10}, {2, limiter.FailClosed, 0}} {
		tryAround(t, dead, failover.Options{Replicas: tt.replicas}, func(inner *server) limiter.Store { return lazySlots{inner} }, func(w *trial) {
			w.breakDown()
			w.c.Quota = concurrency(w, 5, tt.outage)
			var taken []limiter.Decision
			for range 10 {
				charges := []limiter.Charge{w.c}
				if err := w.Decide(w.Context(), charges); tt.outage == limiter.FailClosed {
					require.ErrorIs(w, err, failover.ErrUnavailable)
				} else if d := charges[0].Decision; d.Allowed {
					taken = append(taken, d)
				}
			}
			assert.Len(w, taken, tt.want, "%+v", tt)
			for _, d := range taken {
				require.NoError(w, settle(w, w.Store, w.c, d, 0))
			}
			assert.Zero(w, inUse(w, w.Store, concurrency(w, 5, limiter.FailLocal), "key"))
			assert.Zero(w, w.inner.used(w, w.c.Quota, "key"))
		})
	}
}
