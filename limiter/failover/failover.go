package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/limiter"
)

// ErrUnavailable is wrapped by the errors that an outage causes. Decide returns one for a batch with a
// FailClosed rule, and Settle and Reset may return one. These errors also wrap the error of the server or
// the network.
var ErrUnavailable = errors.New("failover: the store's server is unavailable")

// Options are what [New] takes. The zero value has the defaults.
type Options struct {
	// Deadline is how long a decision may wait for the server's answer: from 1ms to a minute. A [Bounded]
	// store may wait for a connection in addition. A call whose context ends earlier counts as failed only
	// if the server had at least a quarter of Deadline. Zero means 50ms.
	Deadline time.Duration

	// Replicas is how many processes share the server, up to 100,000. FailLocal divides each limit
	// by it. Zero means 1: every process admits the whole limit in an outage.
	Replicas int

	// Failures is how many calls in a row must fail before the policies decide all calls: up to a million.
	// A failed call counts only if it began after the last counted failure. Zero means 5.
	Failures int

	// ProbeEvery is how long the server is left alone before a request starts a probe in the
	// background: at most an hour. Zero means 1s.
	ProbeEvery time.Duration

	// OnDegraded is called once in an outage in which a breaker opens, and once when it ends. If the store
	// has several servers, an outage is of all of them. Calls never overlap and delay no request. A panic
	// in it is logged. Nil logs: Warn with code weir-degraded, and Info with code weir-recovered. Other
	// records, and the end of an outage in which no breaker opened, are logged in any case.
	OnDegraded func(Event)

	// Logger receives all of these records. Nil: slog.Default().
	Logger *slog.Logger

	// MaxKeys is the most keys that FailLocal remembers, as in [limiter.MemoryOptions].
	MaxKeys int
}

// Validate returns everything that is wrong with o, joined, or nil.
func (o Options) Validate() error {
	_, _, err := o.complete()
	return err
}

// complete fills in the defaults. It makes the Memory, which checks MaxKeys.
func (o Options) complete() (Options, *limiter.Memory, error) {
	var errs [5]error
	o.Deadline, errs[0] = checked("Deadline", o.Deadline, time.Millisecond, time.Minute, "from 1ms to 1m0s", 50*time.Millisecond)
	o.Replicas, errs[1] = checked("Replicas", o.Replicas, 1, 100_000, "from 1 to 100000", 1)
	o.Failures, errs[2] = checked("Failures", o.Failures, 1, 1_000_000, "from 1 to 1000000", 5)
	o.ProbeEvery, errs[3] = checked("ProbeEvery", o.ProbeEvery, 1, time.Hour, "more than 0 and at most 1h0m0s", time.Second)
	memory, err := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: o.MaxKeys})
	if err != nil {
		errs[4] = fmt.Errorf("failover: %w", err)
	}
	return o, memory, errors.Join(errs[:]...)
}

// checked returns the value of a field, or its default for 0.
func checked[T int | time.Duration](field string, v, least, most T, bounds string, otherwise T) (T, error) {
	if v != 0 && (v < least || v > most) {
		return v, fmt.Errorf("failover: %s is %v: it must be %s, or 0 for %v", field, v, bounds, otherwise)
	}
	return cmp.Or(v, otherwise), nil
}

// Store is a [limiter.Store] around another store, whose counters are in a server.
type Store struct {
	ailing atomic.Bool  // there is an outage
	open   atomic.Int32 // servers with an open breaker
	debts  debts

	inner     limiter.Store
	keepsTime bool // inner returns within the deadline by itself
	inventory Servers
	options   Options
	local     *limiter.Memory
	shares    struct { // of local
		sync.Mutex
		of map[*limiter.Quota]*limiter.Quota
	}

	mu       sync.Mutex // for what follows
	servers  [64]server
	outage   outage
	since    time.Time     // when a breaker opened while no other was open
	total    time.Duration // in which a breaker was open, before since
	events   []Event       // the latest reports
	reported chan struct{} // closed when the last report is made
	blamed   string        // the server that failed first in the outage; only reports use it

	_        [64]byte // what is counted for each decision stays off the cache line of open
	counters struct{ decided, local, open, closed, failures atomic.Uint64 }
}

// New returns a Store around inner, or an error with everything that is wrong with o.
//
// New uses the optional interfaces [Bounded] and [Servers] of inner. Errors of inner, or errors that
// they wrap or join, may have these methods:
//
//	Unusable() bool  the server cannot do what the store needs: a wrong configuration and no outage
//	Charges() []int  the charges of the batch that the error is about, by index. Policies decide on
//	                 them, and the store on the other charges. Without it the error is about all
//	OfOneKey() bool  the store could not decide on a charge's key, so no server counts as failed
//
// A refusal whose Receipt.By is [limiter.ByMemory] is no answer of a server, and ends no row of failures.
//
// Of events that this process counted in an outage, inner gets a settlement whose Receipt.By is
// [limiter.ByShare]. A store that settles later must wait until its server has charged such a
// settlement, and return an error if it may not have.
//
// If inner is a Store of this package, the new Store wraps the store inside it instead.
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
	s.debts.of, s.shares.of = make(map[debtor]debt), make(map[*limiter.Quota]*limiter.Quota)
	if store, ok := inner.(Bounded); ok {
		s.inner, s.keepsTime = store.Within(o.Deadline), true
	}
	var isKnown bool
	if s.inventory, isKnown = limiter.As[Servers](s.inner); !isKnown {
		s.inventory = oneServer{s.inner}
	}
	for i := range s.servers {
		s.servers[i].number = i
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
func (s *Store) Decide(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err // a server that is down does not get to say so
	}
	var room [few]error // so that a decision allocates nothing
	causes := s.down(ctx, charges, room[:0], false)
	if causes == nil {
		var err error
		if causes, err = s.ask(ctx, charges, s.inner.Decide); causes == nil {
			if err == nil {
				s.counters.decided.Add(1)
			}
			return err
		}
	}
	return s.decideWithout(ctx, charges, causes)
}

