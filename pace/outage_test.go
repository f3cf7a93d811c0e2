package pace_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/pace"
)

// A remote store has a server that may be away.
type remote struct {
	limiter.Store
	away *atomic.Bool
}

var errAway = errors.New("the server is away")

func (s remote) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if s.away.Load() {
		return errAway
	}
	return s.Store.Decide(ctx, charges, decisions)
}

func (s remote) Refund(ctx context.Context, charges []limiter.Charge) error {
	if s.away.Load() {
		return errAway
	}
	return s.Store.Refund(ctx, charges)
}

func (s remote) Owe(ctx context.Context, charges []limiter.Charge) error {
	if s.away.Load() {
		return errAway
	}
	return s.Store.Owe(ctx, charges)
}

// processes are two that share a store which may be away.
func processes(t *testing.T, s *server, r pace.Rule) (all []*pace.Transport, away *atomic.Bool) {
	t.Helper()
	memory, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	away = new(atomic.Bool)
	for range 2 {
		store, err := failover.New(remote{memory, away}, failover.Options{Replicas: 2, Failures: 1, OnDegraded: func(failover.Event) {}})
		require.NoError(t, err)
		all = append(all, newTransport(t, s, pace.Options{Rules: []pace.Rule{r}, Store: store}))
	}
	return all, away
}

func TestInAnOutageEachProcessPacesByItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		all, away := processes(t, s, pace.Rule{Host: "api.example.org", Limit: limiter.PerSecond(10)})
		away.Store(true)
		var group sync.WaitGroup
		for _, process := range all {
			group.Go(func() { require.NoError(t, errors.Join(together(t, 20, process, api)...)) })
		}
		group.Wait()
		requireEven(t, s.times(), 10, 2)
		require.InDelta(t, 3800*time.Millisecond, slices.Max(s.times()), float64(10*time.Millisecond))
	})
}

// requireEven requires that in no second there were more than perSecond requests, and some more.
func requireEven(t *testing.T, sent []time.Duration, perSecond, more int) {
	t.Helper()
	slices.Sort(sent)
	for i := range sent {
		n := 0
		for _, at := range sent[i:] {
			if at < sent[i]+time.Second {
				n++
			}
		}
		require.LessOrEqual(t, n, perSecond+more, "from %v on: %v", sent[i], sent)
	}
}

// Turns that an outage gave are still waited for when the server is back.
func TestThereIsNoStampedeAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		all, away := processes(t, s, pace.Rule{Host: "api.example.org", Limit: limiter.PerSecond(10)})
		away.Store(true)
		var group sync.WaitGroup
		for _, process := range all {
			group.Go(func() { require.NoError(t, errors.Join(together(t, 50, process, api)...)) })
		}
		time.Sleep(2 * time.Second)
		away.Store(false)
		for range 80 { // they come while the others wait
			for _, process := range all {
				group.Go(func() { _, _ = get(t, process, api) })
			}
			time.Sleep(100 * time.Millisecond)
		}
		group.Wait()
		requireEven(t, s.times(), 10, 4)
		require.Greater(t, s.count(), 200)
	})
}

func TestARuleSaysWhatAnOutageMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		all, away := processes(t, s, pace.Rule{Host: "api.example.org", Limit: limiter.PerSecond(10), OnOutage: limiter.FailOpen})
		away.Store(true)
		require.NoError(t, errors.Join(together(t, 20, all[0], api)...))
		require.Zero(t, slices.Max(s.times()), "nothing is counted")
	})
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		all, away := processes(t, s, pace.Rule{Host: "api.example.org", Limit: limiter.PerSecond(10), OnOutage: limiter.FailClosed})
		away.Store(true)
		_, err := get(t, all[0], api)
		require.ErrorIs(t, err, failover.ErrUnavailable)
		require.Zero(t, s.count())
	})
}

// A cooldown holds through an outage.
func TestACooldownHoldsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		all, away := processes(t, s, pace.Rule{Host: "api.example.org", Limit: limiter.PerSecond(10)})
		s.answer = refuseFirst("Retry-After", "10")
		_, err := get(t, all[0], api)
		require.NoError(t, err)
		away.Store(true)
		_, err = get(t, all[0], api)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, slices.Max(s.times()))
	})
}

// A store without outage policies that cannot decide is no permission.
func TestAStoreThatCannotDecideIsAnError(t *testing.T) {
	t.Parallel()
	memory, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	var away atomic.Bool
	away.Store(true)
	var seen observed
	s := newServer(nil)
	transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Store: remote{memory, &away}, Observer: &seen})
	_, err = get(t, transport, api)
	require.ErrorIs(t, err, errAway)
	require.Zero(t, s.count())
	require.Equal(t, pace.OutcomeUndecided, seen.all()[0].Outcome)
}
