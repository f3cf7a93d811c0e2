package limitertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// keys test that clients are told apart.
var keys = []testCase{
	{
		name:   "rules and tiers count separately",
		why:    "The names of the rule and the tier and the key identify a counter. Joined, they must not collide.",
		limits: samples,
		run: func(t *trial) {
			var charges []limiter.Charge
			for _, names := range [][3]string{
				{"a", "", "k"}, {"b", "", "k"}, {"a", "a", "k"}, {"a", "b", "k"}, {"b", "a", "k"},
				{"ab", "", "k"}, {"a", "", "bk"}, {"ab", "c", "k"}, {"a", "bc", "k"}, {"abc", "", "k"},
				{"a", "", "b:k"}, {"a:b", "", "k"}, {"a", "b", ":k"}, {"a/b", "", "k"}, {"a", "b", "/k"}, {"a", "", "b/k"},
				{"a", "", ""}, {"a", "k", ""}, {"ak", "", ""}, {"a", "", "\x00k"}, {"A", "", "k"}, {"a", "", "K"},
				{"a", "", "a"}, {"{a}", "", "k"}, {"a", "{k}", ""}, {"a|b", "", "k"}, {"a", "", "|b|k"},
			} {
				charges = append(charges, limiter.Charge{Quota: must(limiter.NewQuota(names[0], names[1], t.limit)), Key: names[2]})
			}
			t.distinct(charges)
		},
	},
	{
		name: "a key is any bytes",
		why:  "All bytes of a key count, whatever they are and however many. Hash the key if the length of the store's keys is limited.",
		run: func(t *trial) {
			q, long := must(limiter.NewQuota("rule", "", samples[0])), strings.Repeat("k", 64<<10)
			var charges []limiter.Charge
			for _, key := range []string{
				"", " ", "  ", "\x00", "\x00\x00", "a", "a\x00", "\x00a", "a\x00b", "a\n", "a\r\n", "A", "a ", " a",
				"\xff", "\xfe\xff", "\xc3\x28", "\ufffd", "é", "e\u0301", "{", "}", "{}", "{a}", "{a}b", "{b}a", "a:b", "a::b",
				"*", "?", "[a]", "%", "%s", `\`, `"`, "'", "');--", "${a}", "nil", "null", "0", "00",
				long, long + "k", long[1:], "x" + long[1:], long[1:] + "x",
				long[:64], long[:63] + "x", long[:255], long[:256], long[:257], long[:4096], long[:4095] + "x",
			} {
				charges = append(charges, limiter.Charge{Quota: q, Key: key})
			}
			t.distinct(charges)
		},
	},
	{
		name: "thousands of keys count separately",
		why:  "Keys collide if the store hashes them to fewer than 64 good bits.",
		run:  func(t *trial) { t.distinct(keysOf(must(limiter.NewQuota("rule", "", samples[1])), 3000)) },
	},
	{
		name: "a batch can have MaxCharges charges",
		why:  "Only CheckCharges decides which batches are too long, and a long batch is taken whole or not at all.",
		run: func(t *trial) {
			charges := keysOf(must(limiter.NewQuota("rule", "", samples[1])), limiter.MaxCharges)
			t.decide(charges...)
			charges[len(charges)-1].Cost = charges[0].Quota.Capacity()
			t.decide(charges...)
			for i, d := range t.looks(charges) {
				t.want(d.Remaining == d.Limit-1, charges[i], d, "of two batches of %d charges the second was refused: want 1 unit used", len(charges))
			}
		},
	},
}

// keysOf returns charges of different keys.
func keysOf(q *limiter.Quota, n int) (charges []limiter.Charge) {
	for i := range n {
		charges = append(charges, limiter.Charge{Quota: q, Key: fmt.Sprint("key ", i), Cost: 1})
	}
	return charges
}

// distinct takes different costs from different keys, and then checks what remains of each.
func (t *trial) distinct(charges []limiter.Charge) {
	t.Helper()
	for i := range charges {
		charges[i].Cost = int64(i)%charges[i].Quota.Capacity() + 1
	}
	check := func(part []limiter.Charge, decisions []limiter.Decision, used func(limiter.Charge) int64) {
		for i, d := range decisions {
			c := part[i]
			t.want(d.Allowed && d.Remaining == d.Limit-used(c), c, d, "want %d units used of key %.20q of %s/%s: it collides with another key",
				used(c), c.Key, c.Quota.Rule(), c.Quota.Tier())
		}
	}
	for part := range slices.Chunk(charges, limiter.MaxCharges) {
		check(part, t.looks(part), func(limiter.Charge) int64 { return 0 })
		check(part, t.decide(part...), func(c limiter.Charge) int64 { return c.Cost })
	}
	for part := range slices.Chunk(charges, limiter.MaxCharges) {
		check(part, t.looks(part), func(c limiter.Charge) int64 { return c.Cost })
	}
}

