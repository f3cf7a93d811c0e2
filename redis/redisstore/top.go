package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A Usage is how much of a limit a key has used.
type Usage struct {
	Name       string // of the counter in Redis
	Digest     string // of the key: see [keyfunc.Digest]
	Rule, Tier string
	InFlight   bool // the counter counts slots ([limiter.NewConcurrency])
	Used       int64
	Limit      int64
	ResetAfter time.Duration // time until the whole limit is free again; for slots, an estimate
}

// CounterNames returns a pattern for Redis's SCAN that matches all counters under a prefix
// ([Options]).
func CounterNames(prefix string) string {
	escape := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`)
	return escape.Replace(counters.New(prefix, nil, counters.Format).Prefix) + ":{*}:*"
}

// Usages returns what the counters with these names have used. It leaves out counters with nothing
// used, and keys that are not counters, so names may be a page of SCAN. It changes nothing. It reads the
// values in one pipeline, and long ones in a second one. An ACL user needs ~weir:* +getrange +time +zcount
// +zscore.
func Usages(ctx context.Context, client redis.UniversalClient, prefix string, names []string) ([]Usage, error) {
	if err := wire.CheckClient("redisstore", client); err != nil {
		return nil, err
	}
	var found []Usage
	for _, name := range names {
		if u, ok := parseName(prefix, name); ok {
			found = append(found, u)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	failed := func(err error) error { return wire.NewTransport(client, false).Failed("redisstore", err, 0) }
	clock, err := client.Time(ctx).Result()
	if err != nil {
		return nil, failed(err)
	}
	values, err := heads(ctx, client, found, headSize-1)
	if err != nil {
		return nil, failed(err)
	}
	if err := readSlots(ctx, client, found, clock.UnixMicro()); err != nil {
		return nil, failed(err)
	}
	var long []Usage
	for i, u := range found {
		if len(values[i]) == headSize && (isLongLog(values[i]) || hasMany(values[i])) {
			long = append(long, u)
		}
	}
	whole, err := heads(ctx, client, long, -1)
	if err != nil {
		return nil, failed(err)
	}
	used := found[:0]
	for i, u := range found {
		value := values[i]
		if len(long) > 0 && long[0].Name == u.Name {
			value, long, whole = whole[0], long[1:], whole[1:]
		}
		if !u.InFlight {
			u.read(value, clock.UnixMicro())
		}
		if u.Used > 0 && u.Limit > 0 {
			used = append(used, u)
		}
	}
	return used, nil
}

// readSlots reads which slots count at time now, as slots.lua keeps them.
func readSlots(ctx context.Context, client redis.UniversalClient, of []Usage, now int64) error {
	pipeline := client.Pipeline()
	read := map[*Usage][3]redis.Cmder{}
	for i := range of {
		if u := &of[i]; u.InFlight {
			read[u] = [3]redis.Cmder{
				pipeline.ZCount(ctx, u.Name, fmt.Sprintf("(%d", now), "+inf"),
				pipeline.ZScore(ctx, u.Name, "limit"), pipeline.ZScore(ctx, u.Name, "mean"),
			}
		}
	}
	if len(read) == 0 {
		return nil
	}
	_, _ = pipeline.Exec(ctx) // each answer has its own error
	for u, r := range read {
		for _, cmd := range r {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return err
			}
		}
		mean := -int64(r[2].(*redis.FloatCmd).Val())
		u.Used, u.Limit = r[0].(*redis.IntCmd).Val(), -int64(r[1].(*redis.FloatCmd).Val())
		u.ResetAfter = micros(cmp.Or(mean, time.Second.Microseconds())) // as limiter/inflight.go has it
	}
	return nil
}

// headSize is as large as the value of a log of 10 entries.
const headSize = counterSize + 10*entrySize

// heads returns the values of counters up to the byte last, or all of them for -1. A key of another type
// has an empty value.
func heads(ctx context.Context, client redis.UniversalClient, of []Usage, last int64) ([]string, error) {
	if len(of) == 0 {
		return nil, nil
	}
	pipeline := client.Pipeline()
	answers := make([]*redis.StringCmd, len(of))
	for i := range of {
		answers[i] = pipeline.GetRange(ctx, of[i].Name, 0, last)
	}
	_, _ = pipeline.Exec(ctx) // each answer has its own error
	values := make([]string, len(of))
	for i, answer := range answers {
		switch text, err := answer.Result(); {
		case err == nil:
			values[i] = text
		case !redis.HasErrorPrefix(err, "WRONGTYPE"):
			return nil, err
		}
	}
	return values, nil
}

// The sizes of what counter.lua writes.
const (
	quotaSize   = 1 + 3*8         // counters.AppendQuota
	counterSize = quotaSize + 4*8 // and when it changed last, level, prev and its expiry
	ringSize    = quotaSize + 5*8 // of a long log: and the same without the expiry, where the ring begins, and its length
	entrySize   = 2 * 8           // a time and units
	isLong      = 10              // a log of more events is a ring
)

// isLongLog reports whether a value is a log whose entries are a ring.
func isLongLog(value string) bool {
	return len(value) >= ringSize && limiter.Algorithm(value[0]) == limiter.SlidingLog && counters.Number(value[1:]) > isLong
}

// The sizes of what shape.lua writes before its states, and before a state's log.
const (
	manyStates = 255 // the first byte
	manySize   = 1 + 2*8
	partSize   = quotaSize + 5*8
)

// hasMany reports whether a value has the states of several limits.
func hasMany(value string) bool { return len(value) >= manySize+partSize && value[0] == manyStates }

// latestState returns the value of the state that was used last, of a value with the states of several limits.
func latestState(value string) string {
	value = value[manySize:]
	size := min(max(0, int(counters.Number(value[partSize-8:]))), len(value)-partSize)
	numbers, log := value[:quotaSize+3*8], value[partSize:partSize+size]
	head := counters.AppendNumber([]byte(numbers), 0)
	if limiter.Algorithm(value[0]) == limiter.SlidingLog && counters.Number(value[1:]) > isLong {
		head = counters.AppendNumber(head, int64(size/entrySize))
	}
	return string(head) + log
}

// read sets what a counter with that value has used at time now, in microseconds. It is nothing for a value
// that is no counter, and for a counter that counts no more because the clock was set back.
func (u *Usage) read(value string, now int64) {
	if hasMany(value) {
		value = latestState(value)
	}
	if len(value) < counterSize {
		return
	}
	a, b, c := counters.Number(value[1:]), counters.Number(value[9:]), counters.Number(value[17:])
	s := limiter.State{Last: counters.Number(value[25:]), Level: counters.Number(value[33:]), Prev: counters.Number(value[41:])}
	l := limiter.Limit{Algorithm: limiter.Algorithm(value[0]), Events: a, Per: micros(b)}
	life := b // for how long the state can count
	switch {
	case l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket:
		l = limiter.Limit{Algorithm: l.Algorithm, Events: c, Per: micros(b), Burst: a}
		if l.Algorithm == limiter.LeakyBucket {
			l.Burst-- // the event that leaves
		}
	case l.Algorithm == limiter.FixedWindow && c != 0:
		u.readCalendar(a, b, c, s, now)
		return
	case isLongLog(value):
		s.Log = ring(value, a)
	case l.Algorithm == limiter.SlidingLog:
		s.Log = entries(value[counterSize:])
	}
	q, err := limiter.NewQuota("a counter", "", l) // the names may be anything
	if err != nil {
		return
	}
	if l.Burst > 0 {
		scale := max(1, b/q.Numbers(now)[1]) // q's unit may be a divisor of b
		s.Level = (s.Level + scale - 1) / scale
		life = a * b / c
	}
	if s.Last > now+life {
		return
	}
	if l.Algorithm == limiter.SlidingLog {
		s.Level = 0 // what is in Redis may be anything
		for i := range s.Log {
			s.Log[i].N = min(s.Log[i].N, a)
			s.Level += s.Log[i].N
		}
		s.Prev = min(max(0, s.Prev), s.Level)
		s.Level += s.Prev
	}
	d := q.Describe(s, now, 0, true)
	u.Used, u.Limit, u.ResetAfter = d.Limit-d.Remaining, d.Limit, d.ResetAfter
}

// readCalendar reads a count in a calendar's window. The numbers are of limiter.Quota.Numbers.
func (u *Usage) readCalendar(capacity, start, seconds int64, s limiter.State, now int64) {
	end := start + seconds>>25*1_000_000
	followedTo := end + seconds&(1<<25-1)*1_000_000
	if now >= end { // only what is owed still counts
		s.Level, end = s.Level-capacity, followedTo
	}
	if now >= followedTo || now < 2*start-end {
		return
	}
	if s.Level > capacity {
		end = followedTo
	}
	u.Used, u.Limit, u.ResetAfter = min(s.Level, capacity), capacity, micros(end-now)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// entries reads the entries of a log.
func entries(text string) (log []limiter.Entry) {
	for ; len(text) >= entrySize; text = text[entrySize:] {
		if e := (limiter.Entry{At: counters.Number(text), N: counters.Number(text[8:])}); e.N > 0 {
			log = append(log, e)
		}
	}
	return log
}

// ring returns the entries of a long log of at most size events, the oldest first.
func ring(value string, size int64) []limiter.Entry {
	first := min(max(0, counters.Number(value[49:])), size-1)
	kept := min(max(0, counters.Number(value[57:])), size)
	text := value[ringSize:]
	has := int64(len(text) / entrySize)
	if past := first + kept; past > size {
		return append(entries(text[entrySize*min(first, has):]), entries(text[:entrySize*min(past-size, has)])...)
	}
	return entries(text[entrySize*min(first, has) : entrySize*min(first+kept, has)])
}

// parseName reads the name of a counter.
func parseName(prefix, name string) (u Usage, ok bool) {
	rest, ok := strings.CutPrefix(name, counters.New(prefix, nil, counters.Format).Prefix+":{")
	if !ok {
		return u, false
	}
	digest, names, _ := strings.Cut(rest, "}:")
	if _, ok := keyfunc.ParseDigest(digest); !ok {
		return u, false
	}
	names, inFlight := strings.CutSuffix(names, counters.SlotsSuffix)
	rule, tier, _ := strings.Cut(names, ":")
	unescape := strings.NewReplacer("%3A", ":", "%25", "%").Replace
	return Usage{Name: name, Digest: digest, Rule: unescape(rule), Tier: unescape(tier), InFlight: inFlight}, true
}
