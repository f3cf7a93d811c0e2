package redisstore

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A batch is calls that are sent together, in one run of a script for each kind of call, in a Cluster for each kind
// and key. It is the context in which go-redis sends them.
type batch struct {
	calls    []*call
	awaited  int // calls for which a caller waits
	start    time.Time
	deadline time.Time
	isLed    bool
	connects bool          // no connection was ready
	isLeft   bool          // its callers have left; the pipe's lock guards it
	ended    chan struct{} // closed when it has no more time
}

func newBatch(calls []*call, life time.Duration) *batch {
	start := time.Now()
	b := &batch{calls: calls, start: start, deadline: start.Add(life), ended: make(chan struct{})}
	for _, c := range calls {
		if c.ended == nil {
			b.awaited++
		}
	}
	return b
}

// settled calls f for the counters of b's settlements, and of slots that it releases.
func (b *batch) settled(f func(name string)) {
	if b.awaited == len(b.calls) {
		return
	}
	for _, c := range b.calls {
		if c.op == settle || c.op == release {
			for i := range c.items {
				f(c.items[i].name)
			}
		}
	}
}

// end closes ended. The pipe is locked.
func (b *batch) end() {
	if b.Err() == nil {
		close(b.ended)
	}
}

// Deadline, Done, Err and Value implement [context.Context].
func (b *batch) Deadline() (time.Time, bool) { return b.deadline, true }
func (b *batch) Done() <-chan struct{}       { return b.ended }
func (b *batch) Value(any) any               { return nil }
func (b *batch) Err() error {
	select {
	case <-b.ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A run is calls of a batch as the keys and the argument of a script, and then the script's reply.
//
// The argument for rates has, in this order:
//
//	how many quotas, calls and charges follow, in 2 bytes each
//	quotas, in 26 bytes each (counters.AppendQuotas)
//	calls: an op and a size, in a byte each
//	charges: the numbers of the key and of the quota, from 1, in 2 bytes each, and the cost in 8;
//	         below 0, a charge to take is optional
//	for each charge of a settlement, when it was taken, and for each charge to take from a LeakyBucket, the
//	longest Delay, in 8 bytes
//
// The argument for slots has the process and the lease in 8 bytes each, how many charges follow in 2, and for each:
//
//	the number of the key in 2 bytes, the op, and how many charges of the call follow in 1 each
//	the limit, the cost, when they were taken, the number of the first token, and how many slots of the key
//	the process holds in 8 each
//
// Integers are little-endian. Numbers that may be large are doubles, as all numbers are in Lua.
type run struct {
	wire.Run
	calls   []*call
	ofSlots bool
	dated   int // how often it was encoded again for the server's time

	charges int
	size    int // of the reply to each
	extra   int // bytes of the reply about states of other limits

	text   string
	failed error
}

// send is a [sendFunc].
func (s *store) send(b *batch, finished func(answered bool)) {
	s.batches.Add(1)
	runs := s.runsOf(b.calls)
	all := make([]*wire.Run, len(runs))
	for i, r := range runs {
		s.encode(r)
		all[i] = &r.Run
	}
	transport := s.patient
	if b.isLed {
		transport = s.strict
	}
	for len(all) > 0 {
		transport.Send(b, all...)
		all = all[:0]
		for _, r := range runs {
			if now, ok := s.clock.Correct(r.Err()); ok && r.dated < counters.MostCorrections {
				r.dated++
				r.encodeRates(now)
				all = append(all, &r.Run)
			}
		}
	}
	isAnswered := true
	for _, r := range runs {
		r.read()
		isAnswered = isAnswered && wire.IsAnswer(r.Err())
	}
	finished(isAnswered)
	if s.tries && runs[0].failed == nil && !runs[0].ofSlots {
		s.transport.CheckRoute(&runs[0].Run, s.names.Prefix, s.log)
	}
	for _, r := range runs {
		r.deliver()
	}
}

// runsOf makes the runs of calls: one of each kind, or where a script can reach one tag only, one of each kind and
// tag.
func (s *store) runsOf(calls []*call) (runs []*run) {
	if isSplit := s.transport.IsSplit(); isSplit || slices.ContainsFunc(calls, func(c *call) bool { return c.op.ofSlots() }) {
		type kind struct {
			ofSlots bool
			asks    bool // a full Redis refuses a write only if a script has not written yet, as a release does
			tag     keyfunc.Digest
		}
		index := make(map[kind]*run, len(calls))
		for _, c := range calls {
			k := kind{ofSlots: c.op.ofSlots(), asks: c.op == acquire}
			if isSplit {
				k.tag = c.tag
			}
			r := index[k]
			if r == nil {
				r = &run{ofSlots: k.ofSlots}
				index[k] = r
				if k.ofSlots && !k.asks {
					runs = slices.Insert(runs, 0, r) // for who asks next
				} else {
					runs = append(runs, r)
				}
			}
			r.calls = append(r.calls, c)
		}
		return runs
	}
	return []*run{{calls: calls}}
}

func (s *store) encode(r *run) {
	if r.ofSlots {
		r.Script = s.slots.script
		r.encodeSlots(s.slots.process, s.slots.lease)
		return
	}
	r.Script = s.script
	r.encodeRates(s.clock.Now())
}

// begin counts the items and makes room for their names.
func (r *run) begin() (numbers map[string]uint16) {
	items := 0
	for _, c := range r.calls {
		items += len(c.items)
	}
	r.charges, r.size = items, recordSize
	r.Arguments = make([]any, wire.FirstKey, wire.FirstKey+items+1)
	if items > 1 {
		numbers = make(map[string]uint16, items)
	}
	return numbers
}

// number returns the number of a key, from 1.
func (r *run) number(numbers map[string]uint16, name string) uint16 {
	key, known := numbers[name]
	if !known {
		r.Arguments = append(r.Arguments, name)
		key = uint16(len(r.Arguments) - wire.FirstKey)
		if numbers != nil {
			numbers[name] = key
		}
	}
	return key
}

// end adds the argument.
func (r *run) end(argument []byte) {
	r.Arguments[wire.FirstKey-1] = len(r.Arguments) - wire.FirstKey
	r.Arguments = append(r.Arguments, argument)
}

// encodeRates writes the script's arguments, for the server's time as far as it is known.
func (r *run) encodeRates(now int64) {
	numbers := r.begin()
	var space [4]*limiter.Quota
	quotas := space[:0]
	calls := make([]byte, 0, 2*len(r.calls))
	charges := make([]byte, 0, 12*r.charges)
	var times []byte
	for _, c := range r.calls {
		calls = append(calls, byte(c.op), byte(len(c.items)))
		for i := range c.items {
			it := &c.items[i]
			r.size = max(r.size, recordSizeOf(it.quota))
			quota := slices.Index(quotas, it.quota)
			if quota < 0 {
				quota = len(quotas)
				quotas = append(quotas, it.quota)
			}
			charges = binary.LittleEndian.AppendUint16(charges, r.number(numbers, it.name))
			charges = binary.LittleEndian.AppendUint16(charges, uint16(quota+1))
			charges = counters.AppendNumber(charges, costOf(c.op, it))
			switch {
			case c.op == settle:
				times = counters.AppendNumber(times, it.at)
			case c.op != reset && it.quota.Algorithm() == limiter.LeakyBucket:
				times = counters.AppendNumber(times, it.longestDelay())
			}
		}
	}
	argument := make([]byte, 0, 6+26*len(quotas)+len(calls)+len(charges)+len(times))
	for _, n := range []int{len(quotas), len(r.calls), r.charges} {
		argument = binary.LittleEndian.AppendUint16(argument, uint16(n))
	}
	argument = counters.AppendQuotas(argument, quotas, now)
	argument = append(argument, calls...)
	argument = append(argument, charges...)
	r.end(append(argument, times...))
}

// encodeSlots writes the script's arguments.
func (r *run) encodeSlots(process int64, lease time.Duration) {
	numbers := r.begin()
	b := counters.AppendNumber(make([]byte, 0, 18+44*r.charges), process)
	b = counters.AppendNumber(b, lease.Microseconds())
	b = binary.LittleEndian.AppendUint16(b, uint16(r.charges))
	for _, c := range r.calls {
		for i := range c.items {
			it := &c.items[i]
			b = binary.LittleEndian.AppendUint16(b, r.number(numbers, it.name))
			b = append(b, byte(c.op-acquire), byte(len(c.items)-1-i))
			for _, n := range []int64{it.quota.Capacity(), costOf(c.op, it), it.at, it.first, it.held} {
				b = counters.AppendNumber(b, n)
			}
		}
	}
	r.end(b)
}

// longestDelay returns the longest Delay that an item accepts, in microseconds. It is at most the Delay behind a full
// queue, so that Lua counts exactly.
func (it *item) longestDelay() int64 {
	longest := it.quota.Window()
	if it.within > 0 {
		longest = min(longest, it.within)
	}
	return longest.Microseconds()
}

// costOf returns an item's cost, or an equivalent cost below 2^53. The counter of a settlement may be under a larger
// quota than the item's.
func costOf(op op, it *item) int64 {
	switch op {
	case settle:
		const most = 1<<53 - 1
		return max(-most, min(it.cost, most))
	case take, look, acquire:
		cost := min(it.cost, it.quota.Capacity()+1)
		if it.optional {
			return -cost
		}
		return cost
	}
	return it.cost
}
