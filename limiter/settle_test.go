package limiter_test

import (
	"context"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// What reservations that are settled promise, held to a list of what events really were.

// A taking is so many units of the list, at a time in microseconds.
type taking struct{ at, n int64 }

// A ledger is everything that was really used, in the order of time: what an event used of its reservation, at
// the time of the reservation, and what it used beyond, at the time of its settlement.
type ledger struct {
	limit    limiter.Limit
	capacity int64
	used     []taking
}

// check fails if more was used than the algorithm promises. It is called where an event was
// admitted, so that all that was owed before has been paid back or waited for.
func (l *ledger) check(t require.TestingT, a limiter.Algorithm) {
	all := l.used
	per := l.limit.Per.Microseconds()
	now := all[len(all)-1].at
	switch a {
	case limiter.FixedWindow, limiter.SlidingCounter:
		before, carried := int64(0), int64(0) // the count of the last window, and what it owes
		for window := all[0].at / per; window <= now/per; window++ {
			used := carried
			for _, u := range all {
				if u.at/per == window {
					used += u.n
				}
			}
			if window == now/per {
				left := new(big.Rat).Mul(whole(before), big.NewRat(per-now%per, per))
				if a == limiter.FixedWindow {
					left = new(big.Rat)
				}
				require.LessOrEqual(t, used+floor(left), l.capacity, "%v admits at %d: %+v", l.limit, now, all)
			}
			before, carried = min(used, l.capacity), max(0, used-l.capacity)
		}
	}
	// In the interval that begins with any of them and ends now.
	used := int64(0)
	for i := len(all) - 1; i >= 0; i-- {
		used += all[i].n
		long := now - all[i].at
		if a == limiter.SlidingCounter && long > per {
			break
		}
		require.LessOrEqual(t, used, l.most(a, long), "%v admits %d in %d µs until %d: %+v", l.limit, used, long, now, all)
	}
}

// most is what an interval of that length may hold, both of its ends included.
func (l *ledger) most(a limiter.Algorithm, long int64) int64 {
	per := l.limit.Per.Microseconds()
	rate := big.NewRat(l.limit.Events, per)
	grown := floor(new(big.Rat).Mul(rate, whole(long)))
	switch a {
	case limiter.SlidingLog:
		return l.capacity * (long/per + 1)
	case limiter.FixedWindow:
		return l.capacity * (long/per + 2)
	case limiter.SlidingCounter: // less than N*(1+d/P)+1
		return l.capacity + ceilOf(new(big.Rat).Mul(rate, whole(long)))
	}
	return l.capacity + grown
}

func ceilOf(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }

// smallLimit draws one that a few events exhaust.
func smallLimit(a limiter.Algorithm) *rapid.Generator[limiter.Limit] {
	return rapid.Custom(func(t *rapid.T) limiter.Limit {
		l := limiter.Limit{Algorithm: a}
		l.Events = rapid.OneOf(rapid.Int64Range(1, 10), rapid.Int64Range(1, 60)).Draw(t, "events")
		l.Per = micros(rapid.OneOf(rapid.Int64Range(10, 100), rapid.Int64Range(1e6, 1e7)).Draw(t, "per"))
		if isBucket(a) && rapid.Bool().Draw(t, "bursts") {
			l.Burst = rapid.Int64Range(1, 60).Draw(t, "burst")
		}
		return l
	})
}

// settleTrace holds a store to a ledger: events reserve, and are settled some time later, in any
// order, or never. With owing, some use more than they reserved.
func settleTrace(t *rapid.T, a limiter.Algorithm, owing bool, newStore func() limiter.Store) {
	q := mustQuota(t, smallLimit(a).Draw(t, "limit"))
	q.Settles = true
	algorithm := q.Algorithm()
	time.Sleep(micros(rapid.Int64Range(0, 1e8).Draw(t, "start")))
	store := newStore()
	book := ledger{limit: q.Limit(), capacity: q.Capacity()}
	var flying []limiter.Settlement
	budget := q.Capacity() // what can be owed before some of it would be forgiven
	var d limiter.Decision
	ctx := context.Background()
	decide := func(cost int64) {
		charges := []limiter.Charge{{Quota: q, Key: "key", Cost: cost}}
		require.NoError(t, store.Decide(ctx, charges))
		d = charges[0].Decision
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch rapid.IntRange(0, 3).Draw(t, "step") {
		case 0:
			time.Sleep(micros(rapid.OneOf(
				rapid.Int64Range(0, q.Window().Microseconds()/4+1),
				rapid.Int64Range(0, 2*q.Window().Microseconds()),
				rapid.SampledFrom([]int64{1, d.NextAfter.Microseconds(), min(d.RetryAfter, d.ResetAfter).Microseconds()}),
			).Draw(t, "pause")))
		case 1, 2:
			reserved := rapid.OneOf(rapid.Int64Range(1, q.Capacity()), rapid.Int64Range(1, q.Capacity()/5+1)).Draw(t, "reserved")
			if decide(0); d.ResetAfter == 0 {
				budget = q.Capacity()
				for _, h := range flying {
					budget -= max(0, h.Actual-h.Cost)
				}
			}
			if decide(reserved); !d.Allowed {
				continue
			}
			actual := rapid.Int64Range(0, reserved).Draw(t, "actual")
			if owing && rapid.Bool().Draw(t, "more") {
				more := rapid.Int64Range(0, budget).Draw(t, "by")
				actual = reserved + more
				budget -= more
			}
			// What is owed is in the ledger when it is settled.
			book.used = append(book.used, taking{time.Now().UnixMicro(), min(reserved, actual)})
			flying = append(flying, limiter.Settlement{limiter.Charge{Quota: q, Key: "key", Cost: reserved, Decision: d}, actual})
			book.check(t, algorithm)
		case 3:
			if len(flying) == 0 {
				continue
			}
			i := rapid.IntRange(0, len(flying)-1).Draw(t, "settled")
			s := flying[i]
			flying = append(flying[:i], flying[i+1:]...)
			require.NoError(t, store.Settle(ctx, []limiter.Settlement{s}))
			if more := s.Actual - s.Cost; more > 0 {
				book.used = append(book.used, taking{time.Now().UnixMicro(), more})
			}
		}
	}
}

var newStores = map[string]func() limiter.Store{
	"Memory":        func() limiter.Store { return limiter.Must(limiter.NewMemory(limiter.MemoryOptions{})) },
	"another store": newPlainStore,
}

func settleTraces(t *testing.T, owing bool) {
	for _, a := range append(everyAlgorithm, limiter.SlidingWindow) {
		for name, newStore := range newStores {
			t.Run(fmt.Sprint(a, ", ", name), func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) {
					inBubble(t, func() { settleTrace(rt, a, owing, newStore) })
				})
			})
		}
	}
}

func TestWhereReservationsAreUpperBoundsTheLimitHolds(t *testing.T) { settleTraces(t, false) }

// What is above the limit then is at most what the events in flight did not reserve: the ledger
// has what they did reserve at the time at which they were admitted.
func TestWhatWasNotReservedIsPaidBackBeforeAnythingIsAdmitted(t *testing.T) { settleTraces(t, true) }
