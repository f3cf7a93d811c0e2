package failover

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir/limiter"
)

// probe tries those of these parts that are due, each with its own charges of a batch that was
// decided by policy, so that what another part says does not count for it.
func (s *Store) probe(parts uint64, charges []limiter.Charge) {
	for p := range s.inTrouble(parts) {
		if !p.beginProbe() {
			continue
		}
		var looks []limiter.Charge
		for _, c := range charges {
			if s.partNumber(&c) == p.number {
				looks = append(looks, limiter.Charge{Quota: c.Quota, Key: c.Key})
			}
		}
		go s.try(p, looks)
	}
}

// try is a probe: it looks at keys, and writes something else, as a server that can be read but not
// written is still down. It has nothing of the request's context: a client that goes away does not
// end it.
func (s *Store) try(p *part, looks []limiter.Charge) {
	err := survive(func() error {
		ctx, cancel := s.limited(context.Background())
		defer cancel()
		err := s.inner.Decide(ctx, looks, make([]limiter.Decision, len(looks)))
		if err == nil || isOfOneKey(err) {
			err = s.tryWrite(ctx, looks)
		}
		return err
	})
	if isOfOneKey(err) {
		err = nil // an answer
	}
	mistake := errors.Is(err, limiter.ErrCharges) // which says nothing about the server
	if err != nil && !mistake {
		s.counters.failures.Add(1)
		_, err = s.news.examine(p.number, err)
	}
	p.endProbe(!mistake, err)
}

// probeQuota is charged by probes.
var probeQuota = func() *limiter.Quota {
	q, err := limiter.NewQuota("weir: probe of failover", "", limiter.PerSecond(1_000_000))
	if err != nil {
		panic(err)
	}
	return q
}()

// writeElsewhere is TryWrite on a store without one.
func (s *Store) writeElsewhere(ctx context.Context, _ []limiter.Charge) error {
	return s.inner.Decide(ctx, []limiter.Charge{{Quota: probeQuota, Cost: 1}}, make([]limiter.Decision, 1))
}

// survive makes an error of a panic, which nothing would recover from in a goroutine
// that is no request's.
func survive(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("failover: the store panicked: %v", r)
		}
	}()
	return f()
}
