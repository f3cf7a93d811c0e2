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

// serverOf returns the server of a valid charge.
func (s *Store) serverOf(c *limiter.Charge) *server { return &s.servers[s.inventory.Part(c)&63] }

// down returns why no server is asked about a charge: the last error of its server, if its breaker is
// open, or else nil. It returns nil if servers are asked about all charges. The causes are in room, if it
// is large enough.
func (s *Store) down(charges []limiter.Charge, room []error) (causes []error) {
	if s.open.Load() == 0 {
		return nil
	}
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

// call calls the inner store about charges and counts the result. It returns why the store could not
// decide on a charge, or nil, for each charge; or no causes, and the error for the caller, if any.
func (s *Store) call(ctx context.Context, charges []limiter.Charge, do func(context.Context) error) (causes []error, _ error) {
	if len(charges) == 0 { // no server is asked
		return nil, ctx.Err()
	}
	began := time.Now()
	if err := s.timed(ctx, do); err != nil {
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

// isOfOneKey reports whether the server answered and could not decide on one key.
func isOfOneKey(err error) bool {
	var one interface{ OfOneKey() bool }
	return errors.As(err, &one) && one.OfOneKey()
}

// count counts a call about charges. A server failed if it is the cause of a charge. If its breaker has
// opened since the call began, the result is out of date. Calls that fail at the same time fail for one
// reason, so they count once.
func (s *Store) count(began time.Time, charges []limiter.Charge, causes []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed [64]bool
	for i, err := range causes {
		server := s.serverOf(&charges[i])
		if err == nil || isOfOneKey(err) {
			continue
		}
		failed[server.number] = true
		if server.down.Load() != nil || began.Before(server.failed) {
			continue
		}
		if server.inRow++; server.inRow >= s.options.Failures {
			s.setDown(server, err)
		}
		s.record(server, err)
	}
	if failed != [64]bool{} {
		s.counters.failures.Add(1)
	}
	for i := range charges {
		if server := s.serverOf(&charges[i]); !failed[server.number] && server.down.Load() == nil {
			server.inRow = 0
			s.answered()
		}
	}
}

// setDown opens a breaker, or notes the error of a server whose breaker is open. It needs the lock.
func (s *Store) setDown(server *server, err error) {
	if server.down.Swap(&err) == nil && s.open.Add(1) == 1 {
		s.since = time.Now()
	}
}

// probe starts the probes that are due for the servers of charges. A batch that would fail, because it is
// a reset or a rule is FailClosed, waits for the probes in progress. probe reports whether it has waited.
func (s *Store) probe(ctx context.Context, charges []limiter.Charge, isReset bool) (waited bool) {
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
			go s.try(server, own, server.probe)
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
	return len(inProgress) > 0
}

// try is a probe. It does not use the request's context, so a client that goes away does not end it.
func (s *Store) try(server *server, looks []limiter.Charge, done chan struct{}) {
	var err error
	panicked := survive(func() {
		err = s.timed(context.Background(), func(ctx context.Context) error {
			err := s.inner.Decide(ctx, looks)
			if err == nil || isOfOneKey(err) || errors.Is(err, limiter.ErrCharges) { // an answer
				err = s.inventory.TryWrite(ctx, looks)
			}
			return err
		})
	})
	if panicked != nil {
		err = fmt.Errorf("failover: the store panicked: %v", panicked)
	}
	if err != nil && !isOfOneKey(err) {
		close(done) // who waits needs no diagnosis
		s.counters.failures.Add(1)
		_, err = s.diagnose(server, err)
		s.mu.Lock()
		defer s.mu.Unlock()
		server.probe = nil
		s.setDown(server, err)
		s.record(server, err)
		return
	}
	defer close(done)
	s.mu.Lock()
	defer s.mu.Unlock()
	server.probe, server.inRow = nil, 0
	server.down.Store(nil)
	if s.open.Add(-1) == 0 {
		s.total += time.Since(s.since)
	}
	s.outage.answered = time.Now()
	s.shares.Clear() // rules may have been read anew since they were first needed
	s.answered()
}

// survive returns what f panics with. Nothing else would recover from it in a goroutine that
// serves no request.
func survive(f func()) (panicked any) {
	defer func() { panicked = recover() }()
	f()
	return nil
}
