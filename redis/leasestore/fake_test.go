package leasestore

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/race"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/limiter/store"
)

// seeds returns the seeds of so many traces, drawn anew in each run. A trace's test has its seed in
// its name or log, and WEIR_SEED repeats it.
func seeds(t testing.TB, all, underRace int) []uint64 {
	t.Helper()
	if text := os.Getenv("WEIR_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "WEIR_SEED")
		return []uint64{seed}
	}
	drawn := make([]uint64, race.Draws(all, underRace))
	for i := range drawn {
		drawn[i] = rand.Uint64()
	}
	return drawn
}

func TestMain(m *testing.M) {
	redis.SetLogger(redistest.Silent{})
	redistest.Main(m)
}

// A fake is a Redis in this process, on Go's clock: the store of exact decisions, and what
// lease.lua does. A test on a real Redis holds the latter equal.
type fake struct {
	mu      sync.Mutex
	states  map[counterName]limiter.State
	holders map[counterName]map[int]holder
	down    atomic.Bool
	lag     atomic.Int64 // of a settlement, half before and half after it
	trips   atomic.Uint64
	decided atomic.Uint64
}

type counterName struct {
	rule, tier string
	tag        keyfunc.Digest
}

type holder struct{ units, ends int64 }

func newFake() *fake {
	return &fake{
		states: map[counterName]limiter.State{}, holders: map[counterName]map[int]holder{},
	}
}

// errDown is an answer, as go-redis marks those.
var errDown error = answered("NOAUTH Authentication required.")

type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

func tagOf(key string) (t keyfunc.Digest) {
	sum := sha256.Sum256([]byte(key))
	base64.RawURLEncoding.Encode(t[:], sum[:16])
	return t
}

func nameOf(q *limiter.Quota, t keyfunc.Digest) counterName {
	return counterName{q.Rule(), q.Tier(), t}
}

// find is a state whose log can be changed in place.
func (f *fake) find(name counterName) limiter.State {
	s := f.states[name]
	s.Log = slices.Clone(s.Log)
	return s
}

func (f *fake) Decide(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	if f.down.Load() {
		return errDown
	}
	f.decided.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UnixMicro()
	states := make([]limiter.State, len(charges))
	for i, c := range charges {
		states[i] = f.find(nameOf(c.Quota, tagOf(c.Key)))
	}
	if store.TakeAll(charges, states, now) {
		for i, c := range charges {
			if c.Cost > 0 {
				f.states[nameOf(c.Quota, tagOf(c.Key))] = states[i]
			}
		}
	}
	return nil
}

