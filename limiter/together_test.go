package limiter_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// A watched limit is one of those that share a counter, beside a model that knows only this limit.
type watched struct {
	quota    *limiter.Quota
	model    limiter.Store // has had each event since the first under the limit, as far as there was room
	book     ledger
	admitted []taking // under this limit
	all      []taking // under any, since the first under this one
}

// isInUse reports whether the counter certainly has a state of the limit.
func (w *watched) isInUse(now int64) bool {
	if len(w.admitted) == 0 {
		return false
	}
	last := w.admitted[len(w.admitted)-1].at
	if w.quota.Limit().Calendar() != "" {
		index := indexer(w.quota.Limit())
		return index(last) == index(now)
	}
	return now-last <= w.quota.Window().Microseconds()
}

// check fails if an event that was admitted now passes the bound of the limit.
func (w *watched) check(t *rapid.T) {
	a, per, index := w.quota.Algorithm(), w.quota.Limit().Per.Microseconds(), indexer(w.quota.Limit())
	events := w.admitted
	if a == limiter.SlidingLog || a == limiter.FixedWindow { // which know of each event that others admitted
		events = w.all
	}
	sum, now := int64(0), events[len(events)-1].at
	for i := len(events) - 1; i >= 0; i-- {
		sum += events[i].n
		long := now - events[i].at
		switch {
		case a == limiter.FixedWindow && index(events[i].at) != index(now), a == limiter.SlidingCounter && long > per, a == limiter.SlidingLog && long >= per:
			return
		case a == limiter.FixedWindow:
			require.LessOrEqual(t, sum, w.quota.Capacity(), "%v: %+v", w.quota.Limit(), events)
		default:
			require.LessOrEqual(t, sum, w.book.most(a, long), "%v in %d µs: %+v", w.quota.Limit(), long, events)
		}
	}
}

// Limits that share a counter admit at most what each of them would admit alone, of all events since it first
// admitted one. A counter of one limit is as it would be in a store of its own.
func TestEachOfSeveralLimitsAdmitsAtMostItsBound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) limiter.Limit {
			l := anySteadyLimit().Draw(t, "limit")
			l.Events = min(l.Events, rapid.SampledFrom([]int64{3, 10, 12, 30}).Draw(t, "most"))
			l.Burst = min(l.Burst, l.Events)
			return l
		}), 1, 2)
		start := micros(rapid.Int64Range(0, (2*time.Hour).Microseconds()).Draw(rt, "start"))
		inBubble(t, func() {
			time.Sleep(start)
			memory := func() limiter.Store { return limiter.Must(limiter.NewMemory(limiter.MemoryOptions{})) }
			take := func(s limiter.Store, key string, cost int64, quotas ...*limiter.Quota) []limiter.Charge {
				charges := chargesOf(quotas, key, cost)
				require.NoError(rt, s.Decide(t.Context(), charges))
				return charges
			}
			shared, alone, all := memory(), memory(), map[*limiter.Quota]*watched{}
			var allowances [][]*limiter.Quota
			known := map[string]limiter.Limit{}
			for range rapid.IntRange(2, 3).Draw(rt, "allowances") {
				limits := some.Draw(rt, "limits")
				for i, l := range limits {
					// Limits of one algorithm and period share a state, which has room for the events of its last limit.
					shape := fmt.Sprint(mustQuota(rt, l).Algorithm(), l.Per, l.Calendar())
					if _, ok := known[shape]; !ok {
						known[shape] = l
					}
					limits[i] = known[shape]
				}
				quotas, err := limiter.NewQuotas("rule", "", limiter.Join(limits, limiter.Concurrency{}))
				if err != nil { // of one period, or with a leaky bucket
					quotas = []*limiter.Quota{named(rt, "rule", "", limits[0])}
				}
				for _, q := range quotas {
					all[q] = &watched{quota: q, model: memory(), book: ledger{limit: q.Limit(), capacity: q.Capacity()}}
				}
				allowances = append(allowances, quotas)
			}
			for range rapid.IntRange(1, 120).Draw(rt, "steps") {
				quotas := rapid.SampledFrom(allowances).Draw(rt, "under")
				cost, fit := rapid.Int64Range(1, 3).Draw(rt, "cost"), true
				for _, q := range quotas {
					cost = min(cost, q.Capacity())
				}
				used := map[string]bool{} // where all is free, a store may forget that limits were used
				for q := range all {
					d := take(shared, "key", 0, q)[0].Decision
					used[q.Rule()] = used[q.Rule()] || d.Remaining < d.Limit
				}
				for q, w := range all {
					if !used[q.Rule()] {
						w.admitted = nil
					}
					if !w.isInUse(time.Now().UnixMicro()) {
						w.model, w.all = memory(), nil
					}
				}
				for _, q := range quotas {
					// An earlier count of a fading window may be partly gone from the model. A bucket counts whole units.
					more := int64(0)
					if isBucket(q.Algorithm()) {
						more = 1
					}
					fit = fit && (q.Algorithm() == limiter.SlidingCounter || take(all[q].model, "key", 0, q)[0].Decision.Remaining+more >= cost)
				}
				if store.Taken(take(shared, "key", cost, quotas...)) {
					require.True(rt, fit, "%v admit %d more than alone", quotas, cost)
					now := taking{time.Now().UnixMicro(), cost}
					for _, q := range quotas {
						all[q].admitted = append(all[q].admitted, now)
					}
					for _, o := range all {
						sees := func(q *limiter.Quota) bool { return q.Rule() == o.quota.Rule() }
						if o.isInUse(now.at) && slices.ContainsFunc(quotas, sees) {
							o.all = append(o.all, now)
							take(o.model, "key", min(cost, take(o.model, "key", 0, o.quota)[0].Decision.Remaining), o.quota)
						}
					}
					for _, q := range quotas {
						all[q].check(rt)
					}
				}
				require.Equal(rt, take(alone, "other", cost, allowances[0]...), take(shared, "other", cost, allowances[0]...))
				time.Sleep(micros(magnitude(0, 2*quotas[0].Window().Microseconds()).Draw(rt, "pause")))
			}
		})
	})
}
