package limitertest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
	"github.com/weirgo/weir/limiter/store"
)

// A MapStore is a whole store, of the plainest kind: a map behind a mutex. It never forgets a
// key: where that matters, drop those of which State.FreeAfter is 0, as they carry no
// information.
type MapStore struct {
	mu     sync.Mutex
	states map[[3]string]limiter.State
}

func NewMapStore() *MapStore { return &MapStore{states: map[[3]string]limiter.State{}} }

// counterOf is what tells counters apart.
func counterOf(c limiter.Charge) [3]string {
	return [3]string{c.Quota.Rule(), c.Quota.Tier(), c.Key}
}

func (m *MapStore) Decide(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make([]limiter.State, len(charges))
	for i, c := range charges {
		states[i] = m.states[counterOf(c)]
	}
	if store.TakeAll(charges, states, time.Now().UnixMicro()) {
		for i, c := range charges {
			if c.Cost > 0 { // a look leaves nothing behind
				m.states[counterOf(c)] = states[i]
			}
		}
	}
	return nil
}

func (m *MapStore) Settle(_ context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range settlements {
		counter := counterOf(c.Charge)
		m.states[counter] = c.Quota.Settle(m.states[counter], time.Now().UnixMicro(), c)
	}
	return nil
}

func (m *MapStore) Reset(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range charges {
		delete(m.states, counterOf(c))
	}
	return nil
}

func TestMapStoreKeepsItsPromises(t *testing.T) {
	limitertest.Run(t, limitertest.Harness{
		New: func(testing.TB) limiter.Store { return NewMapStore() },
	})
}

// A store holds states, asks Quota what to do with them, and is tried with Run.
func ExampleRun() {
	mail := limiter.Must(limiter.New(limiter.Config{
		Name:  "mail",
		Limit: limiter.PerHour(2).With(limiter.SlidingLog),
		Store: NewMapStore(),
	}))
	for range 3 {
		d, err := mail.Allow(context.Background(), "user:42")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
