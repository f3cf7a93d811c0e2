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
	away atomic.Bool
}

var errAway = errors.New("the server is away")

func newRemote() *remote {
	return &remote{Store: limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
}

func (s *remote) Decide(ctx context.Context, charges []limiter.Charge) error {
	if s.away.Load() {
		return errAway
	}
	return s.Store.Decide(ctx, charges)
}

// processes are two that share a store which may be away.
func processes(t *testing.T, s *server, r pace.Rule) (all []*pace.Transport, shared *remote) {
	t.Helper()
	shared = newRemote()
	for range 2 {
		store, err := failover.New(shared, failover.Options{Replicas: 2, Failures: 1, OnDegraded: func(failover.Event) {}})
		require.NoError(t, err)
		all = append(all, newTransport(t, s, pace.Options{Rules: []pace.Rule{r}, Store: store}))
	}
	return all, shared
}

func TestInAnOutageEachProcessPacesByItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		all, shared := processes(t, s, pace.Rule{Host: "api.example.org", Limit: limiter.PerSecond(10)})
		shared.away.Store(true)
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

func TestARuleSaysWhatAnOutageMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		all, shared := processes(t, s, pace.Rule{Host: "api.example.org", Limit: limiter.PerSecond(10), OnOutage: limiter.FailOpen})
		shared.away.Store(true)
		require.NoError(t, errors.Join(together(t, 20, all[0], api)...))
		require.Zero(t, slices.Max(s.times()), "nothing is counted")
	})
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		all, shared := processes(t, s, pace.Rule{Host: "api.example.org", Limit: limiter.PerSecond(10), OnOutage: limiter.FailClosed})
		shared.away.Store(true)
		_, err := get(t, all[0], api)
		require.ErrorIs(t, err, failover.ErrUnavailable)
		require.Zero(t, s.count())
	})
}

// A store without outage policies that cannot decide is no permission.
func TestAStoreThatCannotDecideIsAnError(t *testing.T) {
	t.Parallel()
	store := newRemote()
	store.away.Store(true)
	var seen observed
	s := newServer(nil)
	transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Store: store, Observer: &seen})
	_, err := get(t, transport, api)
	require.ErrorIs(t, err, errAway)
	require.Zero(t, s.count())
	require.Equal(t, pace.OutcomeUndecided, seen.all()[0].Outcome)
}