func (f *fake) Settle(_ context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil {
		return err
	}
	if f.down.Load() {
		return errDown
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UnixMicro()
	for _, c := range settlements {
		name := nameOf(c.Quota, tagOf(c.Key))
		if c.Actual != c.Cost {
			f.states[name] = c.Quota.Settle(f.find(name), now, c)
		}
	}
	return nil
}

func (f *fake) Reset(_ context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckCharges(charges); err != nil {
		return err
	}
	if f.down.Load() {
		return errDown
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range charges {
		if !c.Quota.InFlight() {
			delete(f.states, nameOf(c.Quota, tagOf(c.Key)))
		}
	}
	return nil
}

// A fakeLedger is the fake as one process sees it.
type fakeLedger struct {
	*fake
	number  int
	percent int64
}

func (l fakeLedger) Tag(key string) keyfunc.Digest { return tagOf(key) }

func (l fakeLedger) Refill(_ context.Context, leases []refill) error {
	if l.down.Load() {
		return errDown
	}
	l.trips.Add(1)
	defer time.Sleep(time.Duration(l.lag.Load()) / 2)
	time.Sleep(time.Duration(l.lag.Load()) / 2)
	l.refillAt(time.Now().UnixMicro(), leases)
	return nil
}

// refillAt is what lease.lua does.
func (l fakeLedger) refillAt(now int64, leases []refill) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range leases {
		e := &leases[i]
		e.done, e.now = true, redisTime(now)
		name, q := nameOf(e.quota, e.tag), e.quota
		s, ok := l.states[name]
		if ok && s.Quota.Limit() != q.Limit() {
			e.foreign = true
			if e.back > 0 {
				l.states[name] = refundTo(q, s, e.back, int64(e.since))
			}
			continue
		}
		s.Log = slices.Clone(s.Log)
		s = q.Settle(s, now, units(1, 1)) // which is nothing, at the present
		if ok && e.back > 0 {
			s = refundTo(q, s, e.back, int64(e.since))
		}
		others, processes := int64(0), int64(1)
		for number, h := range l.holders[name] {
			if number != l.number && h.ends > now && h.units > 0 {
				others += h.units
				processes++
			}
		}
		ahead := q.Capacity() * l.percent / 100
		remaining := q.Describe(s, now, 0, true).Remaining
		most := e.need
		if 2*remaining >= q.Capacity() {
			most = max(e.need, min(e.want, ahead/processes-e.keep))
		}
		e.granted = max(0, min(most, remaining, ahead-others-e.keep))
		if e.granted > 0 {
			s, _ = q.Take(s, now, e.granted)
		}
		if e.granted > 0 || ok && e.back > 0 {
			l.states[name] = s
		}
		if l.holders[name] == nil {
			l.holders[name] = map[int]holder{}
		}
		l.holders[name][l.number] = holder{e.keep + e.granted, now + life.Microseconds()}
		e.state = s
		e.state.Log = slices.Clone(s.Log) // as a quota's functions may change one in place
	}
}

// units is a refund of n units that were taken at that time.
func units(n, at int64) limiter.Settlement {
	d := limiter.Decision{Receipt: limiter.Receipt{At: at}}
	return limiter.Settlement{Charge: limiter.Charge{Cost: n, Decision: d}}
}

// refundTo returns units to the window that they were taken from, of a state at the present.
func refundTo(q *limiter.Quota, s limiter.State, n, since int64) limiter.State {
	if q.Algorithm() == limiter.TokenBucket {
		return q.Settle(s, s.Last, units(n, 0))
	}
	return q.Settle(s, s.Last, units(n, max(1, since)))
}

// instance is a process on the fake. Its exact decisions are under outage policies too.
func (f *fake) instance(t testing.TB, number int, o Options) *Store {
	t.Helper()
	return f.instanceUnder(t, number, o, failover.Options{OnDegraded: func(failover.Event) {}})
}

func (f *fake) instanceUnder(t testing.TB, number int, o Options, policy failover.Options) *Store {
	t.Helper()
	require.NoError(t, o.Validate())
	o = o.complete()
	s := newStore(failover.Must(failover.New(f, policy)), fakeLedger{f, number, int64(o.Ahead)}, o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// onFake runs a test of one process, at each phase of the windows in turn.
func onFake(t *testing.T, o Options, test func(t *testing.T, f *fake, s *Store)) {
	phase.Test(t, func(t *testing.T) {
		f := newFake()
		test(t, f, f.instance(t, 1, o))
	})
}

// longBucket refills nothing while a test runs.
func longBucket(events int64) limiter.Limit {
	return limiter.Limit{Events: events, Per: 300 * 24 * time.Hour, Algorithm: limiter.TokenBucket}
}

// empty is what FLUSHALL does, and a restart without persistence.
func (f *fake) empty() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.states)
	clear(f.holders)
}

func quotaOf(t testing.TB, rule string, l limiter.Limit) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewQuota(rule, "", l)
	require.NoError(t, err)
	return q
}

// decideOne is a decision on a single charge.
func decideOne(t testing.TB, s limiter.Store, q *limiter.Quota, key string, cost int64) limiter.Decision {
	t.Helper()
	charges := []limiter.Charge{{Quota: q, Key: key, Cost: cost}}
	require.NoError(t, s.Decide(t.Context(), charges))
	return charges[0].Decision
}
