package failover_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/limiter/limitertest"
)

func TestAStoreAroundAnotherKeepsItsPromises(t *testing.T) {
	limitertest.Run(t, limitertest.Harness{
		New: func(t testing.TB) limiter.Store {
			return wrap(newServer(t, fine), failover.Options{})
		},
	})
}

// outage hides what is different about decisions by policy: that they say so, and that a
// reset did not reach the server.
type outage struct{ *failover.Store }

func (o outage) Decide(ctx context.Context, charges []limiter.Charge) error {
	err := o.Store.Decide(ctx, charges)
	for i := range charges {
		charges[i].Decision.Degraded = false
	}
	return err
}

func (o outage) Reset(ctx context.Context, charges []limiter.Charge) error {
	err := o.Store.Reset(ctx, charges)
	if errors.Is(err, failover.ErrUnavailable) {
		return nil
	}
	return err
}

func TestLocalDecisionsKeepAStoresPromises(t *testing.T) {
	limitertest.Run(t, limitertest.Harness{
		New: func(t testing.TB) limiter.Store {
			s := wrap(newServer(t, dead), failover.Options{Failures: 1, OnDegraded: ignore})
			breakDown(t, s, charge(quota(t, "first", limiter.PerDay(1), limiter.FailLocal), ""))
			require.True(t, s.Health().Degraded)
			return outage{s}
		},
	})
}
