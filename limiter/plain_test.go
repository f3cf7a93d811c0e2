package limiter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// inBubble runs f, which may use a rapid.T, where time is fake.
func inBubble(t *testing.T, f func()) {
	var failure any
	synctest.Test(t, func(*testing.T) {
		defer func() { failure = recover() }()
		f()
	})
	// Rapid waits outside. It tells what went wrong by the line that panics, and a draw
	// that went wrong is not what it looks for.
	if fmt.Sprintf("%T", failure) == "rapid.invalidData" {
		panic(failure)
	}
	if failure != nil {
		panic(failure)
	}
}

// A plainStore is what Memory has to decide like: states as they are, in a map.
type plainStore map[plainKey]plainState

type plainKey struct{ rule, tier, key string }

type plainState struct {
	State
	quota *Quota
}

func plainKeyOf(c Charge) plainKey { return plainKey{c.Quota.rule, c.Quota.tier, c.Key} }

// find is the state of a charge's key under its quota, which is not written yet.
func (p plainStore) find(c Charge, now int64) State {
	s := p[plainKeyOf(c)]
	return c.Quota.Convert(s.quota, clone(s.State), now)
}

// put writes a state, unless the charge is a look.
func (p plainStore) put(c Charge, s State) {
	if c.Cost > 0 {
		p[plainKeyOf(c)] = plainState{s, c.Quota}
	}
}

func (p plainStore) decide(charges []Charge, now int64) []Decision {
	before, after := make([]State, len(charges)), make([]State, len(charges))
	allowed, all := make([]bool, len(charges)), true
	for i, c := range charges {
		before[i] = p.find(c, now)
		after[i], allowed[i] = c.Quota.Take(clone(before[i]), now, c.Cost)
		all = all && allowed[i]
	}
	decisions := make([]Decision, len(charges))
	for i, c := range charges {
		s, cost := before[i], c.Cost
		switch {
		case all:
			s = after[i]
			p.put(c, s)
		case allowed[i]:
			cost = 0
		}
		decisions[i] = c.Quota.Describe(s, now, cost, allowed[i])
	}
	return decisions
}

func (p plainStore) refund(charges []Charge, now int64) {
	for _, c := range charges {
		if s, known := p[plainKeyOf(c)]; known {
			s.State = s.quota.Refund(clone(s.State), now, c.Cost, c.Receipt.At)
			p[plainKeyOf(c)] = s
		}
	}
}

func (p plainStore) owe(charges []Charge, now int64) {
	for _, c := range charges {
		if c.Cost > 0 {
			s := p[plainKeyOf(c)]
			s.quota, s.State = c.Quota.OweFrom(s.quota, clone(s.State), now, c.Cost)
			p[plainKeyOf(c)] = s
		}
	}
}

func (p plainStore) reset(charges []Charge) {
	for _, c := range charges {
		delete(p, plainKeyOf(c))
	}
}

