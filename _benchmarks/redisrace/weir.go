package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/redisstore"
)

// errDegraded is a decision of an outage policy's instead of Redis's: an error of the
// store's that its users do not see as one.
var errDegraded = errors.New("degraded: Redis gave no answer in time")

// openWeir opens a store that decides on so many rules at once, for one key.
func openWeir(rules int, o redisstore.Options) func(context.Context, *environment) (func() race.Call, error) {
	return func(_ context.Context, c *environment) (func() race.Call, error) {
		quotas, err := newQuotas(rules)
		if err != nil {
			return nil, err
		}
		return weirCaller(redisstore.New(c.client(), o), quotas), nil
	}
}

func newQuotas(n int) ([]*limiter.Quota, error) {
	var quotas []*limiter.Quota
	for i := range n {
		q, err := limiter.NewQuota(fmt.Sprintf("rule%d", i+1), "", limiter.Limit{
			Events: 1, Per: time.Second, Burst: int64(burst - i), Algorithm: limiter.TokenBucket,
		})
		if err != nil {
			return nil, err
		}
		quotas = append(quotas, q)
	}
	return quotas, nil
}

func weirCaller(store limiter.Store, quotas []*limiter.Quota) func() race.Call {
	return func() race.Call {
		charges := make([]limiter.Charge, len(quotas))
		decisions := make([]limiter.Decision, len(quotas))
		return func(ctx context.Context, key string) (bool, error) {
			for i, q := range quotas {
				charges[i] = limiter.Charge{Quota: q, Key: key, Cost: 1}
			}
			if err := store.Decide(ctx, charges, decisions); err != nil {
				return false, err
			}
			allowed := true
			for i := range decisions {
				if decisions[i].Degraded {
					return false, errDegraded
				}
				allowed = allowed && decisions[i].Allowed
			}
			return allowed, nil
		}
	}
}

// openWeirSettles opens a store in which each decision is corrected at once.
func openWeirSettles(_ context.Context, c *environment) (func() race.Call, error) {
	q, err := limiter.NewQuota("rule1", "", limiter.Limit{Events: burst, Per: 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	q.Settles = true
	return settlingCaller(c, q, 2, 1), nil
}

// openWeirPlaces opens a store in which each event takes a place and returns it.
func openWeirPlaces(_ context.Context, c *environment) (func() race.Call, error) {
	q, err := limiter.NewConcurrency("rule1", "", mostAtOnce)
	if err != nil {
		return nil, err
	}
	return settlingCaller(c, q, 1, 0), nil
}

// settlingCaller takes so many units, and says at once how many it really was.
func settlingCaller(c *environment, q *limiter.Quota, cost, actual int64) func() race.Call {
	store := redisstore.New(c.client(), redisstore.Options{})
	c.closeLater(store.Close)
	return func() race.Call {
		var charges [1]limiter.Charge
		var decisions [1]limiter.Decision
		return func(ctx context.Context, key string) (bool, error) {
			charges[0] = limiter.Charge{Quota: q, Key: key, Cost: cost}
			if err := store.Decide(ctx, charges[:], decisions[:]); err != nil {
				return false, err
			}
			if decisions[0].Degraded {
				return false, errDegraded
			}
			if !decisions[0].Allowed {
				return false, nil
			}
			charges[0].At = decisions[0].At
			return true, store.Settle(ctx, []limiter.Settlement{{Charge: charges[0], Actual: actual}})
		}
	}
}

// openOwnScript records what weir sends for every key, to send just that.
func openOwnScript(ctx context.Context, c *environment) (func() race.Call, error) {
	quotas, err := newQuotas(1)
	if err != nil {
		return nil, err
	}
	var sent []any
	recorded := redis.NewClient(&redis.Options{Addr: c.addr, ContextTimeoutEnabled: true}) // or weir's copy has no hooks
	c.closeLater(recorded.Close)
	recorded.AddHook(recorder{func(args []any) error {
		if args[0] == "evalsha" {
			sent = append([]any(nil), args...)
		}
		return nil
	}})
	call := weirCaller(redisstore.New(recorded, redisstore.Options{}), quotas)()
	commands := make(map[string][]any, c.keys)
	for _, key := range race.Keys(c.keys) {
		sent = nil
		if _, err := call(ctx, key); err != nil {
			return nil, err
		}
		if sent == nil {
			return nil, errors.New("weir sent no EVALSHA")
		}
		commands[key] = sent
	}
	return shared(replay(c.client(), commands)), nil
}
