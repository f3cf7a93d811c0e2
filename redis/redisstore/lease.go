package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/internal/wire"
)

//go:embed lease.lua
var leaseLua string

// A Lessor is the part of a Store that package leasestore asks for units ahead, which it is
// for. It knows nothing of outage policies: what it cannot do is an error.
type Lessor struct {
	keys      keys
	transport *transport
	holder    [8]byte // who this process is
	percent   int
	life      time.Duration
	leases    *wire.Script
	counts    *wire.Script
	trips     atomic.Uint64
	policy    failover.Options
}

// leasable are the algorithms that the scripts know.
const leasable = algorithms(1<<limiter.SlidingWindow | 1<<limiter.TokenBucket | 1<<limiter.FixedWindow)

// Lessor returns a Lessor for a process that holds units for life at most, each trip of
// which ends after timeout. All processes together hold no more than percent of what a limit
// lets pass at once.
func (s *Store) Lessor(percent int, life, timeout time.Duration) *Lessor {
	l := &Lessor{
		keys:    s.store.keys,
		percent: percent,
		life:    life,
		leases:  wire.NewScript(source(leasable) + leaseLua),
		counts:  wire.NewScript(source(leasable) + leasesyncLua),
		policy:  s.policy,
	}
	l.transport, _ = s.store.transport.within(timeout)
	if client, ok := l.transport.client.(*redis.Client); ok {
		// What is returned twice would be admitted twice.
		other := *l.transport
		client = client.WithTimeout(timeout)
		client.Options().MaxRetries = 0
		other.client = client
		l.transport = &other
	}
	_, _ = rand.Read(l.holder[:]) // which cannot fail
	return l
}

// Policy is the store's Options.Failover.
func (l *Lessor) Policy() failover.Options { return l.policy }

// Diagnose names the server and says more about an error, as package failover asks stores.
func (l *Lessor) Diagnose(part int, err error) (server string, _ error) {
	return l.transport.diagnose(part, 1, err)
}

// Trips is how many scripts were sent to Redis.
func (l *Lessor) Trips() uint64 { return l.trips.Load() }

// A Tag stands for a key in Redis.
type Tag [tagSize]byte

// Tag is key's.
func (l *Lessor) Tag(key string) Tag { return l.keys.tag(key) }

// A Lease is what is settled about one counter.
type Lease struct {
	Tag   Tag
	Quota *limiter.Quota

	Since int64 // Redis's time when the units that are returned were granted
	Back  int64 // units that are returned
	Keep  int64 // units that are kept, at most
	Want  int64 // units wanted while half of the limit is free
	Need  int64 // units wanted in any case

	// What Redis says: how many of the units wanted it has charged, and the state then, at
	// its time Now.
	// Done is false if it is not known to have heard of the lease, Foreign is true if the
	// counter is another limit's, of which it grants nothing.
	Done    bool
	Foreign bool
	Now     int64
	Granted int64
	State   limiter.State
}

// leasesInScript bounds how long a script runs: some 6 microseconds for each.
const leasesInScript = 256

// Settle brings leases to Redis and returns its time. Leases that are not Done when there is
// an error may have been heard of all the same: what they returned is returned, and what
// they were granted is nobody's.
func (l *Lessor) Settle(ctx context.Context, leases []Lease) (now int64, err error) {
	return settle(ctx, l, l.leases, leases, leasesInScript, l.encodeLeases, l.readLeases)
}

func (l *Lessor) encodeLeases(leases []Lease) []any {
	args := make([]any, firstKey, firstKey+2*len(leases)+1)
	quotas := quotasOf(leases, func(e *Lease) *limiter.Quota { return e.Quota })
	body := make([]byte, 0, 22+25*len(quotas)+42*len(leases))
	for _, n := range []int{len(quotas), len(leases), l.percent} {
		body = binary.LittleEndian.AppendUint16(body, uint16(n))
	}
	body = appendNumber(body, l.life.Microseconds())
	body = append(body, l.holder[:]...)
	for _, q := range quotas {
		body = appendQuota(body, q)
	}
	for i := range leases {
		e := &leases[i]
		name := l.keys.name(e.Tag, e.Quota)
		args = append(args, name, l.keys.holdersOf(name))
		body = binary.LittleEndian.AppendUint16(body, uint16(slices.Index(quotas, e.Quota)+1))
		back := e.Back
		if l.transport.split {
			back = 0 // which go-redis may send twice
		}
		for _, n := range [...]int64{e.Since, back, e.Keep, e.Want, e.Need} {
			body = appendNumber(body, min(n, 1<<53))
		}
	}
	args[2] = len(args) - firstKey
	return append(args, body)
}

func (l *Lessor) readLeases(now int64, reply string, leases []Lease) bool {
	if len(reply) != 32*len(leases) {
		return false
	}
	for i := range leases {
		e := &leases[i]
		granted := number(reply)
		e.Done, e.Foreign, e.Now, e.Granted = true, granted < 0, now, max(0, granted)
		e.State = limiter.State{Last: number(reply[8:]), Level: number(reply[16:]), Prev: number(reply[24:])}
		reply = reply[32:]
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

// settle sends all in as many scripts as it takes: at once, in one pipeline. Where a script
// reaches only keys of one tag, each has its own.
func settle[T any](ctx context.Context, l *Lessor, s *wire.Script, all []T, most int,
	encode func([]T) []any, read func(now int64, reply string, some []T) bool) (now int64, err error) {

	if l.transport.split {
		most = 1
	}
	var parts [][]T
	for rest := all; len(rest) > 0 || parts == nil; {
		n := min(most, len(rest))
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	requests := make([]leaseRequest, len(parts))
	for i := range requests {
		requests[i] = leaseRequest{args: encode(parts[i]), missing: true}
	}
	l.send(ctx, s, requests, false)
	l.send(ctx, s, requests, true) // those whose script Redis does not know
	var errs []error
	for i := range requests {
		reply, err := requests[i].cmd.Text()
		switch {
		case err != nil:
			errs = append(errs, l.transport.failed(wire.Plainly(err), 0))
		case len(reply) < 8 || !read(number(reply), reply[8:], parts[i]):
			errs = append(errs, l.transport.failed(errAnswer, 0))
		default:
			now = number(reply)
		}
	}
	return now, joined(errs)
}

type leaseRequest struct {
	args    []any
	cmd     *redis.Cmd
	missing bool // Redis has not run it
}

// send sends the requests that Redis has not run.
func (l *Lessor) send(ctx context.Context, s *wire.Script, requests []leaseRequest, withSource bool) {
	pipeline := l.transport.client.Pipeline()
	var only *leaseRequest
	for i := range requests {
		r := &requests[i]
		if !r.missing {
			continue
		}
		s.Put(r.args, withSource)
		args := r.args
		if l.transport.testClock != nil {
			args = append(args[:len(args):len(args)], l.transport.testClock()...)
		}
		r.cmd = redis.NewCmd(ctx, args...)
		_ = pipeline.Process(ctx, r.cmd)
		only = r
		l.trips.Add(1)
	}
	switch pipeline.Len() {
	case 0:
		return
	case 1:
		_ = l.transport.client.Process(ctx, only.cmd) // a command has its error
	default:
		_, _ = pipeline.Exec(ctx)
	}
	for i := range requests {
		r := &requests[i]
		err := r.cmd.Err()
		r.missing = err != nil && wire.IsUnknown(err)
	}
}
