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
	failing atomic.Uint64 // parts that failed last, with a closed breaker
	open    atomic.Uint64 // parts with an open breaker

	inner     limiter.Store
	keepsTime bool // inner returns within the deadline by itself
	servers   Servers
	options   Options
	local     *limiter.Memory
	shares    sync.Map // of local: *limiter.Quota -> its share, also a *limiter.Quota

	mu      sync.Mutex
	parts   [64]part
	since   time.Time     // when the first part failed of those with an open breaker
	total   time.Duration // in which a breaker was open, before since
	events  []Event       // the last ones that were reported
	told    chan struct{} // closed when all was reported
	reports [64]*report   // of the parts; only reporting goroutines use them, in turns

	_        [64]byte // what is counted for each decision stays off the cache line of open
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
		told:    make(chan struct{}),
	}
	close(s.told)
	if store, ok := inner.(Bounded); ok {
		s.inner, s.keepsTime = store.Within(o.Deadline), true
	}
	var isKnown bool
	if s.servers, isKnown = limiter.As[Servers](s.inner); !isKnown {
		s.servers = oneServer{s.inner}
	}
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
	switch {
	case failed != 0:
		return s.decideWithout(ctx, failed, charges, decisions, err)
	case err == nil:
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
	var local []limiter.Charge
	for _, c := range charges {
		if s.toShare(&c) {
			local = append(local, c)
		}
	}
	if err := s.local.Reset(ctx, local); err != nil {
		return err
	}
	down, cause := s.outage(charges)
	up := pick(^s.chargesOn(down, charges), charges)
	_, err := s.call(ctx, up, func(ctx context.Context) error { return s.inner.Reset(ctx, up) })
	if cause != nil {
		err = errors.Join(fmt.Errorf("%w, so its counters could not be reset: %w", ErrUnavailable, cause), err)
	}
	return err
}

// call calls the inner store about charges and counts the result. It returns the parts that
// failed and the call's error, or the error for the caller, if any.
func (s *Store) call(ctx context.Context, charges []limiter.Charge, do func(context.Context) error) (failed uint64, _ error) {
	if len(charges) == 0 { // which no server needs to be asked about
		return 0, ctx.Err()
	}
	began := time.Now()
	if err := s.timed(ctx, do); err != nil {
		return s.blame(ctx, began, charges, err)
	}
	s.succeeded(charges)
	return 0, nil
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

// blame counts a call that returned err, as far as it says something about the server. The parts
// that failed are those that err names, or all parts of the batch.
func (s *Store) blame(ctx context.Context, began time.Time, charges []limiter.Charge, err error) (failed uint64, _ error) {
	if errors.Is(err, limiter.ErrCharges) {
		return 0, err
	}
	// If requests have less time than Deadline, their own deadline is the only sign of a server
	// that hangs. It counts if the server had time enough.
	if gone := ctx.Err(); gone != nil && (!errors.Is(gone, context.DeadlineExceeded) || time.Since(began) < s.options.Deadline/4) {
		return 0, gone
	}
	all := s.partsOf(charges)
	failed = all
	var said interface{ Parts() uint64 }
	if errors.As(err, &said) && said.Parts()&all != 0 {
		failed = said.Parts() & all
	}
	if !isOfOneKey(err) { // which is no reason to stop asking about the others
		s.failing.And(^all | failed)
		s.failed(began, failed, err)
	}
	return failed, err
}

// isOfOneKey reports whether the server answered and could not decide on one key.
func isOfOneKey(err error) bool {
	var one interface{ OfOneKey() bool }
	return errors.As(err, &one) && one.OfOneKey()
}
