package limitertest

import (
	"slices"

	"github.com/weirgo/weir/limiter"
)

// optionals test charges that refuse nobody ([limiter.Charge.Optional]). The keys differ, so that a store with
// several servers holds them on several.
var optionals = []testCase{
	{
		name: "an optional charge without room refuses nobody",
		why:  "A rule in shadow shows what it would refuse. The batch is taken without it, and its Decision is the refusal.",
		each: func(t *trial, l limiter.Limit) {
			o := t.optionalOf(l)
			for range 2 {
				for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
					before := t.looks(o)
					alone := t.refuse(o[1].Quota, o[1].Key, 1)
					d := t.decideIn(order, o)
					if !d[0].Allowed || !d[2].Allowed {
						t.broken("an optional charge without room refused its batch under %v: %+v", l, d)
					}
					if d[1] != alone {
						t.broken("an optional charge without room under %v has the decision %+v, want that of the charge alone: %+v", l, d[1], alone)
					}
					t.remaining(o[0].Quota, o[0].Key, before[0].Remaining-1, "after a batch with an optional charge without room")
					t.remaining(o[2].Quota, o[2].Key, before[2].Remaining-1, "after a batch with an optional charge that fits")
					if after := t.look(o[1].Quota, o[1].Key); after != before[1] {
						t.broken("an optional charge without room under %v changed its key from %+v to %+v", l, before[1], after)
					}
				}
			}
		},
	},
	{
		name: "a refused batch takes no optional charge",
		why:  "A request that a rule in force refuses did not happen, for rules in shadow either. An optional charge with room has the decision of a look.",
		each: func(t *trial, l limiter.Limit) {
			o := t.optionalOf(l)
			full := t.named("full", "", slow(l, 1))
			t.take(full, "other", full.Capacity())
			o = append(o, limiter.Charge{Quota: full, Key: "other", Cost: 1})
			before := t.looks(o)
			alone := t.refuse(o[1].Quota, o[1].Key, 1)
			for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}} {
				d := t.decideIn(order, o)
				if d[3].Allowed || d[0] != before[0] || d[1] != alone || d[2] != before[2] {
					t.broken("a batch is refused under %v: its decisions are %+v, want the look %+v, the refusal %+v, the look %+v and a refusal", l, d, before[0], alone, before[2])
				}
				if after := t.looks(o); !slices.Equal(after, before) {
					t.broken("a batch was refused under %v, and its keys changed from %+v to %+v", l, before, after)
				}
			}
		},
	},
	{
		name: "optional charges alone are each taken if they fit",
		why:  "All rules of a request may be in shadow.",
		each: func(t *trial, l limiter.Limit) {
			o := t.optionalOf(l)[1:]
			left := t.look(o[1].Quota, o[1].Key).Remaining
			for _, order := range [][]int{{0, 1}, {1, 0}} {
				if d := t.decideIn(order, o); d[0].Allowed || !d[1].Allowed {
					t.broken("of two optional charges under %v the first has no room: %+v", l, d)
				}
				left--
				t.remaining(o[1].Quota, o[1].Key, left, "after a batch of optional charges")
			}
			if d := t.decide(o[0])[0]; d.Allowed {
				t.broken("an optional charge alone, without room, was admitted under %v: %+v", l, d)
			}
		},
	},
	{
		name: "an optional slot is acquired if it is free",
		why:  "An AtOnce in shadow counts too, and only slots that were acquired are released.",
		run: func(t *trial) {
			if !t.countsSlots() {
				return
			}
			q, rate := t.concurrency("slots", "", 1), t.named("rate", "", limiter.PerHour(100))
			slot := limiter.Charge{Quota: q, Key: "key", Cost: 1, Optional: true}
			charges := []limiter.Charge{slot, {Quota: rate, Key: "key", Cost: 1}}
			first := t.decide(charges...)
			second := t.decide(charges...)
			if !first[0].Allowed || second[0].Allowed || !second[1].Allowed {
				t.broken("one slot, optional in two batches: %+v and %+v, want it acquired by the first, and the second taken without it", first, second)
			}
			t.remaining(rate, "key", 98, "after two batches with an optional slot")
			t.leave(q, "key", first[0])
			t.remaining(q, "key", 1, "after the slot was released")
			full := t.named("full", "", limiter.PerHour(1))
			t.take(full, "other", 1)
			t.decide(slot, limiter.Charge{Quota: full, Key: "other", Cost: 1})
			t.remaining(q, "key", 1, "after a refused batch with an optional slot")
		},
	},
}

// optionalOf returns three charges: one that fits, one that is optional and has no room, and one that is
// optional and fits.
func (t *trial) optionalOf(l limiter.Limit) []limiter.Charge {
	t.Helper()
	q, none := t.named("rule", "", slow(l, 50)), t.named("none", "", slow(l, 1))
	t.take(none, "b", none.Capacity())
	return []limiter.Charge{
		{Quota: q, Key: "a", Cost: 1},
		{Quota: none, Key: "b", Cost: 1, Optional: true},
		{Quota: q, Key: "c", Cost: 1, Optional: true},
	}
}

// decideIn decides on charges in an order, and returns the decisions in that of the charges.
func (t *trial) decideIn(order []int, charges []limiter.Charge) []limiter.Decision {
	t.Helper()
	var ordered []limiter.Charge
	for _, i := range order {
		ordered = append(ordered, charges[i])
	}
	t.decide(ordered...)
	decisions := make([]limiter.Decision, len(charges))
	for at, i := range order {
		decisions[i] = ordered[at].Decision
	}
	return decisions
}
