package failover_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// A flaky server counts in a Memory. Of its calls some fail: before they are counted, or after it, or by
// an answer that comes too late.
type flaky struct {
	*limiter.Memory
	mu     sync.Mutex
	random *rand.Rand
	fails  func(*rand.Rand) bool
}

var errReset = errors.New("connection reset by peer")

// call makes a call, which may fail.
func (f *flaky) call(ctx context.Context, do func() error) error {
	f.mu.Lock()
	fails, kind := f.fails(f.random), f.random.IntN(4)
	f.mu.Unlock()
	if fails && kind == 0 {
		return errReset
	}
	err := do()
	if fails && kind < 3 {
		<-ctx.Done() // too late
		return ctx.Err()
	}
	if fails {
		return errReset // the answer is lost
	}
	return err
}

func (f *flaky) Decide(ctx context.Context, charges []limiter.Charge) error {
	asked := slices.Clone(charges) // the answers of a call that failed are nobody's
	err := f.call(ctx, func() error { return f.Memory.Decide(ctx, asked) })
	if err == nil {
		copy(charges, asked)
	}
	return err
}

func (f *flaky) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	return f.call(ctx, func() error { return f.Memory.Settle(ctx, settlements) })
}

// faults are patterns in which a share p of the calls fails.
var faults = map[string]func(p float64) func(*rand.Rand) bool{
	"each by itself": func(p float64) func(*rand.Rand) bool {
		return func(r *rand.Rand) bool { return r.Float64() < p }
	},
	"in runs": func(p float64) func(*rand.Rand) bool {
		fails := false
		return func(r *rand.Rand) bool {
			const run = 12 // calls on average that fail one after the other
			if change := 1.0 / run; fails && r.Float64() < change || !fails && r.Float64() < change*p/(1-p) {
				fails = !fails
			}
			return fails
		}
	},
	"in bursts": func(p float64) func(*rand.Rand) bool {
		var fails bool
		var until time.Time
		return func(r *rand.Rand) bool {
			for ; !time.Now().Before(until); fails = !fails {
				mean := 1.5 // seconds
				if fails {
					mean *= (1 - p) / p
				}
				if until.IsZero() {
					until = time.Now()
				}
				until = until.Add(time.Duration(r.ExpFloat64() * mean * float64(time.Second)))
			}
			return fails
		}
	},
}

// mostInAMinute is the most of these events in any minute.
func mostInAMinute(times []time.Time) (most int) {
	for first, last := 0, 0; last < len(times); last++ {
		for times[last].Sub(times[first]) > time.Minute {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// A crowd asks for more than the limit for more than a minute, through several processes that share the
// server. It notes when each rule admitted an event of each key.
type crowd struct {
	mu       sync.Mutex
	random   *rand.Rand
	admitted map[string][]time.Time
	events   []failover.Event
}

func (c *crowd) besiege(t *testing.T, stores []*failover.Store, batch func(*rand.Rand) []limiter.Charge) {
	var wg sync.WaitGroup
	for _, s := range stores {
		for range 4 {
			wg.Go(func() {
				for start := time.Now(); time.Since(start) < 65*time.Second; time.Sleep(20 * time.Millisecond) {
					c.mu.Lock()
					charges := batch(c.random)
					c.mu.Unlock()
					if err := s.Decide(t.Context(), charges); err != nil {
						assert.ErrorIs(t, err, failover.ErrUnavailable)
						continue
					}
					if slices.ContainsFunc(charges, func(c limiter.Charge) bool { return !c.Decision.Allowed }) {
						continue
					}
					c.mu.Lock()
					for _, charge := range charges {
						name := charge.Quota.Rule() + " " + charge.Key
						c.admitted[name] = append(c.admitted[name], time.Now())
					}
					c.mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	time.Sleep(time.Second) // in which probes end
}

func TestAFlakyServerAdmitsNoMoreThanTheLimitAndOneLocalBurst(t *testing.T) {
	algorithms := []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingCounter, limiter.FixedWindow, limiter.SlidingLog}
	trial := 0
	for pattern, faulty := range faults {
		for _, p := range []float64{0.02, 0.1, 0.3, 0.5, 0.9} {
			for _, fleet := range []struct{ replicas, processes int }{{1, 1}, {4, 1}, {4, 4}} {
				trial++
				algorithm, isBatch, keys := algorithms[trial%4], trial%3 == 0, 1+trial%3%2*4
				t.Run(fmt.Sprintf("%s, %v, %v, %+v", pattern, p, algorithm, fleet), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						memory, err := limiter.NewMemory(limiter.MemoryOptions{})
						require.NoError(t, err)
						random := rand.New(rand.NewPCG(uint64(trial), 19))
						server := &flaky{Memory: memory, random: random, fails: faulty(p)}
						c := &crowd{random: rand.New(rand.NewPCG(uint64(trial), 39)), admitted: make(map[string][]time.Time)}
						quota := func(rule string, rate int64, o limiter.Outage) *limiter.Quota {
							q, err := limiter.NewQuota(rule, "", limiter.Limit{Events: rate, Per: time.Second, Algorithm: algorithm})
							require.NoError(t, err)
							q.OnOutage = o
							return q
						}
						const rate = 60
						local, global := quota("local", rate, limiter.FailLocal), quota("global", 2*rate, limiter.FailLocal)
						open, closed := quota("open", 10*rate, limiter.FailOpen), quota("closed", rate, limiter.FailClosed)
						var stores []*failover.Store
						for range fleet.processes {
							stores = append(stores, failover.Must(failover.New(server, failover.Options{
								Replicas: fleet.replicas,
								OnDegraded: func(e failover.Event) {
									c.mu.Lock()
									defer c.mu.Unlock()
									c.events = append(c.events, e)
								},
							})))
						}
						c.besiege(t, stores, func(r *rand.Rand) []limiter.Charge {
							charges := []limiter.Charge{{Quota: local, Key: fmt.Sprint(r.IntN(keys)), Cost: 1}}
							if isBatch {
								charges = append(charges, limiter.Charge{Quota: global, Key: "all", Cost: 1}, limiter.Charge{Quota: open, Key: "all", Cost: 1})
								if r.IntN(2) == 0 {
									charges = append(charges, limiter.Charge{Quota: closed, Key: "all", Cost: 1})
								}
							}
							return charges
						})
						for name, times := range c.admitted {
							limit, local := map[byte]int{'l': rate, 'g': 2 * rate, 'o': 100 * rate, 'c': rate}[name[0]], 1
							if name[0] == 'c' {
								local = 0 // not a burst, and nothing else
							}
							whole, burst := float64(61*limit), float64(local*limit*fleet.processes)/float64(fleet.replicas)
							assert.LessOrEqual(t, float64(mostInAMinute(times)), whole+burst+0.05*float64(local)*whole+1, name)
						}
						assert.LessOrEqual(t, len(c.events), 3*fleet.processes, "one outage, its end, and another one after a minute")
					})
				})
			}
		}
	}
}
