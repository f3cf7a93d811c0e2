package race

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// A tally is what one goroutine has seen.
type tally struct {
	latencies Histogram // of every call
	decisions int       // calls without an error
	refused   int       // of them
	errors    int
	complaint error // the first error
}

// slice measures one contestant in one case. The complaint is an error of the contestant's.
func (p *Plan) slice(ctx context.Context, contestant Contestant, c Case) (figures Figures, complaint, err error) {
	if p.Reset != nil {
		if err := p.Reset(ctx); err != nil {
			return nil, nil, err
		}
	}
	keys := Keys(c.Keys)
	warm(ctx, contestant, c.Goroutines, keys)
	settle(ctx, contestant, keys[0])
	tallies := make([]*tally, c.Goroutines)
	for i := range tallies {
		tallies[i] = new(tally)
	}
	runtime.GC() // the garbage of the contestant before is not this one's

	before, err := p.readMeters()
	if err != nil {
		return nil, nil, err
	}
	elapsed := p.run(ctx, contestant, keys, tallies)
	after, err := p.readMeters()
	if err != nil {
		return nil, nil, err
	}

	total := tallies[0]
	for _, t := range tallies[1:] {
		total.add(t)
	}
	figures = Figures{
		PerSecond: float64(total.decisions) / elapsed.Seconds(),
		P50:       micros(total.latencies.Quantile(0.50)),
		P99:       micros(total.latencies.Quantile(0.99)),
		Errors:    float64(total.errors),
		Refused:   float64(total.refused),
	}
	for i, m := range p.Meters {
		figures[m.Metric] = (after[i] - before[i]) / float64(max(total.decisions, 1))
	}
	return figures, total.complaint, nil
}

// warmers is the least number of goroutines that warm a contestant up, as one alone
// would take long to reach every key.
const warmers = 64

// warm has every key asked for, by as many goroutines as will run, each a few times: then
// connections are open, scripts are loaded, and no key is new. What goes wrong goes wrong
// again in the slice.
func warm(ctx context.Context, contestant Contestant, goroutines int, keys []string) {
	n := max(goroutines, warmers)
	var wg sync.WaitGroup
	for first := range n {
		wg.Go(func() {
			call := contestant.Caller()
			for i := first; i < max(len(keys), 4*n); i += n {
				_, _ = call(ctx, keys[i%len(keys)])
			}
		})
	}
	wg.Wait()
}

// patience is how long a contestant may take to get over the warming up.
const patience = 5 * time.Second

// settle waits until a call succeeds: a contestant that stays away from a server for a while after an
// error, because many connections were opened at once, does so outside the slice.
func settle(ctx context.Context, contestant Contestant, key string) {
	call := contestant.Caller()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if _, err := call(ctx, key); err == nil {
			return
		}
	}
}

// run has every goroutine call until the slice is over, and returns how long that took.
func (p *Plan) run(ctx context.Context, contestant Contestant, keys []string, tallies []*tally) time.Duration {
	var wg sync.WaitGroup
	ready := make(chan struct{})
	var start time.Time
	for _, t := range tallies {
		call := contestant.Caller()
		wg.Go(func() {
			// As a request's, the context can be canceled and is of this goroutine alone.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			<-ready
			last := start
			for last.Sub(start) < p.Slice {
				allowed, err := call(ctx, keys[random.IntN(len(keys))])
				now := time.Now()
				t.note(allowed, err, now.Sub(last))
				last = now
			}
		})
	}
	start = time.Now()
	close(ready)
	wg.Wait()
	return time.Since(start)
}

func (t *tally) note(allowed bool, err error, latency time.Duration) {
	t.latencies.Add(latency)
	switch {
	case err != nil:
		t.errors++
		if t.complaint == nil {
			t.complaint = err
		}
		return
	case !allowed:
		t.refused++
	}
	t.decisions++
}

func (t *tally) add(other *tally) {
	t.latencies.Merge(&other.latencies)
	t.decisions += other.decisions
	t.refused += other.refused
	t.errors += other.errors
	if t.complaint == nil {
		t.complaint = other.complaint
	}
}

func (p *Plan) readMeters() ([]float64, error) {
	read := make([]float64, len(p.Meters))
	for i, m := range p.Meters {
		var err error
		if read[i], err = m.Read(); err != nil {
			return nil, err
		}
	}
	return read, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
