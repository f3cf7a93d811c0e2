// Package limitertest tests whether a [limiter.Store] keeps its promises. It is for authors of stores.
//
// A store holds states and lets [limiter.Quota] change them. The store itself finds the state of a key,
// makes a batch atomic, reads one clock, and forgets no sooner than it may. The suite tests all of
// that:
//
//	func TestStoreKeepsItsPromises(t *testing.T) {
//		limitertest.Run(t, limitertest.Harness{
//			New: func(t testing.TB) limiter.Store { return mystore.New() },
//		})
//	}
//
// Each case begins with a store from New. The case's name is a promise, and a failure says how the
// promise is broken. Most cases are traces of calls, in promises.txt. Run one like any subtest:
//
//	go test -run 'TestStoreKeepsItsPromises/RetryAfter_is_exact'
//
// The cases about slots run only on stores that count slots ([limiter.Checker]).
//
// # Time
//
// Durations must be exact to the microsecond, so time must stand still between calls. For a store that
// reads [time.Now], every case runs in a bubble of testing/synctest, where time passes only while the
// case sleeps. If New starts a goroutine, a Cleanup of its t must end it.
//
// A store with another clock, such as a server's, sets Harness.Sleep.
//
// Each case begins at a random time of day, often near the end of a minute or an hour. The test log has
// that time. To repeat a run, set it in the environment: WEIR_PHASE=23h59m59.999999s.
package limitertest

import (
	"slices"
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

	// Sleep moves the store's clock by a whole number of microseconds, up to some years, or back if the
	// duration is negative. The clock otherwise stands still. If the store settles in the background,
	// Sleep must first wait until that is done. Nil: the store reads time.Now, and every case runs in a
	// bubble of testing/synctest, whose clock does not step back.
	Sleep func(time.Duration)
}

// A testCase tests a promise.
type testCase struct {
	name string // what is promised

	// why says what breaks for users, or what is likely wrong in the store.
	why string

	slots     bool            // only for stores that count slots
	stepsBack bool            // only for stores whose clock can step back
	limits    []limiter.Limit // it runs once for each of these, or once if there is none
	run       func(t *trial)
}

// cases has all cases: the traces of promises.txt, and the cases that each file declares.
var cases = slices.Concat(traces(), keys, changes, slots, races)

// Run tests the stores that h.New returns. It tests everything that a [limiter.Store] promises.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil {
		t.Fatal("limitertest: a Harness needs New")
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.limits == nil {
				h.try(t, c, limiter.Limit{})
			}
			for _, l := range c.limits {
				t.Run(l.Algorithm.String(), func(t *testing.T) { h.try(t, c, l) })
			}
		})
	}
}

// try runs one case on a new store, in a bubble if the store reads time.Now.
func (h Harness) try(t *testing.T, c testCase, l limiter.Limit) {
	if h.Sleep != nil {
		made := h.New(t)
		h.Sleep(phase.Draw(t))
		c.test(&trial{TB: t, store: made, limit: l, sleep: h.Sleep, stepsBack: true})
		return
	}
	phase.Test(t, func(t *testing.T) {
		c.test(&trial{TB: t, store: h.New(t), limit: l, sleep: time.Sleep})
	})
}

// test runs the case, unless it is for other stores.
func (c testCase) test(t *trial) {
	if c.slots && limiter.CheckQuota(t.store, must(limiter.NewConcurrency("slots", "", 1))) != nil || c.stepsBack && !t.stepsBack {
		return
	}
	t.why = c.why
	c.run(t)
}
