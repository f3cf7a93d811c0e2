package failover

import (
	"context"
	"errors"
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
		var cause error
		if err := s.serverOf(&charges[i]).down.Load(); err != nil {
			cause, isDown = *err, true
		}
		room = append(room, cause)
	}
	if !isDown {
		return nil
	}
	return room
}

// call makes a call of the inner store about charges, and counts the result. It returns why the store could
// not decide on a charge, or nil, for each charge; or no causes, and the error for the caller, if any.
func (s *Store) call(ctx context.Context, charges []limiter.Charge, do func(context.Context, []limiter.Charge) error) (causes []error, _ error) {
	if len(charges) == 0 {
		return nil, nil
	}
	began := time.Now()
	if err := s.timed(ctx, func(ctx context.Context) error { return do(ctx, charges) }); err != nil {
		return s.blame(ctx, began, charges, err)
	}
	if s.ailing.Load() {
		s.count(began, charges, nil)
	}
	if s.debts.count.Load() != 0 {
		s.repay(ctx, charges)
	}
	return nil, nil
}

// settle is call for a settlement. Its success does not show that the server answers, because the store may
// settle later.
func (s *Store) settle(ctx context.Context, settlements []limiter.Settlement) (causes []error, _ error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	began := time.Now()
	err := s.timed(ctx, func(ctx context.Context) error { return s.inner.Settle(ctx, settlements) })
	if err == nil {
		return nil, nil
	}
	var charges []limiter.Charge
	for i := range settlements {
		charges = append(charges, settlements[i].Charge)
	}
	return s.blame(ctx, began, charges, err)
}

// timed calls do with the deadline.
func (s *Store) timed(ctx context.Context, do func(context.Context) error) error {
	if !s.keepsTime {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.Deadline)
		defer cancel()
	}
	return do(ctx)
}

// blame counts a call that returned err, as far as err says something about the servers. It returns the
// same as call.
func (s *Store) blame(ctx context.Context, began time.Time, charges []limiter.Charge, err error) (causes []error, _ error) {
	if errors.Is(err, limiter.ErrCharges) {
		return nil, err
	}
	// If requests have less time than Deadline, their own deadline is the only sign of a server that
	// hangs. It counts if the server had time enough.
	hadTime := time.Since(began) >= s.options.Deadline/4
	if gone := ctx.Err(); gone != nil && !(hadTime && errors.Is(gone, context.DeadlineExceeded)) {
		return nil, gone
	}
	causes = make([]error, len(charges))
	if !attribute(err, causes) {
		for i := range causes {
			causes[i] = err
		}
	}
	s.count(began, charges, causes)
	return causes, err
}

// attribute makes err, and the errors that it wraps, the causes of the charges that they name. It reports
// whether they name any.
func attribute(err error, causes []error) (names bool) {
	switch e := err.(type) {
	case interface{ Charges() []int }:
		for _, i := range e.Charges() {
			if i >= 0 && i < len(causes) {
				causes[i], names = err, true
			}
		}
	case interface{ Unwrap() error }:
		return attribute(e.Unwrap(), causes)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			names = attribute(err, causes) || names
		}
	}
	return names
}

// isAnswer reports whether a server answered: it decided, or could not decide on a key or a batch.
func isAnswer(err error) bool {
	var one interface{ OfOneKey() bool }
	return err == nil || errors.Is(err, limiter.ErrCharges) || errors.As(err, &one) && one.OfOneKey()
}

// count counts a call about charges, once for each server. A server failed if it is the cause of a charge.
func (s *Store) count(began time.Time, charges []limiter.Charge, causes []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed []*server
	for i, err := range causes {
		if server := s.serverOf(&charges[i]); !isAnswer(err) && !slices.Contains(failed, server) {
			failed = append(failed, server)
			s.fail(server, began, err)
		}
	}
	if failed != nil {
		s.counters.failures.Add(1)
	}
	for i := range charges {
		if server := s.serverOf(&charges[i]); server.down.Load() == nil && !slices.Contains(failed, server) {
			s.answer(server)
		}
	}
}

// fail notes a failed call that began then. Calls that fail at the same time fail for one reason, so they
// count once. It needs the lock.
func (s *Store) fail(server *server, began time.Time, err error) {
	if began.Before(server.failed) {
		return
	}
	server.failed = time.Now()
	server.inRow++
	if server.inRow >= s.options.Failures && server.down.CompareAndSwap(nil, &err) && s.open.Add(1) == 1 {
		s.since = server.failed
	}
	s.reportFailure(server, err)
}

// answer notes an answer of a server whose breaker is closed. It needs the lock.
func (s *Store) answer(server *server) {
	server.inRow = 0
	s.reportAnswer()
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
	began, err := time.Now(), error(nil)
	panicked := survive(func() {
		err = s.timed(context.Background(), func(ctx context.Context) error {
			err := s.inner.Decide(ctx, looks)
			if isAnswer(err) {
				err = s.inventory.TryWrite(ctx, looks)
			}
			return err
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
