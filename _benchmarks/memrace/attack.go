package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/limiter"
)

// What is told of an attack, in this order.
const (
	heapBefore race.Metric = "store's heap before, MB"
	heapAfter  race.Metric = "store's heap after, MB"
	floodPerOp race.Metric = "ns per decision of the flood"
	idleP50    race.Metric = "p50 ns of the customer, idle"
	floodP50   race.Metric = "p50 ns of the customer, under flood"
	idleP99    race.Metric = "p99 ns of the customer, idle"
	floodP99   race.Metric = "p99 ns of the customer, under flood"
	calls      race.Metric = "calls of the customer under flood"
	p99Ratio   race.Metric = "p99 of the customer, under flood / idle"
	heapRatio  race.Metric = "store's heap, after / before"
	turnedAway race.Metric = "of them refused"
	forgotten  race.Metric = "of the customer's keys forgotten"
	evicted    race.Metric = "evicted"
	overflowed race.Metric = "overflowed"
)

var attackMetrics = []race.Metric{heapBefore, heapAfter, heapRatio, floodPerOp, idleP50, floodP50, idleP99, floodP99, p99Ratio, calls, turnedAway, forgotten, evicted, overflowed}

const (
	maxKeys      = 100_000
	customerKeys = 4_000
)

// attack floods a store that is at its cap with new keys, while a customer asks about its
// own. Before that strangers have filled the store, each with a request of that cost: where
// it is all they have, they are being refused and cannot be forgotten.
func measureAttack(flood int, cost int64) (measurement, error) {
	return func(goroutines int, _ time.Duration) (race.Figures, error) {
		strangers, mine := windows(flood), &customer{keys: packed(sequence(customerKeys))}
		empty, _ := heap()
		m, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: maxKeys})
		if err != nil {
			return nil, err
		}
		l, err := limiter.New(limiter.Config{Name: "api", Store: m, Limit: limitOf(enough, limiter.TokenBucket)})
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		mine.l = l
		for range 2 {
			mine.round() // so it has used more than those that come once
		}
		for i := range 2 * maxKeys {
			for range 1 + cost/enough.burst { // the last time to be refused
				if _, err := l.AllowN(ctx, "stranger "+race.Key(i), cost); err != nil {
					return nil, err
				}
			}
		}
		before, _ := heap()
		stats := m.Stats()
		for range 200 {
			mine.round()
		}
		idle := *mine
		*mine = customer{l: l, keys: mine.keys, asked: mine.asked}

		// The customer is a goroutine among those of the flood.
		var over atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for !over.Load() {
				mine.round()
			}
		})
		call := func(ctx context.Context, key string) (bool, error) {
			d, err := l.Allow(ctx, key)
			return d.Allowed, err
		}
		var t tally
		figures := timed(goroutines, flood, func() { t.ask(call, strangers, 0, flood) })
		over.Store(true)
		wg.Wait()
		lost, err := mine.forgotten()
		if err != nil {
			return nil, err
		}
		after, _ := heap()
		runtime.KeepAlive(strangers)
		runtime.KeepAlive(m)
		now := m.Stats()
		const mega = 1e6
		return race.Figures{
			heapRatio:  (float64(after) - float64(empty)) / (float64(before) - float64(empty)),
			p99Ratio:   float64(mine.latencies.Quantile(0.99)) / float64(idle.latencies.Quantile(0.99)),
			heapBefore: (float64(before) - float64(empty)) / mega,
			heapAfter:  (float64(after) - float64(empty)) / mega,
			floodPerOp: figures[perOp],
			idleP50:    float64(idle.latencies.Quantile(0.5)),
			idleP99:    float64(idle.latencies.Quantile(0.99)),
			floodP50:   float64(mine.latencies.Quantile(0.5)),
			floodP99:   float64(mine.latencies.Quantile(0.99)),
			calls:      float64(mine.calls),
			turnedAway: float64(mine.refused),
			forgotten:  float64(lost),
			evicted:    float64(now.Evicted - stats.Evicted),
			overflowed: float64(now.Overflowed - stats.Overflowed),
		}, nil
	}, nil
}

// A customer asks about its keys, one after the other.
type customer struct {
	l         *limiter.Limiter
	keys      []string
	latencies race.Histogram
	asked     int64 // about each, since it was first
	calls     int
	refused   int
}

func (c *customer) round() {
	if c.asked >= enough.burst-1 {
		runtime.Gosched()
		return // or it would be refused with reason
	}
	last := time.Now()
	for _, key := range c.keys {
		d, err := c.l.Allow(context.Background(), key)
		now := time.Now()
		c.latencies.Add(now.Sub(last))
		last = now
		if c.calls++; err != nil || !d.Allowed {
			c.refused++
		}
	}
	c.asked++
}

// forgotten is how many keys have more left than they can have after what they used.
func (c *customer) forgotten() (int, error) {
	n := 0
	for _, key := range c.keys {
		d, err := c.l.AllowN(context.Background(), key, 0)
		if err != nil {
			return 0, err
		}
		if d.Remaining > d.Limit-c.asked+1 { // one may be back
			n++
		}
	}
	return n, nil
}

// windows are n texts that differ, all but certainly: those of 16 bytes in a random one.
func windows(n int) []string {
	const size = 16
	random := rand.NewChaCha8([32]byte{})
	text := make([]byte, n+size)
	_, _ = random.Read(text)
	keys, all := make([]string, n), string(text)
	for i := range keys {
		keys[i] = all[i : i+size]
	}
	return keys
}