// Settle implements [limiter.Store]. It settles an event where it was counted: on the server, or in the
// local counters, during the outage and after it. In the local counters a debt is at most one share,
// and the rest is forgiven. Events of FailOpen rules are not settled. If it is unknown who counted an
// event, Settle assumes whoever counts now.
//
// While the server is down, Settle leaves what the server counted as it is and returns an error that
// wraps [ErrUnavailable]. Slots are an exception: the inner store tells its server later that they are
// released.
func (s *Store) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	isLocal := func(c limiter.Settlement) bool {
		return c.Decision.Receipt.By == limiter.ByShare || c.Decision.Receipt.By == limiter.ByNobody
	}
	if s.open.Load() == 0 && !slices.ContainsFunc(settlements, isLocal) { // as a rule
		return s.settleInner(ctx, settlements)
	}
	var local, inner []limiter.Settlement
	var err error
	for _, c := range settlements {
		cause := s.serverOf(&c.Charge).down.Load()
		switch {
		case c.Actual == c.Cost:
		case isLocal(c), c.Decision.Receipt.By == 0 && cause != nil && c.Quota.OnOutage != limiter.FailClosed:
			if whole := c.Charge; s.toShare(&c.Charge) {
				local = append(local, c)
				s.debts.add(&whole, debt{units: c.Actual - c.Cost, share: c.Quota})
			}
		case cause != nil && !c.Quota.InFlight():
			err = fmt.Errorf("%w, so what it counted could not be corrected: %w", ErrUnavailable, *cause)
		default:
			inner = append(inner, c)
		}
	}
	return errors.Join(err, s.local.Settle(ctx, local), s.settleInner(ctx, inner))
}

// settleInner settles on the servers. What a settlement adds, as for an event that is charged afterwards, repays a debt
// as a charge does.
func (s *Store) settleInner(ctx context.Context, settlements []limiter.Settlement) error {
	_, err := s.settle(ctx, settlements)
	if err != nil || s.debts.count.Load() == 0 {
		return err
	}
	var added []limiter.Charge
	for _, c := range settlements {
		c.Charge.Cost, c.Charge.Decision = max(0, c.Actual-c.Cost), limiter.Decision{Allowed: true} // what remains is not known
		added = append(added, c.Charge)
	}
	s.repay(ctx, added)
	return nil
}

// Reset implements [limiter.Store] and also resets the local counters. In an outage it waits for a probe
// that is due, no longer than for any call. If that fails, it resets only the local counters and the
// counters on servers that are up, and returns an error that wraps [ErrUnavailable].
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	var local []limiter.Charge
	for _, c := range charges {
		s.debts.take(&c)
		if s.toShare(&c) {
			local = append(local, c)
		}
	}
	if err := s.local.Reset(ctx, local); err != nil {
		return err
	}
	causes := s.down(ctx, charges, nil, true)
	_, err := s.ask(ctx, askable(charges, causes), s.inner.Reset)
	for _, cause := range causes {
		if cause != nil {
			return errors.Join(fmt.Errorf("%w, so its counters could not be reset: %w", ErrUnavailable, cause), err)
		}
	}
	return err
}

// A Bounded store ends its own calls at the deadline. Other stores get a context with the deadline, and
// must return when it ends.
type Bounded interface {
	// Within returns the store with its calls bounded, and without outage policies of its own: they fail
	// if the server gives no answer within the deadline. New calls Within only on the store that it is
	// given, not on a store inside it: the wrapper would be bypassed.
	Within(deadline time.Duration) limiter.Store
}

// Servers is a store with several servers that can fail one by one. A store without these methods
// counts as one server.
type Servers interface {
	// Part returns the number of the server that holds c's counter, from 0 to 63. Servers fail
	// independently.
	Part(c *limiter.Charge) int

	// TryWrite writes something short-lived to the servers of these charges, for probes.
	TryWrite(ctx context.Context, charges []limiter.Charge) error

	// Diagnose returns the name of the server that Part numbers as part, for [Event]s and logs, and err,
	// an error of a call to that server, with details: such as whether the server can be reached.
	Diagnose(part int, err error) (server string, _ error)
}

// oneServer is a store without Servers.
type oneServer struct{ limiter.Store }

func (oneServer) Part(*limiter.Charge) int                  { return 0 }
func (oneServer) Diagnose(_ int, err error) (string, error) { return "", err }

// TryWrite charges another key.
func (s oneServer) TryWrite(ctx context.Context, _ []limiter.Charge) error {
	return s.Decide(ctx, []limiter.Charge{{Quota: probeQuota, Cost: 1}})
}

// probeQuota is what probes charge. Without it they would fail as invalid, and end no outage.
var probeQuota, _ = limiter.NewQuota("weir: probe of failover", "", limiter.PerSecond(1_000_000))