// changes test states over a long time, and under changed limits.
var changes = []testCase{{
	name: "decides as Quota does",
	why:  "A store makes no decisions of its own: it decides as TakeAll of package store does on the states that it holds.",
	run: func(t *trial) {
		// Only the store's clock says which window it is; a fixed window shows it.
		const period = 10 * time.Second
		clock := must(limiter.NewQuota("clock", "", limiter.Limit{Events: 1, Per: period, Algorithm: limiter.FixedWindow}))
		now := (100*period - t.take(limiter.Charge{Quota: clock, Cost: 1}).ResetAfter).Microseconds()

		var counters []limiter.Charge
		for i, l := range samples {
			q := must(limiter.NewQuota(fmt.Sprint("rule ", i), "", l))
			q.Settles = i%2 == 1
			counters = append(counters, limiter.Charge{Quota: q, Key: "a"}, limiter.Charge{Quota: q, Key: "b"})
		}
		model := &store.Map{Clock: func() int64 { return now }}
		type taken struct{ here, there limiter.Receipt } // when, on the store's clock and on the model's
		times := []taken{{}}
		random := rand.New(rand.NewPCG(1, 2))
		for step := range 800 {
			if random.IntN(2) == 0 {
				pause := time.Duration(random.Int64N(int64(period/3))) / tick * tick
				t.sleep(pause)
				now += pause.Microseconds()
			}
			var charges []limiter.Charge
			for _, i := range random.Perm(len(counters))[:1+random.IntN(3)] {
				c := counters[i]
				c.Cost = random.Int64N(4)
				c.Within = max(0, time.Duration(random.Int64N(int64(2*period)))-period)
				charges = append(charges, c)
			}
			switch random.IntN(12) {
			case 0, 1:
				known := slices.Clone(charges)
				for i := range charges {
					at := times[random.IntN(len(times))]
					charges[i].Decision.Receipt, known[i].Decision.Receipt = at.here, at.there
				}
				t.settle(settlements(charges, false))
				t.sound("Settle of the model", model.Settle(t.Context(), settlements(known, false)))
			case 2:
				t.settle(settlements(charges, true))
				t.sound("Settle of the model", model.Settle(t.Context(), settlements(charges, true)))
			case 3:
				t.reset(charges[0])
				t.sound("Reset of the model", model.Reset(t.Context(), charges[:1]))
			default:
				got := t.decide(charges...)
				t.sound("Decide of the model", model.Decide(t.Context(), charges))
				for i, want := range decisionsOf(charges) {
					times = append(times[max(0, len(times)-6):], taken{got[i].Receipt, want.Receipt})
					got[i].Receipt = want.Receipt // which is the store's own
					t.want(got[i] == want, charges[i], got[i], "step %d, charge %d of %d: Quota's decision is %+v", step+1, i+1, len(charges), want)
				}
			}
		}
	},
}}

// slots test events in flight, on stores that count slots ([limiter.Checker]).
var slots = []testCase{
	{
		name:  "at most the limit is in flight in a race",
		slots: true,
		why:   "Reading, deciding and writing are one step, and so is releasing, in batches with other charges too.",
		run: func(t *trial) {
			const most = 3
			slot := limiter.Charge{Quota: must(limiter.NewConcurrency("slots", "", most)), Key: "key", Cost: 1}
			rate := limiter.Charge{Quota: must(limiter.NewQuota("rate", "", limiter.PerHour(1_000_000))), Key: "user", Cost: 1}
			none := limiter.Charge{Quota: must(limiter.NewQuota("none", "", limiter.PerHour(1))), Key: "key", Cost: 1}
			t.take(none)
			var held, reached [2]atomic.Int64
			t.race(60, func(ctx context.Context, random *rand.Rand) error {
				i, charges := random.IntN(2), []limiter.Charge{slot, rate, none}[:1+random.IntN(3)]
				charges[0].Key = fmt.Sprint(i)
				if isTaken, err := t.try(ctx, charges); !isTaken || err != nil {
					return err
				}
				now := held[i].Add(1)
				for before := reached[i].Load(); now > before && !reached[i].CompareAndSwap(before, now); before = reached[i].Load() {
				}
				held[i].Add(-1)
				return t.store.Settle(ctx, settlements(charges[:1], false))
			})
			for i := range reached {
				if n := reached[i].Load(); n > most {
					t.broken("%d events of a key were in flight at once, want at most %d", n, most)
				}
				c := slot
				c.Key, c.Cost = fmt.Sprint(i), most
				t.take(c)
				t.refuse(c)
			}
		},
	},
}

