package failover

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir/limiter"
)

// probe starts the probes that are due for these parts. Each probe has the charges of its own
// part, so that errors of other parts do not count.
func (s *Store) probe(parts uint64, charges []limiter.Charge) {
	for p := range s.inTrouble(parts) {
		if !p.beginProbe() {
			continue
		}
		var looks []limiter.Charge
		for _, c := range charges {
			if s.partOf(&c) == p.number {
				looks = append(looks, limiter.Charge{Quota: c.Quota, Key: c.Key})
			}
		}
		go s.try(p, looks)
	}
}

// try is a probe. It looks at keys and writes something else, because a server that can be read
// but not written is still down. It does not use the request's context, so a client that goes
// away does not end it.
func (s *Store) try(p *part, looks []limiter.Charge) {
	err := survive(func() error {
		ctx, cancel := s.limited(context.Background())
		defer cancel()
		err := s.inner.Decide(ctx, looks, make([]limiter.Decision, len(looks)))
		if err == nil || isOfOneKey(err) {
			err = s.servers.TryWrite(ctx, looks)
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

// survive turns a panic into an error. Nothing else would recover from it in a goroutine that
// serves no request.
func survive(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("failover: the store panicked: %v", r)
		}
	}()
	return f()
}
