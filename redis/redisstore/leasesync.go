package redisstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"slices"

	"github.com/weirgo/weir/limiter"
)

//go:embed leasesync.lua
var leasesyncLua string

// A Count is what a process tells of one counter that all count on, and is told.
type Count struct {
	Tag   Tag
	Quota *limiter.Quota
	Used  int64 // since it told last; below zero: given back

	Done  bool          // as in Lease
	State limiter.State // of what all have told, perhaps above the limit
}

// countsInScript bounds how long a script runs: some 3 microseconds for each.
const countsInScript = 512

// Exchange brings counts to Redis and returns its time. Without any it asks for the time.
func (l *Lessor) Exchange(ctx context.Context, counts []Count) (now int64, err error) {
	return settle(ctx, l, l.counts, counts, countsInScript, l.encodeCounts, l.readCounts)
}

// Forget makes a counter as if nobody had told of it.
func (l *Lessor) Forget(ctx context.Context, tag Tag, q *limiter.Quota) error {
	return l.transport.client.Del(ctx, l.keys.sumOf(l.keys.name(tag, q))).Err()
}

func (l *Lessor) encodeCounts(counts []Count) []any {
	args := make([]any, firstKey, firstKey+len(counts)+1)
	quotas := quotasOf(counts, func(c *Count) *limiter.Quota { return c.Quota })
	body := make([]byte, 0, 4+25*len(quotas)+10*len(counts))
	for _, n := range []int{len(quotas), len(counts)} {
		body = binary.LittleEndian.AppendUint16(body, uint16(n))
	}
	for _, q := range quotas {
		body = appendQuota(body, q)
	}
	for i := range counts {
		c := &counts[i]
		args = append(args, l.keys.sumOf(l.keys.name(c.Tag, c.Quota)))
		body = binary.LittleEndian.AppendUint16(body, uint16(slices.Index(quotas, c.Quota)+1))
		body = appendNumber(body, max(-1<<53, min(c.Used, 1<<53)))
	}
	args[2] = len(args) - firstKey
	return append(args, body)
}

func (l *Lessor) readCounts(_ int64, reply string, counts []Count) bool {
	if len(reply) != 24*len(counts) {
		return false
	}
	for i := range counts {
		counts[i].Done = true
		counts[i].State = limiter.State{Last: number(reply), Level: number(reply[8:]), Prev: number(reply[16:])}
		reply = reply[24:]
	}
	return true
}
