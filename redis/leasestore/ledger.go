package leasestore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

var (
	//go:embed lease.lua
	leaseLua string

	//go:embed count.lua
	countLua string

	// The algorithms that can be leased and counted.
	algorithms = limiter.Lua(limiter.SlidingCounter, limiter.TokenBucket, limiter.FixedWindow)

	leaseScript = wire.NewScript(algorithms + limiter.LuaSettles() + leaseLua)
	countScript = wire.NewScript(algorithms + limiter.LuaConvert() + countLua)
)

// formats are the versions of what is in Redis beside the counters: the lists of
// their holders, and what processes counted. A change of what is written changes the version.
type formats struct{ holders, sums string }

var current = formats{holders: "1", sums: "1"}

// No counter is named as the list of its holders or a sum is: a tier's name is not empty,
// and has no colon.
func (f formats) holdersOf(counter string) string { return counter + "::lease:" + f.holders }
func (f formats) sumOf(counter string) string     { return counter + "::sync:" + f.sums }

// A redisLedger is a [ledger]: it asks Redis for units ahead. It knows nothing of outage
// policies: what it cannot do is an error.
type redisLedger struct {
	formats
	names     counters.Names
	transport *wire.Transport
	clock     counters.Clock
	holder    [8]byte // that this process is
	percent   int
	life      time.Duration
	trips     atomic.Uint64
}

// newLedger returns the ledger of a process that holds units for life at most, each trip of
// which ends after timeout. All processes together hold no more than percent of what a limit
// lets pass at once. What is returned twice would be admitted twice, so nothing is sent twice.
func newLedger(client redis.UniversalClient, names counters.Names, percent int, life, timeout time.Duration) *redisLedger {
	l := &redisLedger{
		formats: current, names: names, transport: wire.NewTransport(client).Once(timeout),
		percent: percent, life: life,
	}
	_, _ = rand.Read(l.holder[:]) // which cannot fail
	return l
}

// Diagnose names the server and says more about an error, as package failover asks stores.
func (l *redisLedger) Diagnose(part int, err error) (server string, _ error) {
	return l.transport.Diagnose(part, 1, err)
}

// Trips is how many scripts were sent to Redis.
func (l *redisLedger) Trips() uint64 { return l.trips.Load() }

// Tag stands for a key in Redis.
func (l *redisLedger) Tag(key string) keyfunc.Digest { return l.names.Tag(key) }

// A lease is what is settled about one counter.
type lease struct {
	tag   keyfunc.Digest
	quota *limiter.Quota

	since int64 // Redis's time when the units that are returned were granted
	back  int64 // units that are returned
	keep  int64 // units that are kept, at most
	want  int64 // units wanted while half of the limit is free
	need  int64 // units wanted in any case

	// What Redis says: how many of the units wanted it has charged, and the state then, at
	// its time now.
	// done is false if it is not known to have heard of the lease, foreign is true if the
	// counter is another limit's, of which it grants nothing.
	done    bool
	foreign bool
	now     int64
	granted int64
	state   limiter.State
}

// leasesInScript bounds how long a script runs: some 6 microseconds for each.
const leasesInScript = 256

// Settle brings leases to Redis and returns its time. Leases that are not done when there is
// an error may have been heard of all the same: what they returned is returned, and what
// they were granted is lost.
func (l *redisLedger) Settle(ctx context.Context, leases []lease) (now int64, err error) {
	return run(ctx, l, leaseScript, leases, leasesInScript, l.encodeLeases, readLeases)
}

func (l *redisLedger) encodeLeases(leases []lease) (keys []string, argument []byte) {
	quotas := quotasOf(leases, func(e *lease) *limiter.Quota { return e.quota })
	b := make([]byte, 0, 22+26*len(quotas)+42*len(leases))
	b = appendCounts(b, len(quotas), len(leases), l.percent)
	b = counters.AppendNumber(b, l.life.Microseconds())
	b = append(b, l.holder[:]...)
	now := l.clock.Now()
	for _, q := range quotas {
		b = counters.AppendQuota(b, q, now)
		settles := byte(0)
		if q.Settles {
			settles = 1
		}
		b = append(b, settles)
	}
	for i := range leases {
		e := &leases[i]
		name := l.names.Name(e.tag, e.quota)
		keys = append(keys, name, l.holdersOf(name))
		b = appendCounts(b, slices.Index(quotas, e.quota)+1)
		back := e.back
		if l.transport.Split {
			back = 0 // which go-redis may send twice
		}
		for _, n := range [...]int64{e.since, back, e.keep, e.want, e.need} {
			b = counters.AppendNumber(b, min(n, 1<<53))
		}
	}
	return keys, b
}

