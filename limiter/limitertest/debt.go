package limitertest

import (
	"math"
	"time"

	"github.com/weirgo/weir/limiter"
)

// debts are about units that are owed, and events of which it is known only later what they cost.
var debts = []testCase{
	{
		name: "what is owed is used",
		why:  "Owe takes without asking for room: it is Quota.Owe and writes the state, of a key that was never seen too.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			t.owe(limiter.Charge{Quota: q, Key: "new", Cost: 3})
			t.remaining(q, "new", q.Capacity()-3, "after 3 were owed for a new key")
			t.take(q, "new", q.Capacity()-3)
			t.refuse(q, "new", 1)

			t.take(q, "key", 2)
			t.owe(limiter.Charge{Quota: q, Key: "key", Cost: 1}, limiter.Charge{Quota: q, Key: "other", Cost: 2}, limiter.Charge{Quota: q, Key: "none"})
			t.remaining(q, "key", q.Capacity()-3, "after 2 were taken and 1 owed")
			t.remaining(q, "other", q.Capacity()-2, "after 2 were owed beside another key")
			t.remaining(q, "none", q.Capacity(), "after 0 were owed")
		},
	},
	{
		name: "later events wait for what is owed",
		why:  "What is owed above the limit is paid back before anything else is admitted, and RetryAfter says when that is.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for i, cost := range []int64{1, 2, q.Capacity()} {
				key, other := string(rune('a'+i)), string(rune('n'+i))
				t.take(q, key, 2)
				t.take(q, other, 2)
				t.sleep(1_234_567 * tick)
				t.take(q, key, t.look(q, key).Remaining)
				t.take(q, other, t.look(q, other).Remaining)
				t.owe(limiter.Charge{Quota: q, Key: key, Cost: 4})
				t.remaining(q, key, 0, "after more than the limit was used")
				owing, full := t.refuse(q, key, q.Capacity()), t.refuse(q, other, q.Capacity())
				if owing.RetryAfter <= full.RetryAfter {
					t.broken("under %v the limit is free in %v where 4 are owed and in %v where none is, want it later", l, owing.RetryAfter, full.RetryAfter)
				}
				t.retry(q, key, cost)
			}
		},
	},
	{
		name: "a look is admitted whatever is owed",
		why:  "A request of cost 0 asks for nothing, so nothing is missing.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			t.take(q, "key", q.Capacity())
			for range 3 {
				t.owe(limiter.Charge{Quota: q, Key: "key", Cost: 3})
				t.remaining(q, "key", 0, "while units are owed")
			}
			t.take(q, "other", 1)
			for _, d := range t.decide(limiter.Charge{Quota: q, Key: "key"}, limiter.Charge{Quota: q, Key: "other", Cost: 1}) {
				if !d.Allowed {
					t.broken("a look at a key that owes, beside an event of another under %v: %+v, want both allowed", l, d)
				}
			}
		},
	},
	{
		name: "what is owed outlives its window",
		why:  "A key that owes a whole limit waits one period more than one that has used it: a state lives for up to three windows, and nothing that is owed fades before it is counted.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			t.take(q, "key", q.Capacity())
			t.owe(limiter.Charge{Quota: q, Key: "key", Cost: q.Capacity()})
			d := t.refuse(q, "key", q.Capacity())
			if d.RetryAfter <= q.Window() || d.ResetAfter != d.RetryAfter {
				t.broken("a key that owes all of %v: RetryAfter %v and ResetAfter %v, want the same, more than %v", l, d.RetryAfter, d.ResetAfter, q.Window())
			}
			t.retry(q, "key", q.Capacity())
			t.refuse(q, "key", 1)
		},
	},
	{
		name: "a caller that goes on reserving too little gets no more than the limit",
		why:  "Of each event one unit is taken and two are owed: over many periods that is still the limit.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			const periods = 12
			used := int64(0)
			for begin, elapsed := t.slept, time.Duration(0); elapsed < periods*l.Per; elapsed = t.slept - begin {
				if d := t.ask(q, "key", 1); !d.Allowed {
					t.sleep(d.RetryAfter)
					continue
				}
				t.owe(limiter.Charge{Quota: q, Key: "key", Cost: 2})
				used += 3
			}
			// Around it are a burst and what the last event owes.
			if most := periods*l.Events + 2*q.Capacity() + 2; used > most {
				t.broken("in %d periods of %v, %d were used, want at most %d", periods, l, used, most)
			}
		},
	},
	{
		name: "what is owed above one limit is forgiven",
		why:  "A mistaken cost must not lock a key out for ever: more than one limit's worth is never owed, however often.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			for _, key := range []string{"all", "more", "most", "again"} {
				t.take(q, key, q.Capacity())
			}
			t.owe(
				limiter.Charge{Quota: q, Key: "all", Cost: q.Capacity()},
				limiter.Charge{Quota: q, Key: "more", Cost: q.Capacity() + 1},
				limiter.Charge{Quota: q, Key: "most", Cost: math.MaxInt64},
			)
			for range 3 {
				t.owe(limiter.Charge{Quota: q, Key: "again", Cost: q.Capacity() - 1})
			}
			want := t.refuse(q, "all", 1)
			for _, key := range []string{"more", "most", "again"} {
				if d := t.refuse(q, key, 1); d.RetryAfter != want.RetryAfter || d.ResetAfter != want.ResetAfter {
					t.broken("a key that owes more than all of %v waits for %v and is reset after %v, want %v and %v as with all of it",
						l, d.RetryAfter, d.ResetAfter, want.RetryAfter, want.ResetAfter)
				}
			}
			t.sleep(want.ResetAfter)
			for _, key := range []string{"all", "more", "most", "again"} {
				t.remaining(q, key, q.Capacity(), "when all was paid back")
			}
		},
	},
	{
		name: "a reset key owes nothing",
		why:  "Reset forgets what is owed with all else.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			t.take(q, "key", 1)
			t.owe(limiter.Charge{Quota: q, Key: "key", Cost: 2 * q.Capacity()})
			t.reset(limiter.Charge{Quota: q, Key: "key"})
			t.take(q, "key", q.Capacity())
			t.refuse(q, "key", 1)
		},
	},
	{
		name: "an event is settled to what it really cost",
		why:  "limiter.Settle refunds what was reserved in excess and owes what was missing, before the next decision on the key: a Settler that does it later has to send it along.",
		each: func(t *trial, l limiter.Limit) {
			q := t.quota(l)
			q.Settles = true
			first := t.take(q, "first", 4)
			second := t.take(q, "second", 1)
			third := t.take(q, "third", 3)
			t.settle(
				limiter.Settlement{Charge: limiter.Charge{Quota: q, Key: "first", Cost: 4, At: first.At}, Actual: 1},
				limiter.Settlement{Charge: limiter.Charge{Quota: q, Key: "second", Cost: 1, At: second.At}, Actual: 3},
				limiter.Settlement{Charge: limiter.Charge{Quota: q, Key: "third", Cost: 3, At: third.At}, Actual: 3},
			)
			t.remaining(q, "first", q.Capacity()-1, "when 1 was used of 4 that were reserved")
			t.remaining(q, "second", q.Capacity()-3, "when 3 were used and 1 reserved")
			t.remaining(q, "third", q.Capacity()-3, "when what was reserved was used")

			d := t.take(q, "first", q.Capacity()-1)
			t.settle(limiter.Settlement{Charge: limiter.Charge{Quota: q, Key: "first", Cost: q.Capacity() - 1, At: d.At}})
			t.take(q, "first", q.Capacity()-1)
			t.refuse(q, "first", 1)
		},
	},
	{
		name: "what is settled late was used all the same",
		why:  "Of a quota that Settles units come back long after they were taken: as many as are still counted, so the state has to keep what Quota.Refund needs (State.Log), and never so many that more than the limit was really used in a period.",
		run: func(t *trial) {
			const period, answer = 10 * time.Second, time.Second
			for _, l := range samples {
				if l.Algorithm == limiter.LeakyBucket { // its later events have their turns
					continue
				}
				l = scaled(l, 20)
				q := t.named("rule "+l.String(), "", l)
				q.Settles = true
				type event struct {
					at time.Duration
					limiter.Settlement
				}
				var pending, done []event
				for step := range 60 {
					for len(pending) > 0 && t.slept-pending[0].at >= answer {
						t.settle(pending[0].Settlement)
						done, pending = append(done, pending[0]), pending[1:]
					}
					cost := int64(3 + step%5)
					if d := t.ask(q, "key", cost); d.Allowed {
						c := limiter.Charge{Quota: q, Key: "key", Cost: cost, At: d.At}
						pending = append(pending, event{t.slept, limiter.Settlement{Charge: c, Actual: int64(step % 3)}})
					}
					t.sleep(answer / 3 / tick * tick)
				}
				for _, e := range done {
					within := int64(0)
					for _, other := range done {
						if other.at >= e.at && other.at < e.at+period {
							within += other.Actual
						}
					}
					if most := mostInPeriod(q); within > most {
						t.broken("under %v %d units were really used within %v, want at most %d", l, within, period, most)
					}
				}
				if len(done) < 20 {
					t.broken("of 60 events under %v that used 0 to 2 of the 3 to 7 that they reserved, %d were admitted and settled, want 20 or more: what was not used does not come back", l, len(done))
				}
			}
		},
	},
}

// mostInPeriod is how many units q admits in any of its periods.
func mostInPeriod(q *limiter.Quota) int64 {
	switch l := q.Limit(); q.Algorithm() {
	case limiter.SlidingLog:
		return l.Events
	case limiter.TokenBucket, limiter.LeakyBucket:
		return q.Capacity() + l.Events
	default:
		return 2 * l.Events
	}
}