// sameTrace holds Memory to plainStore over a random trace under limits.
func sameTrace(t *testing.T, limits *rapid.Generator[Limit]) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func() {
			time.Sleep(micros(rapid.Int64Range(0, 1e9).Draw(rt, "start")))
			m, err := NewMemory(MemoryOptions{})
			require.NoError(rt, err)
			plain, d, times := plainStore{}, Decision{}, []int64{0}
			year := 366 * 24 * time.Hour
			end := time.Now().Add(uptime - 7*year)

			names := []string{"a", "b", "c"}
			quotas := make([]*Quota, len(names))
			name := func(i int) {
				quotas[i], err = NewQuota(names[i], "", limits.Draw(rt, "limit"))
				require.NoError(rt, err)
				quotas[i].Settles = rapid.Bool().Draw(rt, "settles")
			}
			for i := range names {
				name(i)
			}
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				if step := micros(max(0, anyStep(quotas[0], d).Draw(rt, "step"))); time.Now().Add(step).Before(end) {
					time.Sleep(step)
				}
				now := time.Now().UnixMicro()
				var charges []Charge
				for range rapid.SampledFrom([]int{1, 1, 1, 2, 3, 9}).Draw(rt, "charges") {
					q := rapid.SampledFrom(quotas).Draw(rt, "quota")
					c := Charge{Quota: q, Key: rapid.SampledFrom(names).Draw(rt, "key")}
					c.Cost = anyCost(q.capacity, d.Remaining).Draw(rt, "cost")
					if CheckCharges(append(charges, c)) == nil {
						charges = append(charges, c)
					}
				}
				switch rapid.IntRange(0, 15).Draw(rt, "what") {
				case 4:
					for i := range charges {
						charges[i].Cost = anyOwed(charges[i].Quota.capacity).Draw(rt, "owed")
					}
					plain.owe(charges, now)
					require.NoError(rt, m.Owe(t.Context(), charges))
				case 0, 3:
					for i := range charges {
						charges[i].Receipt.At = rapid.SampledFrom(times).Draw(rt, "at")
					}
					plain.refund(charges, now)
					require.NoError(rt, m.Refund(t.Context(), charges))
				case 1:
					plain.reset(charges)
					require.NoError(rt, m.Reset(t.Context(), charges))
				case 2:
					name(rapid.IntRange(0, len(names)-1).Draw(rt, "rule"))
				default:
					decisions := make([]Decision, len(charges))
					require.NoError(rt, m.Decide(t.Context(), charges, decisions))
					want := plain.decide(charges, now)
					for i, c := range charges {
						require.Equal(rt, want[i], decisions[i], "%v, cost %d", c.Quota.limit, c.Cost)
					}
					d = decisions[0]
					times = append(times, d.Receipt.At)
				}
			}
		})
	})
}

func TestMemoryDecidesAsThePlainFunctionsDo(t *testing.T) {
	t.Run("any limits", func(t *testing.T) { sameTrace(t, anyLimit(append([]Algorithm{SlidingWindow}, everyAlgorithm...)...)) })
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) { sameTrace(t, anyLimit(a)) })
	}
	t.Run("boxed and not", func(t *testing.T) {
		sameTrace(t, rapid.SampledFrom([]Limit{
			PerMinute(1000), PerMinute(2_000_000), PerHour(5_000_000_000),
			PerMinute(2_000_000).With(FixedWindow), PerDay(8e11), PerMinute(1e8).With(TokenBucket),
			PerMinute(9).With(SlidingLog), PerMinute(40).With(SlidingLog), PerMinute(1e8).With(LeakyBucket),
			PerMinute(10), PerMinute(12),
		}))
	})
}

func TestEveryLimitOfUpToAMillionFitsAWord(t *testing.T) {
	for _, a := range []Algorithm{SlidingCounter, TokenBucket, LeakyBucket, FixedWindow} {
		for _, per := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 366 * 24 * time.Hour} {
			q := mustQuota(t, Limit{Events: 1_000_000, Per: per, Algorithm: a})
			assert.True(t, q.fitsWord(), "%v", q.limit)
		}
	}
	for _, events := range []int64{11, 1000, 60_000} {
		assert.True(t, mustQuota(t, PerSecond(events)).fitsWord(), "%d/s", events)
	}
}

func TestAPackedStateIsGoodForFifteenYears(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := mustQuota(t, anyLimit(SlidingCounter, TokenBucket, LeakyBucket, FixedWindow).Draw(t, "limit"))
		if !q.fitsWord() {
			t.Skip("not packed")
		}
		origin := anyStart().Draw(t, "origin")
		now := origin + uptime.Microseconds() - rapid.Int64Range(0, 2*q.Window().Microseconds()).Draw(t, "left")
		if now < origin {
			t.Skip("a window longer than that")
		}
		cost := magnitude(1, q.capacity).Draw(t, "cost")
		s, ok := q.Take(State{}, now, cost)
		require.True(t, ok)
		later := now + magnitude(1, q.Window().Microseconds()).Draw(t, "later") - 1
		unpacked := q.unpack(q.pack(s, origin), origin, later)
		require.Equal(t, q.Describe(s, later, 0, true), q.Describe(unpacked, later, 0, true))
	})
}
