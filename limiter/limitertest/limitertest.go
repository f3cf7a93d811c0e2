// Package limitertest tests whether a [limiter.Store] keeps its promises. It is for authors of
// stores.
//
// A store holds states and lets [limiter.Quota] change them. The store itself finds the state
// of a key, makes a batch atomic, reads one clock, and forgets no sooner than it may. The suite
// tests all of that:
//
//	func TestStoreKeepsItsPromises(t *testing.T) {
//		limitertest.Run(t, limitertest.Harness{
//			New: func(t testing.TB) limiter.Store { return mystore.New() },
//		})
//	}
//
// Each case begins with a store from New. Its name says what is promised, and a failure says
// which promise is broken. Most cases are traces of calls, in promises.txt. Run one as any
// subtest:
//
//	go test -run 'TestStoreKeepsItsPromises/RetryAfter_is_exact'
//
// The cases about slots run only on stores that count slots ([limiter.Checker]).
//
// # Time
//
// Durations must be right to the microsecond, so time must stand still between calls. A store
// that reads [time.Now] needs nothing for that: every case runs in a bubble of
// testing/synctest, where time passes only while the case sleeps. If New starts a goroutine, a
// Cleanup of its t must end it.
//
// A store with another clock, such as a server's, sets Harness.Sleep.
//
// A case begins at a random time of the minute, the hour and the day, including their
// boundaries. The log says which, and how to repeat it: set WEIR_PHASE=23h59m59.999999s in the
// environment.
package limitertest

import (
	"testing"
	"time"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

// A Harness gives the suite access to a store. New is required.
type Harness struct {
	// New returns an empty store, new or emptied. It is called once in each case, with that
	// case's t. Close the store in a Cleanup of t.
	New func(t testing.TB) limiter.Store

	// Sleep moves the clock that the store reads and that otherwise stands still: by a whole
	// number of microseconds, up to some years, or back if the number is negative. If the store
	// settles later, Sleep must wait for that first. If Sleep is nil, the store reads time.Now,
	// and every case runs in a bubble of testing/synctest, whose clock does not step back.
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
var cases = concat(traces(), exacts, calendars, batches, keys, mistakes, returns, debts, changes, slots, races)

func concat(lists ...[]testCase) (all []testCase) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// Run tests everything that a [limiter.Store] promises on the stores that h makes.
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
