package pace

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/bounded"
	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// A rule is a Rule that was checked.
type rule struct {
	transport *Transport

	name  string
	host  host
	match func(*http.Request) bool // nil: all
	key   keyfunc.Func             // nil: none

	// A turn is a position in the queue of a leaky bucket, whatever the algorithm of the limit. So
	// each request knows how long it waits, for all processes together. A burst is how far ahead
	// of its turn a request may leave.
	quota  *limiter.Quota // nil: there is no limit
	events int64
	per    time.Duration
	burst  int64 // how many may leave at once: at least 1

	slots    *limiter.Semaphore // nil: any number may be in flight
	slotWait time.Duration      // how long a request waits for one at most, by the limit

	budget   budget
	accounts bounded.Map[uint64, *account] // by the hash of their keys, as keys must not be kept

	waiting, inFlight atomic.Int64
}

// margin is how many requests of a burst are kept back. Requests leave evenly and arrive unevenly. At
// the very edge of the server's limit, each request that arrives too early would be refused, and each
// refusal stops all processes for a second or more.
const margin = 1

// The bounds of the leaky bucket's queue.
const (
	mostQueue = 1_000_000_000_000
	mostDrain = 366 * 24 * time.Hour
)

func newRule(r Rule, t *Transport) (*rule, error) {
	o := &t.options
	made := &rule{transport: t, name: cmp.Or(r.Name, r.Host), match: r.Match, key: r.Key, budget: newBudget(o.Retry)}
	made.accounts.Most, made.accounts.IsIdle = mostAccounts, (*account).isIdle
	var err error
	made.host, err = parseHost(r.Host)
	errs := []error{err, r.OnOutage.Validate()}
	limits, atOnce, err := limiter.Split(r.Limit)
	errs = append(errs, err)
	switch {
	case err != nil:
	case len(limits) > 1:
		errs = append(errs, invalid.New("pace", "Limit is %v: a rule takes one limit, and AtOnce beside it", r.Limit))
	case len(limits) == 1:
		errs = append(errs, made.setLimit(limits[0], o.MaxWait))
	}
	if err == nil && atOnce != (limiter.Concurrency{}) {
		errs = append(errs, made.setSlots(atOnce, r.OnOutage, o))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if made.quota == nil {
		return made, nil
	}
	made.quota.OnOutage = r.OnOutage
	return made, register(o.Store, made.quota)
}

func (r *rule) setLimit(l limiter.Limit, maxWait time.Duration) error {
	r.events, r.per, r.burst = l.Events, l.Per, 1
	queue := max(r.events, r.requestsIn(maxWait))
	switch l.Algorithm {
	case limiter.SlidingWindow:
	case limiter.TokenBucket:
		r.burst = max(1, cmp.Or(l.Burst, l.Events)-margin)
		queue += r.burst
	case limiter.LeakyBucket:
		queue = cmp.Or(l.Burst, queue)
	default:
		return invalid.New("pace", "Limit is %v: requests leave evenly or with a burst, so the algorithm must be token-bucket, leaky-bucket, or left out", l)
	}
	queue = min(queue, mostQueue, r.requestsIn(mostDrain))
	var err error
	r.quota, err = limiter.NewQuota(r.name, "", limiter.Limit{Events: l.Events, Per: l.Per, Burst: queue, Algorithm: limiter.LeakyBucket})
	return err
}

func (r *rule) setSlots(c limiter.Concurrency, o limiter.Outage, options *Options) error {
	if c.Waiting == 0 {
		c = c.Queue(mostWaiting, options.MaxWait)
	}
	r.slotWait = c.MaxWait
	var err error
	r.slots, err = limiter.NewSemaphore(limiter.SemaphoreConfig{
		Name: r.name + ".in-flight", Limit: c, Store: options.Store, OnOutage: o,
	})
	return err
}

// mostWaiting is the longest queue of a limiter.Concurrency.
const mostWaiting = 10_000

// register claims the quota's name in the store. Two transports of a process that share a rule's
// name count together, like transports of two processes.
func register(s limiter.Store, q *limiter.Quota) error {
	if claimer, ok := limiter.As[limiter.Claimer](s); ok {
		if err := claimer.Claim(q.Rule()); err != nil && !errors.Is(err, limiter.ErrClaimed) {
			return err
		}
	}
	return limiter.CheckQuota(s, q)
}

// covers reports whether r matches all requests that a later rule matches.
func (r *rule) covers(later *rule) bool { return r.match == nil && r.host.covers(&later.host) }

// requestsIn is how many requests the limit lets out in d.
func (r *rule) requestsIn(d time.Duration) int64 { return mulDiv(r.events, int64(d), int64(r.per)) }

// timeOf is how long the limit takes to let n requests out.
func (r *rule) timeOf(n int64) time.Duration {
	if r.quota == nil {
		return 0
	}
	return time.Duration(mulDiv(n, int64(r.per), r.events))
}

// mulDiv is a*b/c, at most math.MaxInt64. c is positive, a and b are not negative.
func mulDiv(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, math.MaxInt64))
}
