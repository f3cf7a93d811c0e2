package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// ErrUnavailable is wrapped by the errors that an outage causes. Decide returns one for a batch with a
// Closed rule, and Settle and Reset may return one. These errors also wrap the error of the server or
// the network.
var ErrUnavailable = errors.New("failover: the store's server is unavailable")

// Store is a [limiter.Store] around another store, whose counters are in a server.
type Store struct {
	// trouble is the set of parts that have failures on record or an open breaker. All
	// is well while it is empty, which one load tells.
	trouble atomic.Uint64
	parts   [64]atomic.Pointer[part] // made when first in trouble

	inner     limiter.Store
	keepsTime bool // inner returns within the deadline by itself
	servers   Servers
	options   Options
	news      news
	outages   outages

	local  *limiter.Memory
	shares sync.Map // of local: *limiter.Quota -> its share, also a *limiter.Quota

	_        [64]byte // what is counted for each decision stays off the cache line of trouble
	counters counters
}

// New returns a Store around inner, or an error with everything that is wrong with o.
//
// New uses the optional interfaces [Bounded] and [Servers] of inner. Errors of inner, or errors
// that they wrap, may have these methods:
//
//	Unusable() bool  the server cannot do what the store needs, however often it is asked: a
//	                 wrong configuration and no outage
//	OfOneKey() bool  the store could not decide on one charge's key. The policy of its rule
//	                 decides, and the server does not count as down
//	Parts() uint64   the servers ([Servers]) that failed, as bits, bit 0 for the first. Without
//	                 it all servers of the batch count as failed
//
// If inner is a Store of this package, the new Store replaces it.
func New(inner limiter.Store, o Options) (*Store, error) {
	o, memory, err := o.complete()
	if inner == nil {
		err = errors.Join(errors.New("failover: New needs a store"), err)
	}
	if err != nil {
		return nil, err
	}
	if outer, ok := inner.(*Store); ok {
		inner = outer.inner
	}
	s := &Store{
		inner:   inner,
		options: o,
		local:   memory, // made now, as it is small while empty and no outage should begin with work
	}
	if store, ok := inner.(Bounded); ok {
		s.inner, s.keepsTime = store.Within(o.Deadline), true
	}
	var isKnown bool
	if s.servers, isKnown = limiter.As[Servers](s.inner); !isKnown {
		s.servers = oneServer{s.inner}
	}
	s.news = news{hook: o.OnDegraded, diagnose: s.servers.Diagnose, reports: make(map[string]*report)}
	return s, nil
}

// Must returns s, and panics if [New] returned an error. Use it for options that are written in code.
func Must(s *Store, err error) *Store {
	if err != nil {
		panic(err)
	}
	return s
}

// Unwrap implements [limiter.Wrapper].
func (s *Store) Unwrap() limiter.Store { return s.inner }

// Decide implements [limiter.Store]. In an outage it follows the policies of the charges'
// rules. If ctx ends before the server answers, it returns ctx's error.
func (s *Store) Decide(ctx context.Context, charges []limiter.Charge, decisions []limiter.Decision) error {
	if err := limiter.CheckDecide(charges, decisions); err != nil {
		return err // a server that is down does not get to say so
	}
	if down, cause := s.outage(charges); cause != nil {
		err := s.decideWithout(ctx, down, charges, decisions, cause)
		s.probe(down, charges)
		return err
	}
	failed, err := s.call(ctx, charges, func(ctx context.Context) error { return s.inner.Decide(ctx, charges, decisions) })
	if failed {
		return s.decideWithout(ctx, s.failedParts(charges, err), charges, decisions, err)
	}
	if err == nil {
		s.counters.decided.Add(1)
	}
	return err
}

// Reset implements [limiter.Store] and also resets the local counters. In an outage it resets only the
// local counters and the counters on servers that are up, and returns an error that wraps
// [ErrUnavailable].
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	if err := s.local.Reset(ctx, s.localShares(nil, charges)); err != nil {
		return err
	}
	if down, cause := s.outage(charges); cause != nil {
		err := fmt.Errorf("%w, so its counters could not be reset: %w", ErrUnavailable, cause)
		if up, _ := s.split(charges, down); len(up.charges) > 0 {
			err = errors.Join(err, s.reset(ctx, up.charges))
		}
		return err
	}
	return s.reset(ctx, charges)
}

func (s *Store) reset(ctx context.Context, charges []limiter.Charge) error {
	_, err := s.call(ctx, charges, func(ctx context.Context) error { return s.inner.Reset(ctx, charges) })
	return err
}

// isLate reports whether a context ended at a deadline of its own that gave the server time
// enough. If requests have less time than Deadline, this is the only sign of a server that
// hangs.
func (s *Store) isLate(gone error, began time.Time) bool {
	return errors.Is(gone, context.DeadlineExceeded) && time.Since(began) >= s.options.Deadline/4
}

// limited returns a context for a call to the inner store.
func (s *Store) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.keepsTime {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.options.Deadline)
}

// call calls the inner store about charges and counts the result. If the call failed, it
// returns the call's error. Otherwise it returns the error for the caller, if any.
func (s *Store) call(ctx context.Context, charges []limiter.Charge, do func(context.Context) error) (failed bool, _ error) {
	if len(charges) == 0 { // which no server needs to be asked about
		return false, ctx.Err()
	}
	began := time.Now()
	limited, cancel := s.limited(ctx)
	defer cancel()
	return s.note(ctx, began, charges, do(limited))
}

func (s *Store) note(ctx context.Context, began time.Time, charges []limiter.Charge, err error) (failed bool, _ error) {
	if err == nil {
		s.succeeded(charges)
		return false, nil
	}
	if errors.Is(err, limiter.ErrCharges) {
		return false, err
	}
	if gone := ctx.Err(); gone != nil && !s.isLate(gone, began) {
		return false, gone // it says nothing about the server, whatever err is
	}
	if isOfOneKey(err) {
		return true, err // which is no reason to stop asking about the others
	}
	s.failed(began, charges, err)
	return true, err
}

// isOfOneKey reports whether the server answered and could not decide on one key.
func isOfOneKey(err error) bool {
	var one interface{ OfOneKey() bool }
	return errors.As(err, &one) && one.OfOneKey()
}
