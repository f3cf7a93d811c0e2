package limitertest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
)

// A MapStore is a whole store, of the plainest kind: a map behind a mutex. It holds
// states; what they mean is the Quota's business. It never forgets a key: where that
// matters, drop those whose look has Remaining == Limit, as they carry no information.
type MapStore struct {
	mu     sync.Mutex
	states map[counter]state
}

type counter struct{ rule, tier, key string }

type state struct {
	limiter.State
	quota *limiter.Quota // that it was written under
}

func NewMapStore() *MapStore { return &MapStore{states: map[counter]state{}} }

func counterOf(c limiter.Charge) counter {
	return counter{c.Quota.Rule(), c.Quota.Tier(), c.Key}
}

// find is the state of a charge's key. If the limit has changed, what was used stays used.
// It writes nothing, since what is refused must not change anything.
func (m *MapStore) find(c limiter.Charge, now int64) limiter.State {
	s, ok := m.states[counterOf(c)]
	if ok && s.quota.Limit() != c.Quota.Limit() {
		used := s.quota.Capacity() - s.quota.Describe(s.State, now, 0, true).Remaining
		s.State, _ = c.Quota.Take(limiter.State{}, now, min(used, c.Quota.Capacity()))
	}
	return s.State
}

// put writes a state, unless the charge only looks.
func (m *MapStore) put(c limiter.Charge, s limiter.State) {
	if c.Cost > 0 {
		m.states[counterOf(c)] = state{s, c.Quota}
	}
}

func (m *MapStore) Decide(_ context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	if len(decisions) != len(charges) {
		return fmt.Errorf("%w: no room for %d decisions", limiter.ErrCharges, len(charges))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMicro()

	before := make([]limiter.State, len(charges))
	after := make([]limiter.State, len(charges))
	allowed := make([]bool, len(charges))
	all := true
	for i, c := range charges {
		before[i] = m.find(c, now)
		after[i], allowed[i] = c.Quota.Take(before[i], now, c.Cost)
		all = all && allowed[i]
	}
	for i, c := range charges {
		switch {
		case all:
			m.put(c, after[i])
			decisions[i] = c.Quota.Describe(after[i], now, c.Cost, true)
		case allowed[i]: // it did not stand in the way: a look
			decisions[i] = c.Quota.Describe(before[i], now, 0, true)
		default:
			decisions[i] = c.Quota.Describe(before[i], now, c.Cost, false)
		}
	}
	return nil
}

func (m *MapStore) Refund(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMicro()
	for _, c := range charges {
		m.put(c, c.Quota.Refund(m.find(c, now), now, c.Cost, c.At))
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