// callers is the number of goroutines in a race.
const callers = 16

// races test many callers at once. They find a store that reads, decides and writes in more than one
// step, though maybe not in the first run. go test -race helps.
var races = []testCase{
	{
		name:   "exactly N of many callers are admitted",
		why:    "Of M callers at once, exactly N are admitted: reading the state, deciding and writing must be one step. All or nothing holds too, whatever keys batches share and in whatever order. If the case never ends, locks are taken in different orders.",
		limits: samples,
		run: func(t *trial) {
			shared := limiter.Charge{Quota: must(limiter.NewQuota("shared", "", scaled(t.limit, 100))), Key: "key", Cost: 1}
			wide := keysOf(must(limiter.NewQuota("wide", "", limiter.PerHour(1000))), 5)
			taken := make([]atomic.Int64, len(wide))
			var admitted atomic.Int64
			t.race(20, func(ctx context.Context, random *rand.Rand) error {
				charges, picked := []limiter.Charge{shared}, random.Perm(len(wide))[:random.IntN(4)]
				for _, i := range picked {
					charges = append(charges, wide[i])
				}
				random.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
				isTaken, err := t.try(ctx, charges)
				if isTaken {
					admitted.Add(1)
					for _, i := range picked {
						taken[i].Add(1)
					}
				}
				return err
			})
			if n := admitted.Load(); n != shared.Quota.Capacity() {
				t.broken("%d of %d callers were admitted at once under %v, want %d", n, 20*callers, shared.Quota.Limit(), shared.Quota.Capacity())
			}
			t.left(shared, 0)
			for i, c := range wide {
				t.left(c, c.Quota.Capacity()-taken[i].Load())
			}
		},
	},
	{
		name:   "charges, debts and refunds of many callers add up",
		why:    "Settling is one step too: no unit is lost, and none is refunded twice.",
		limits: samples,
		run: func(t *trial) {
			q := must(limiter.NewQuota("rule", "", scaled(t.limit, 2000)))
			returns := t.limit.Algorithm != limiter.LeakyBucket // where units return of the last event alone
			var used atomic.Int64
			t.race(30, func(ctx context.Context, random *rand.Rand) error {
				charges := []limiter.Charge{{Quota: q, Key: "key", Cost: 1 + random.Int64N(2)}}
				if random.IntN(3) == 0 {
					used.Add(charges[0].Cost)
					return t.store.Settle(ctx, settlements(charges, true))
				}
				isTaken, err := t.try(ctx, charges)
				if isTaken && returns && random.IntN(2) == 0 {
					return t.store.Settle(ctx, settlements(charges, false))
				}
				if isTaken {
					used.Add(charges[0].Cost)
				}
				return err
			})
			t.left(limiter.Charge{Quota: q, Key: "key"}, q.Capacity()-used.Load())
		},
	},
}

// try decides for goroutines of a race, which must not call FailNow. It reports whether all charges were taken.
func (t *trial) try(ctx context.Context, charges []limiter.Charge) (isTaken bool, err error) {
	err = t.store.Decide(ctx, charges)
	return err == nil && !slices.ContainsFunc(charges, func(c limiter.Charge) bool { return !c.Decision.Allowed }), err
}

// race calls f that many times in each of many goroutines, which start together.
func (t *trial) race(times int, f func(ctx context.Context, random *rand.Rand) error) {
	t.Helper()
	var all sync.WaitGroup
	start, errs := make(chan struct{}), make(chan error, callers)
	for i := range callers {
		all.Go(func() {
			random, err := rand.New(rand.NewPCG(uint64(i), 3)), error(nil)
			<-start
			for n := 0; n < times && err == nil; n++ {
				err = f(t.Context(), random)
			}
			errs <- err
		})
	}
	close(start)
	all.Wait()
	for range callers {
		t.sound(fmt.Sprintf("one of %d callers at once", callers), <-errs)
	}
}
