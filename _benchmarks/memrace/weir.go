package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// limitOf is a quota as Weir's algorithms have it.
func limitOf(q quota, a limiter.Algorithm) limiter.Limit {
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		return limiter.Limit{Events: 1, Per: q.every, Burst: q.burst, Algorithm: a}
	case limiter.SlidingLog:
		if q == plenty {
			return limiter.Limit{Events: 100, Per: 10 * time.Microsecond, Algorithm: a}
		}
	}
	return limiter.Limit{Events: q.burst, Per: window, Algorithm: a}
}

// memory has room enough that no key takes another's place.
func (s *environment) memory() (*limiter.Memory, error) {
	return limiter.NewMemory(limiter.MemoryOptions{MaxKeys: s.keys + s.keys/2 + 100})
}

func openWeir(a limiter.Algorithm) func(*environment) (func() race.Call, error) {
	return func(s *environment) (func() race.Call, error) {
		m, err := s.memory()
		if err != nil {
			return nil, err
		}
		l, err := limiter.New(limiter.Config{Name: "race", Limit: limitOf(s.quota, a), Store: m})
		return shared(func(ctx context.Context, key string) (bool, error) {
			d, err := l.Allow(ctx, key)
			return d.Allowed, err
		}), err
	}
}

// openRules decides about so many token buckets of one key at once.
func openRules(s *environment, charges int) (func() race.Call, error) {
	m, err := s.memory()
	if err != nil {
		return nil, err
	}
	var quotas []*limiter.Quota
	for i := range charges {
		q, err := limiter.NewQuota(fmt.Sprint("rule ", i), "", limitOf(s.quota, limiter.TokenBucket))
		if err != nil {
			return nil, err
		}
		quotas = append(quotas, q)
	}
	return func() race.Call {
		batch, decisions := make([]limiter.Charge, charges), make([]limiter.Decision, charges)
		for i, q := range quotas {
			batch[i] = limiter.Charge{Quota: q, Cost: 1}
		}
		return func(ctx context.Context, key string) (bool, error) {
			for i := range batch {
				batch[i].Key = key
			}
			err := m.Decide(ctx, batch, decisions)
			return decisions[0].Allowed, err
		}
	}, nil
}

func wrapWeir(s *environment, next http.Handler) (limited, bare http.Handler, err error) {
	l, err := middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "ip", Key: keyfunc.IP(), Limit: limitOf(s.quota, limiter.TokenBucket)},
	}})
	if err != nil {
		return nil, nil, err
	}
	return l.Handler(next), nil, nil
}
