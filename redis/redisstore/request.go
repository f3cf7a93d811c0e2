package redisstore

import (
	"encoding/binary"
	"slices"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A request is a batch of groups as the script's keys and argument.
//
// The argument has, in this order:
//
//	how many quotas, groups, charges and messages about slots follow, in 2 bytes each
//	the messages and charges of slots, if there are any (appendSlots)
//	quotas, in 26 bytes each (counters.AppendQuotas)
//	groups: an op and a size, in a byte each
//	charges: the numbers of the key and of the quota, from 1, in 2 bytes each, and the cost in 8;
//	         below 0, a charge to take is optional
//	for each charge of a settlement, when it was taken, and for each charge to take from a LeakyBucket, the
//	longest Delay, in 8 bytes
//
// Integers are little-endian. Numbers that may be large are doubles, as all numbers are in Lua.
type request struct {
	wire.Request
	groups []*group
	dated  int // how often it was encoded again for the server's time

	messages []*message // about slots
	asks     int        // charges of slots
	charges  int        // others
	size     int        // of the answer to one of those
	extra    int        // bytes of the answer about states of other limits

	reply  string
	failed error
}

// encode writes the script's arguments for the groups, for the server's time as far as it is
// known.
func (r *request) encode(now int64) {
	items := 0
	for _, g := range r.groups {
		items += len(g.items)
	}
	for _, m := range r.messages {
		m.index = 0
	}
	r.charges, r.asks, r.size, r.messages = 0, 0, recordSize, nil
	r.Arguments = make([]any, wire.FirstKey, wire.FirstKey+items+1)
	var numbers map[string]uint16 // of keys
	if items > 1 {
		numbers = make(map[string]uint16, items)
	}
	var space [4]*limiter.Quota
	quotas := space[:0]
	groups := make([]byte, 0, 2*len(r.groups))
	charges := make([]byte, 0, 12*items)
	var times, asks []byte
	for _, g := range r.groups {
		r.Once = r.Once || g.op == settle // which counts twice if it is sent twice; a take that does only admits less
		if !g.tells {
			groups = append(groups, byte(g.op), byte(len(g.items)))
		}
		for i := range g.items {
			it := &g.items[i]
			key, known := numbers[it.name]
			if !known {
				r.Arguments = append(r.Arguments, it.name)
				key = uint16(len(r.Arguments) - wire.FirstKey)
				if numbers != nil {
					numbers[it.name] = key
				}
			}
			if it.isSlot {
				if m := it.message; m.index == 0 {
					r.messages = append(r.messages, m)
					m.key, m.index = key, len(r.messages)
				}
				if !g.tells {
					groups[len(groups)-1]--
					asks = appendAsk(asks, len(groups)/2, g.op, it)
					r.asks++
				}
				continue
			}
			r.charges++
			r.size = max(r.size, recordSizeOf(it.quota))
			quota := slices.Index(quotas, it.quota)
			if quota < 0 {
				quota = len(quotas)
				quotas = append(quotas, it.quota)
			}
			charges = binary.LittleEndian.AppendUint16(charges, key)
			charges = binary.LittleEndian.AppendUint16(charges, uint16(quota+1))
			charges = counters.AppendNumber(charges, costOf(g.op, it))
			switch {
			case g.op == settle:
				times = counters.AppendNumber(times, it.at)
			case g.op == take && it.quota.Algorithm() == limiter.LeakyBucket:
				times = counters.AppendNumber(times, it.longestDelay())
			}
		}
	}
	argument := make([]byte, 0, 8+26*len(quotas)+len(groups)+len(charges)+len(times)+100*len(r.messages))
	for _, n := range []int{len(quotas), len(groups) / 2, r.charges, len(r.messages)} {
		argument = binary.LittleEndian.AppendUint16(argument, uint16(n))
	}
	if len(r.messages) > 0 {
		argument = r.appendSlots(argument, asks)
	}
	argument = counters.AppendQuotas(argument, quotas, now)
	r.Arguments[2] = len(r.Arguments) - wire.FirstKey
	argument = append(argument, groups...)
	argument = append(argument, charges...)
	r.Bytes = append(argument, times...)
}

// appendAsk writes a charge of a slot: the number of its group and of the message about its key,
// in 2 bytes each, the cost and the limit, in 8.
func appendAsk(b []byte, group int, op op, it *item) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(group))
	b = binary.LittleEndian.AppendUint16(b, uint16(it.message.index))
	b = counters.AppendNumber(b, costOf(op, it))
	return counters.AppendNumber(b, it.quota.Capacity())
}

// appendSlots writes, in this order:
//
//	which process this is, and the lease, in 8 bytes each
//	how many charges of slots follow, in 2 bytes
//	messages: the number of the key in 2 bytes; the limit, how many slots are held and the
//	message's number in 8 each; whether the message before is in doubt, and how many events have
//	ended, in a byte each
//	charges (appendAsk)
//	for each event that has ended, when it began, in 8 bytes
func (r *request) appendSlots(b, asks []byte) []byte {
	h := &r.messages[0].batcher.holdings
	b = counters.AppendNumber(b, h.process)
	b = counters.AppendNumber(b, h.lease.Microseconds())
	b = binary.LittleEndian.AppendUint16(b, uint16(r.asks))
	for _, m := range r.messages {
		doubted := byte(0)
		if m.doubted {
			doubted = 1
		}
		b = binary.LittleEndian.AppendUint16(b, m.key)
		b = counters.AppendNumber(b, m.limit)
		b = counters.AppendNumber(b, m.held)
		b = counters.AppendNumber(b, m.number)
		b = append(b, doubted, byte(len(m.ends)))
	}
	b = append(b, asks...)
	for _, m := range r.messages {
		for _, at := range m.ends {
			b = counters.AppendNumber(b, at)
		}
	}
	return b
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

// costOf returns an item's cost, or an equivalent cost below 2^53. The counter of a settlement
// may be under a larger quota than the item's.
func costOf(op op, it *item) int64 {
	if op == settle {
		const most = 1<<53 - 1
		return max(-most, min(it.cost, most))
	}
	cost := min(it.cost, it.quota.Capacity()+1)
	if op == take && it.optional {
		return -cost
	}
	return cost
}
