package failover

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A server is a server of the inner store with its circuit breaker.
type server struct {
	number int
	down   atomic.Pointer[error] // the last error, if the breaker is open; nil: it is closed

	// The Store's lock guards these.
	failed time.Time     // when a call last counted as failed
	inRow  int           // failures since the last success
	probe  chan struct{} // closed when the probe in progress ends; nil: there is none
}

func (s *Store) serverOf(c *limiter.Charge) *server { return &s.servers[s.inventory.Part(c)&63] }

// down returns why no server is asked about a charge: the last error of its server, if its breaker is
// open, or else nil. It returns nil if servers are asked about all charges. The causes are in room, if it
// is large enough. If a probe is due, down starts it.
func (s *Store) down(ctx context.Context, charges []limiter.Charge, room []error, isReset bool) (causes []error) {
	if s.open.Load() == 0 {
		return nil
	}
	s.probe(ctx, charges, isReset)
	isDown := false
	for i := range charges {
		err := s.serverOf(&charges[i]).down.Load()
		if room = append(room, nil); err != nil {
			room[i], isDown = *err, true
		}
	}
	if !isDown {
		return nil
	}
	return room
}

// count counts a call about n charges, once for each server. A server failed if it is the cause of a charge.
func (s *Store) count(began time.Time, n int, of func(int) *limiter.Charge, causes []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed []*server
	for i, err := range causes {
		if server := s.serverOf(of(i)); !isAnswer(err) && !slices.Contains(failed, server) {
			failed = append(failed, server)
			s.fail(server, began, err)
		}
	}
	if failed != nil {
		s.counters.failures.Add(1)
	}
	for i := range n {
		if server := s.serverOf(of(i)); server.down.Load() == nil && !slices.Contains(failed, server) {
			s.answer(server)
		}
	}
}

// fail notes a failed call that began then. Calls that fail at the same time fail for one reason, so they
// count once. The first failure begins an outage. It needs the lock.
func (s *Store) fail(server *server, began time.Time, err error) {
	if began.Before(server.failed) {
		return
	}
	now, o := time.Now(), &s.outage
	server.failed = now
	server.inRow++
	if server.inRow >= s.options.Failures && server.down.CompareAndSwap(nil, &err) && s.open.Add(1) == 1 {
		s.since = now
	}
	isFirst, isUnusable := o.began.IsZero(), isUnusable(err)
	if isFirst {
		*o = outage{began: now}
		s.ailing.Store(true)
	}
	o.failed, o.answered, o.err = now, time.Time{}, err
	e := Event{Degraded: true, At: now, Err: err}
	if isFirst && !isUnusable {
		s.announce(callFailed, e, server)
	}
	if isUnusable && !o.isUnusable {
		o.isUnusable = true
		s.announce(unusable, e, server)
	}
	if server.down.Load() != nil && !o.isDegraded {
		o.isDegraded = true
		s.announce(degraded, e, server)
	}
}

// answer notes an answer of a server whose breaker is closed. It ends an outage in which no call has failed
// for a minute. Servers that are down and not asked about do not make an outage longer. It needs the lock.
func (s *Store) answer(server *server) {
	now, o := time.Now(), &s.outage
	server.inRow = 0
	if o.answered.IsZero() {
		o.answered = now
	}
	if !o.began.IsZero() && now.Sub(o.failed) >= quiet {
		s.announce(recovered, Event{At: now, Err: o.err, For: o.answered.Sub(o.began)}, nil)
		*o = outage{}
		s.ailing.Store(false)
	}
}

// probe starts the probes that are due for the servers of charges. A batch that would fail, because it is
// a reset or a rule is FailClosed, waits for the probes in progress.
func (s *Store) probe(ctx context.Context, charges []limiter.Charge, isReset bool) {
	var inProgress []chan struct{}
	s.mu.Lock()
	for i := range charges {
		server := s.serverOf(&charges[i])
		if server.down.Load() == nil {
			continue
		}
		if server.probe == nil && time.Since(server.failed) > s.options.ProbeEvery {
			server.probe = make(chan struct{})
			own := slices.DeleteFunc(looks(charges), func(c limiter.Charge) bool { return s.serverOf(&c) != server })
			go s.try(server, own)
		}
		if server.probe != nil && (isReset || charges[i].Quota.OnOutage == limiter.FailClosed) {
			inProgress = append(inProgress, server.probe)
		}
	}
	s.mu.Unlock()
	for _, done := range inProgress {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// try is a probe. It does not use the request's context, so a client that goes away does not end it.
func (s *Store) try(server *server, looks []limiter.Charge) {
	var err error
	began := time.Now()
	panicked := survive(func() {
		err = s.timed(context.Background(), func(ctx context.Context) error {
			if err := s.inner.Decide(ctx, looks); !isAnswer(err) {
				return err
			}
			return s.inventory.TryWrite(ctx, looks)
		})
	})
	if panicked != nil {
		err = fmt.Errorf("failover: the store panicked: %v", panicked)
	}
	s.mu.Lock()
	if isAnswer(err) {
		server.down.Store(nil)
		if s.open.Add(-1) == 0 {
			s.total += time.Since(s.since)
		}
		s.outage.answered = time.Time{}
		s.answer(server)
	} else {
		s.counters.failures.Add(1)
		s.fail(server, began, err)
	}
	close(server.probe) // who waits needs no diagnosis
	server.probe = nil
	s.mu.Unlock()
	if !isAnswer(err) {
		s.diagnose(server, err)
	}
}

// survive returns what f panics with. Nothing else would recover from it in a goroutine that
// serves no request.
func survive(f func()) (panicked any) {
	defer func() { panicked = recover() }()
	f()
	return nil
}