func readLeases(now int64, reply string, leases []lease) bool {
	if len(reply) != 32*len(leases) {
		return false
	}
	for i := range leases {
		e := &leases[i]
		granted := counters.Number(reply)
		e.done, e.foreign, e.now, e.granted = true, granted < 0, now, max(0, granted)
		e.state, reply = readState(reply[8:])
	}
	return true
}

// A count is what a process tells of one counter that all count on, and is told.
type count struct {
	tag    keyfunc.Digest
	quota  *limiter.Quota
	used   int64 // since it told last; below zero: refunded
	owed   int64 // without room having been asked for
	past   int64 // refunded to the window of the time pastAt, which has ended
	pastAt int64

	done  bool          // as in lease
	state limiter.State // of what all have told, perhaps above the limit
}

// countsInScript bounds how long a script runs: some 3 microseconds for each.
const countsInScript = 512

// Exchange brings counts to Redis and returns its time. Without any it asks for the time.
func (l *redisLedger) Exchange(ctx context.Context, counts []count) (now int64, err error) {
	return run(ctx, l, countScript, counts, countsInScript, l.encodeCounts, readCounts)
}

// Forget makes a counter as if no process had told of it.
func (l *redisLedger) Forget(ctx context.Context, tag keyfunc.Digest, q *limiter.Quota) error {
	return l.transport.Client.Del(ctx, l.sumOf(l.names.Name(tag, q))).Err()
}

func (l *redisLedger) encodeCounts(counts []count) (keys []string, argument []byte) {
	quotas := quotasOf(counts, func(c *count) *limiter.Quota { return c.quota })
	b := make([]byte, 0, 4+25*len(quotas)+34*len(counts))
	b = appendCounts(b, len(quotas), len(counts))
	now := l.clock.Now()
	for _, q := range quotas {
		b = counters.AppendQuota(b, q, now)
	}
	for i := range counts {
		c := &counts[i]
		keys = append(keys, l.sumOf(l.names.Name(c.tag, c.quota)))
		b = appendCounts(b, slices.Index(quotas, c.quota)+1)
		for _, n := range [...]int64{c.used, c.owed, c.past, c.pastAt} {
			b = counters.AppendNumber(b, max(-1<<53, min(n, 1<<53)))
		}
	}
	return keys, b
}

func readCounts(_ int64, reply string, counts []count) bool {
	if len(reply) != 24*len(counts) {
		return false
	}
	for i := range counts {
		counts[i].done = true
		counts[i].state, reply = readState(reply)
	}
	return true
}

func quotasOf[T any](all []T, of func(*T) *limiter.Quota) []*limiter.Quota {
	var quotas []*limiter.Quota
	for i := range all {
		if q := of(&all[i]); !slices.Contains(quotas, q) {
			quotas = append(quotas, q)
		}
	}
	return quotas
}

func appendCounts(b []byte, counts ...int) []byte {
	for _, n := range counts {
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
	}
	return b
}

func readState(reply string) (s limiter.State, rest string) {
	return limiter.State{Last: counters.Number(reply), Level: counters.Number(reply[8:]), Prev: counters.Number(reply[16:])}, reply[24:]
}

// run sends all in as many scripts as it takes: at once, in one pipeline. Where a script
// reaches only keys of one tag, each has its own.
func run[T any](ctx context.Context, l *redisLedger, s *wire.Script, all []T, most int,
	encode func([]T) (keys []string, argument []byte), read func(now int64, reply string, some []T) bool) (now int64, err error) {

	if l.transport.Split {
		most = 1
	}
	var parts [][]T
	var requests []*wire.Request
	for rest := all; len(rest) > 0 || parts == nil; {
		n := min(most, len(rest))
		keys, argument := encode(rest[:n])
		parts, requests = append(parts, rest[:n]), append(requests, wire.NewRequest(s, keys, argument))
		rest = rest[n:]
	}
	l.trips.Add(uint64(len(requests)))
	l.transport.Run(ctx, requests...)
	var again []*wire.Request
	for i, r := range requests {
		if l.clock.Correct(r.Err()) {
			keys, argument := encode(parts[i])
			requests[i] = wire.NewRequest(s, keys, argument)
			again = append(again, requests[i])
		}
	}
	l.trips.Add(uint64(len(again)))
	l.transport.Run(ctx, again...)
	var errs []error
	for i, r := range requests {
		reply, err := r.Text()
		if err == nil && (len(reply) < 8 || !read(counters.Number(reply), reply[8:], parts[i])) {
			err = wire.ErrAnswer
		}
		if err != nil {
			errs = append(errs, l.transport.Failed("leasestore", err, 0))
		} else {
			now = counters.Number(reply)
		}
	}
	return now, wire.Join(errs)
}
