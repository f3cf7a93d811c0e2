package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// A quota is what each key gets: in a bucket burst at once and one more every so often, in
// a window burst.
type quota struct {
	burst int64
	every time.Duration
}

// Keys stay live, neither back at their start nor refused, or else all are refused.
var (
	plenty  = quota{1<<28 - 1, 10 * time.Millisecond} // for one key
	enough  = quota{5_000, time.Hour}                 // for one of many
	nothing = quota{1, window}                        // once it is used up
)

// window is of such a length that one hardly ever ends during a race.
const window = 30 * 24 * time.Hour

// An environment is what a limiter is made for, in a process of its own.
type environment struct {
	quota   quota
	keys    int
	closers []func()
}

func (s *environment) closeLater(closer func()) { s.closers = append(s.closers, closer) }

func (s *environment) close() {
	for _, closer := range s.closers {
		closer()
	}
}

// A measurement measures its contestant once, by so many goroutines, for about so long. It is
// called again in each round, so what it prepares it prepares once.
type measurement func(goroutines int, slice time.Duration) (race.Figures, error)

const (
	perOp  race.Metric = "ns/op"
	allocs race.Metric = "allocs/op"
)

// Names of cases.
const (
	allowed  = "allowed"
	refused  = "refused"
	newKeys  = "new keys"
	requests = "middleware"
	rules    = "rules"
	memory   = "memory"
	flooded  = "flooded"
	besieged = "besieged"
)

// takesPart says whether e has something for a case of this name.
func (e contestant) takesPart(name string) bool {
	switch name {
	case rules:
		return e.charges > 0
	case requests:
		return e.wrap != nil
	case flooded, besieged:
		return e.name == weir
	case memory:
		return e.open != nil && e.name != floor
	}
	return e.open != nil
}

// measurements are by the case's name.
var measurements = map[string]func(e contestant, keys int) (measurement, error){
	allowed: func(e contestant, keys int) (measurement, error) {
		return measureDecisions(e.open, quotaFor(keys), keys)
	},
	refused: func(e contestant, keys int) (measurement, error) { return measureDecisions(e.open, nothing, keys) },
	rules: func(e contestant, keys int) (measurement, error) {
		return measureDecisions(func(s *environment) (func() race.Call, error) { return openRules(s, e.charges) }, quotaFor(keys), keys)
	},
	newKeys:  measureNewKeys,
	requests: measureRequests,
	memory:   measureMemory,
	flooded:  func(_ contestant, keys int) (measurement, error) { return measureAttack(keys, 1) },
	besieged: func(_ contestant, keys int) (measurement, error) { return measureAttack(keys, enough.burst) },
}

func quotaFor(keys int) quota {
	if keys == 1 {
		return plenty
	}
	return enough
}

// measureDecisions is about live keys, in another order than they came in.
func measureDecisions(open func(*environment) (func() race.Call, error), q quota, keys int) (measurement, error) {
	caller, err := open(&environment{quota: q, keys: keys})
	if err != nil {
		return nil, err
	}
	call := caller()
	for _, key := range packed(sequence(keys)) {
		// Windows and buckets differ in how often they say yes before they are exhausted.
		for i := range 100 {
			if yes, err := call(context.Background(), key); err != nil {
				return nil, err
			} else if !yes || q != nothing {
				break
			} else if i == 99 {
				return nil, fmt.Errorf("%s is still allowed, after 100 times", key)
			}
		}
	}
	asked := packed(rand.New(rand.NewPCG(1, 2)).Perm(keys))
	at := 0
	ns := map[int]float64{} // by goroutines, the first time
	measure := func(goroutines, n int) (race.Figures, error) {
		var t tally
		figures := timed(goroutines, n, func() { t.ask(caller(), asked, at, n) })
		at = (at + n) % keys
		figures[race.Errors] = float64(t.failed.Load())
		return figures, t.check(n, q != nothing)
	}
	return func(goroutines int, slice time.Duration) (race.Figures, error) {
		for n := chunk; ns[goroutines] == 0; n *= 2 {
			figures, err := measure(goroutines, n)
			if err != nil {
				return nil, err
			}
			if took := figures[perOp] * float64(n); took >= float64(slice)/4 {
				ns[goroutines] = figures[perOp]
			}
		}
		return measure(goroutines, max(chunk, int(float64(slice)/ns[goroutines])))
	}, nil
}

