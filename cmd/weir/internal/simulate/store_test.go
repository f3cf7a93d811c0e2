package simulate

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
)

// locked is a store for many goroutines.
type locked struct {
	*store
	mu *sync.Mutex
}

func (l locked) Decide(ctx context.Context, charges []limiter.Charge) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store.Decide(ctx, charges)
}

func (l locked) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store.Settle(ctx, settlements)
}

func (l locked) Reset(ctx context.Context, charges []limiter.Charge) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store.Reset(ctx, charges)
}

func TestTheStoreOfASimulationKeepsTheirPromises(t *testing.T) {
	clock := &Clock{now: time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC).UnixMicro()}
	limitertest.Run(t, limitertest.Harness{
		New:   func(testing.TB) limiter.Store { return locked{newStore(clock), &sync.Mutex{}} },
		Sleep: func(d time.Duration) { clock.now += d.Microseconds() },
	})
}
