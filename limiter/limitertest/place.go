package limitertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// places are about events that are under way, for stores that are a [limiter.Placer].
var places = ofPlacers([]testCase{
	{
		name: "as many events as the limit are under way at once",
		why:  "An event takes a place until it ends. How many there are is the limit, whatever an event takes of them.",
		run: func(t *trial) {
			q := t.concurrency("rule", 5)
			for i := range int64(5) {
				d := t.take(q, "key", 1)
				if d.Limit != 5 || d.Remaining != 4-i {
					t.broken("event %d of 5 was answered %+v, want a Limit of 5 and %d Remaining", i+1, d, 4-i)
				}
			}
			t.refuse(q, "key", 1)
			t.remaining(q, "key", 0, "of 5 after as many events have begun")
			t.take(q, "wide", 3)
			t.refuse(q, "wide", 3)
			t.take(q, "wide", 2)
			if d := t.ask(q, "new", 6); d.Allowed || d.RetryAfter != limiter.Never {
				t.broken("an event of 6 places of 5 was answered %+v, want a refusal for ever", d)
			}
			t.remaining(q, "new", 5, "where none fitted")
		},
	},
	{
		name: "a place is free when its event ends, and no sooner",
		why:  "Time frees nothing, and what is returned is free at once in the process that returns it: its next event finds it.",
		run: func(t *trial) {
			q := t.concurrency("rule", 2)
			first, second := t.take(q, "key", 1), t.take(q, "key", 1)
			for range 10 {
				t.sleep(100 * time.Millisecond) // no longer, as a store has to be told now and then
				t.refuse(q, "key", 1)
			}
			t.leave(q, "key", first)
			third := t.take(q, "key", 1)
			t.refuse(q, "key", 1)
			t.leave(q, "key", second)
			t.leave(q, "key", third)
			t.remaining(q, "key", 2, "after all events have ended")
			t.take(q, "key", 2)
		},
	},
	{
		name: "each end frees one place",
		why:  "A place that is returned twice, or of an event that never had one, makes none: there are never more than the limit.",
		run: func(t *trial) {
			q := t.concurrency("rule", 3)
			var last limiter.Decision
			for range 3 {
				last = t.take(q, "key", 1)
			}
			t.leave(q, "key", last)
			t.remaining(q, "key", 1, "after one of three has ended")
			t.refund(limiter.Charge{Quota: q, Key: "key", Cost: 1, At: last.At})
			t.remaining(q, "key", 2, "after two of three have ended")
			for range 5 {
				t.leave(q, "key", last)
				t.leave(q, "new", last)
			}
			t.remaining(q, "key", 3, "after more ends than events")
			t.take(q, "new", 3)
			t.refuse(q, "new", 1)
		},
	},
	{
		name: "places and units are taken together or not at all",
		why:  "A refused place spends no quota, and a refused quota takes no place, wherever the keys are counted.",
		run: func(t *trial) {
			q := t.concurrency("places", 2)
			for _, l := range samples {
				for _, keys := range [][2]string{{"key", "key"}, {"a " + l.Algorithm.String(), "b " + l.Algorithm.String()}} {
					rate := t.named("rate "+l.Algorithm.String(), "", slow(l, 20))
					place := limiter.Charge{Quota: q, Key: keys[0], Cost: 1}
					unit := limiter.Charge{Quota: rate, Key: keys[1], Cost: 1}
					capacity := rate.Capacity()
					for i := range int64(3) {
						d := t.decide(place, unit)
						if want := i < 2; d[0].Allowed != want || !d[1].Allowed {
							t.broken("batch %d of a place and a unit was answered %+v, want the first two taken, and of the third the place refused alone", i+1, d)
						}
					}
					t.remaining(rate, keys[1], capacity-2, "of which a refused place spent none")
					t.settle(limiter.Settlement{Charge: place}, limiter.Settlement{Charge: unit, Actual: 1})
					t.take(rate, keys[1], capacity-2)
					d := t.decide(unit, place)
					if d[0].Allowed || !d[1].Allowed || d[1].Remaining != 1 {
						t.broken("a batch of a unit that is not there and a place was answered %+v, want the unit refused alone and the place described as it is", d)
					}
					t.remaining(q, keys[0], 1, "of which a refused unit took none")
					t.settle(limiter.Settlement{Charge: place})
				}
			}
		},
	},
	{
		name: "a look takes no place",
		why:  "Pages and operators look at keys.",
		run: func(t *trial) {
			q := t.concurrency("rule", 2)
			for range 5 {
				t.remaining(q, "key", 2, "at a look")
			}
			t.take(q, "key", 2)
			t.remaining(q, "key", 0, "at a look")
		},
	},
	{
		name: "a limit that is lowered admits none until enough have ended",
		why:  "Events that are under way stay so, whatever the limit is now.",
		run: func(t *trial) {
			before, after := t.concurrency("rule", 5), t.concurrency("rule", 2)
			d := t.take(before, "key", 5)
			t.refuse(after, "key", 1)
			for range 3 {
				t.leave(before, "key", d)
				t.refuse(after, "key", 1)
			}
			t.leave(after, "key", d)
			t.take(after, "key", 1)
			t.refuse(after, "key", 1)
			t.take(before, "key", 3)
			t.refuse(before, "key", 1)
		},
	},
	{
		name: "RetryAfter goes by how long events take",
		why:  "It is a guess: of places that are each held that long, one is free after its part of that.",
		run: func(t *trial) {
			q := t.concurrency("rule", 4)
			if d := t.take(q, "key", 3); d.At == 0 {
				t.broken("the decision on places has no At, by which their end tells how long they were held")
			}
			for range 40 {
				d := t.take(q, "key", 1)
				t.sleep(80 * time.Millisecond)
				t.leave(q, "key", d)
			}
			t.take(q, "key", 1)
			if d := t.refuse(q, "key", 1); d.RetryAfter < 10*time.Millisecond || d.RetryAfter > 40*time.Millisecond {
				t.broken("events take 80 ms and there are 4 places: one is refused for %v, want some 20 ms", d.RetryAfter)
			}
		},
	},
	{
		name: "places of keys, rules and tiers are apart",
		why:  "A key that is full says nothing of another, nor of the limit of the same rule.",
		run: func(t *trial) {
			q, other, tier := t.concurrency("rule", 1), t.concurrency("other", 1), t.concurrencyOf("rule", "tier", 1)
			for _, q := range []*limiter.Quota{q, other, tier} {
				for _, key := range []string{"key", "Key", "key\x00", ""} {
					t.take(q, key, 1)
					t.refuse(q, key, 1)
				}
			}
		},
	},
	{
		name: "what is owed takes places without asking",
		why:  "An event that is under way without having asked counts all the same.",
		run: func(t *trial) {
			q := t.concurrency("rule", 2)
			c := limiter.Charge{Quota: q, Key: "key", Cost: 3}
			t.owe(c)
			t.refuse(q, "key", 1)
			c.Cost = 1
			t.refund(c)
			t.refuse(q, "key", 1)
			t.refund(c)
			t.take(q, "key", 1)
			t.refuse(q, "key", 1)
		},
	},
	{
		name: "a reset loses no place for ever",
		why:  "Whether events that are under way are counted after a reset is the store's to say. When they have ended, all places are free, and the limit holds.",
		run: func(t *trial) {
			q := t.concurrency("rule", 3)
			d := t.take(q, "key", 2)
			t.reset(limiter.Charge{Quota: q, Key: "key"}, limiter.Charge{Quota: q, Key: "new"})
			t.leave(q, "key", d)
			t.leave(q, "key", d)
			t.remaining(q, "key", 3, "after a reset, and the end of all events")
			t.take(q, "key", 3)
			t.refuse(q, "key", 1)
		},
	},
	{
		name: "a context that has ended takes no place",
		why:  "No one would return it.",
		run: func(t *trial) {
			q := t.concurrency("rule", 1)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := t.store.Decide(ctx, []limiter.Charge{{Quota: q, Key: "key", Cost: 1}}, make([]limiter.Decision, 1))
			if err != nil && !errors.Is(err, context.Canceled) {
				t.broken("under a context that has ended Decide returned %q, want none or the context's", err)
			}
			if err != nil {
				t.take(q, "key", 1)
			}
		},
	},
	{
		name: "never more than the limit are under way, and as many can be",
		why:  "Finding, deciding and writing are one step, and so is returning, in batches with other charges too.",
		run: func(t *trial) {
			const most = 3
			q, rate := t.concurrency("places", most), t.named("rate", "", limiter.PerHour(1_000_000))
			none := t.named("none", "", limiter.PerHour(1))
			t.take(none, "key", 1)
			keys := []string{"a", "b"}
			var held, reached [2]atomic.Int64
			t.race(60, func(ctx context.Context, random *rand.Rand) error {
				i := random.IntN(len(keys))
				charges := []limiter.Charge{{Quota: q, Key: keys[i], Cost: 1}, {Quota: rate, Key: "user", Cost: 1}, {Quota: none, Key: "key", Cost: 1}}
				d, err := t.try(ctx, charges[:1+random.IntN(3)]...)
				for _, d := range d {
					if err != nil || !d.Allowed {
						return err
					}
				}
				now := held[i].Add(1)
				for before := reached[i].Load(); now > before && !reached[i].CompareAndSwap(before, now); before = reached[i].Load() {
				}
				held[i].Add(-1)
				charges[0].At = d[0].At
				return limiter.Settle(ctx, t.store, []limiter.Settlement{{Charge: charges[0]}})
			})
			for i, key := range keys {
				if n := reached[i].Load(); n > most {
					t.broken("%d events of a key were under way at once, want at most %d", n, most)
				}
				t.remaining(q, key, most, "after all events have ended")
				t.take(q, key, most)
				t.refuse(q, key, 1)
			}
		},
	},
})

// ofPlacers is cases that say nothing of stores that are no Placer.
func ofPlacers(cases []testCase) []testCase {
	for i := range cases {
		run := cases[i].run
		cases[i].run = func(t *trial) {
			if _, ok := limiter.As[limiter.Placer](t.store); ok {
				run(t)
			}
		}
	}
	return cases
}

func (t *trial) concurrency(rule string, most int64) *limiter.Quota {
	t.Helper()
	return t.concurrencyOf(rule, "", most)
}

func (t *trial) concurrencyOf(rule, tier string, most int64) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewConcurrency(rule, tier, most)
	if err != nil {
		t.Fatalf("limitertest: NewConcurrency(%q, %q, %d): %v", rule, tier, most, err)
	}
	if p, _ := limiter.As[limiter.Placer](t.store); p.Places(q) != nil {
		t.broken("the store is a Placer and cannot count places for %q: %v", rule, p.Places(q))
	}
	return q
}

// leave is the end of an event that d admitted.
func (t *trial) leave(q *limiter.Quota, key string, d limiter.Decision) {
	t.Helper()
	t.settle(limiter.Settlement{Charge: limiter.Charge{Quota: q, Key: key, Cost: 1, At: d.At}})
}