// chunk is how many calls a goroutine makes before it looks how many are left.
const chunk = 1 << 12

// A tally is kept by goroutines that ask together.
type tally struct {
	next, admitted, failed atomic.Int64
	complaint              atomic.Pointer[error]
}

// ask makes calls in chunks until all goroutines together have made n.
func (t *tally) ask(call race.Call, keys []string, at, n int) {
	ctx, admitted := context.Background(), 0
	defer func() { t.admitted.Add(int64(admitted)) }()
	for {
		from := int(t.next.Add(chunk)) - chunk
		if from >= n {
			return
		}
		k := (at + from) % len(keys)
		for range min(chunk, n-from) {
			yes, err := call(ctx, keys[k])
			if err != nil {
				t.fail(err)
			} else if yes {
				admitted++
			}
			if k++; k == len(keys) {
				k = 0
			}
		}
	}
}

// fail is apart from ask, where what it keeps would cost every call an allocation.
func (t *tally) fail(err error) {
	t.failed.Add(1)
	t.complaint.Store(&err)
}

// check is an error if other than all or none of those that got an answer were admitted.
func (t *tally) check(n int, all bool) error {
	answered, want := n-int(t.failed.Load()), 0
	if all {
		want = answered
	}
	if off := math.Abs(float64(want) - float64(t.admitted.Load())); off > float64(n)/1000 {
		return fmt.Errorf("%d of %d were admitted, where it should have been %d", t.admitted.Load(), n, want)
	}
	if err := t.complaint.Load(); err != nil && answered < n*9/10 {
		return *err
	}
	return nil
}

// measureNewKeys is about keys that an empty limiter has not seen.
func measureNewKeys(e contestant, keys int) (measurement, error) {
	asked := packed(rand.New(rand.NewPCG(1, 2)).Perm(keys))
	return func(goroutines int, _ time.Duration) (race.Figures, error) {
		s := &environment{quota: enough, keys: keys}
		defer s.close()
		caller, err := e.open(s)
		if err != nil {
			return nil, err
		}
		var t tally
		figures := timed(goroutines, keys, func() { t.ask(caller(), asked, 0, keys) })
		return figures, t.check(keys, true)
	}, nil
}

// timed has so many goroutines run f, which do n things together, and tells what one took.
func timed(goroutines, n int, f func()) race.Figures {
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	ready := make(chan struct{})
	for range goroutines {
		wg.Go(func() {
			<-ready
			f()
		})
	}
	runtime.GC() // garbage of before is not this one's
	runtime.ReadMemStats(&before)
	start := time.Now()
	close(ready)
	wg.Wait()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	return race.Figures{
		perOp: float64(elapsed) / float64(n),
		// To a hundredth, as the runtime and the harness have a few of their own.
		allocs: math.Round(100*float64(after.Mallocs-before.Mallocs)/float64(n)) / 100,
	}
}

// packed are the keys of these numbers, one behind the other in memory: what is read of
// a request is at hand, and for the garbage collector they are one object.
func packed(numbers []int) []string {
	var text strings.Builder
	ends := make([]int, len(numbers))
	for i, number := range numbers {
		text.WriteString(race.Key(number))
		ends[i] = text.Len()
	}
	keys, from := make([]string, len(numbers)), 0
	for i, end := range ends {
		keys[i], from = text.String()[from:end], end
	}
	return keys
}

func sequence(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}
