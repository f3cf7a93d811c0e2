// Package limitertest tells the author of a [limiter.Store] whether it keeps its promises.
//
// A store holds states and asks the [limiter.Quota] what to make of them; what is its
// own is finding the state of a key, making a batch indivisible, reading one clock,
// and forgetting no sooner than it may. The suite tries all of that:
//
//	func TestStoreKeepsItsPromises(t *testing.T) {
//		limitertest.Run(t, limitertest.Harness{
//			New: func(t testing.TB) limiter.Store { return mystore.New() },
//		})
//	}
//
// Each case begins with a store from New, has a name that says what is promised, and
// fails with a sentence that says which promise was broken. Most are traces of calls, in
// promises.txt. One is run like any subtest:
//
//	go test -run 'TestStoreKeepsItsPromises/RetryAfter_is_exact'
//
// What is promised of events that are under way is tried on a store that counts slots ([limiter.Checker]).
//
// # Time
//
// Durations are held to the microsecond, so the time has to stand still between calls.
// A store that reads [time.Now] needs nothing for that: every case runs in a bubble of
// testing/synctest, where time passes only as the case sleeps. Whatever New starts in
// there, such as a goroutine, has to be ended by a cleanup of its t.
//
// A store with a clock elsewhere, such as a server's, sets Harness.Sleep.
//
// A case begins at a time of the minute, the hour and the day that is drawn at random, on
// their boundaries too. It is logged, as what to set in the environment to repeat it:
// WEIR_PHASE=23h59m59.999999s.
package limitertest

import (
	"testing"
	"time"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

// A Harness is how the suite gets at a store. New is required.
type Harness struct {
	// New returns a store that has not seen a key before, or not since it was last
	// asked for one. It is called once in each case, with that case's t:
	// its Cleanup is the place to close the store.
	New func(t testing.TB) limiter.Store

	// Sleep moves the clock that the store reads, which otherwise stands still, by
	// a whole number of microseconds up to some years, back where it is negative. If the store
	// settles later, Sleep waits for that first. Nil: the store reads time.Now, and every case
	// runs in a bubble of testing/synctest, whose clock does not step back.
	Sleep func(time.Duration)
}

// A testCase is a promise and how to see whether a store keeps it. One of run and each is set.
type testCase struct {
	name string // what is promised

	// why is what breaks for users, or what is likely wrong, if it is not kept.
	why string

	run  func(t *trial)
	each func(t *trial, l limiter.Limit) // for each of the sample limits
}

// cases are all there are: those of promises.txt, and those that each file declares.
var cases = concat(traces(), exacts, calendars, batches, keys, mistakes, returns, debts, changes, places, races)

func concat(lists ...[]testCase) (all []testCase) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// Run tries everything a [limiter.Store] promises on the stores that h makes.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil {
		t.Fatal("limitertest: a Harness needs New")
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.run != nil {
				h.try(t, c.why, c.run)
				return
			}
			for _, l := range samples {
				t.Run(l.Algorithm.String(), func(t *testing.T) {
					h.try(t, c.why, func(t *trial) { c.each(t, l) })
				})
			}
		})
	}
}

// try runs one case on a store of its own, in a bubble if the store's clock is Go's.
func (h Harness) try(t *testing.T, why string, run func(t *trial)) {
	if h.Sleep != nil {
		store := h.New(t)
		h.Sleep(phase.Draw(t))
		tr := newTrial(t, why, store, h.Sleep)
		tr.stepsBack = true
		run(tr)
		return
	}
	phase.Test(t, func(t *testing.T) {
		run(newTrial(t, why, h.New(t), time.Sleep))
	})
}
