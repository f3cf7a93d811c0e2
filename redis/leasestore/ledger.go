package leasestore

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

//go:embed lease.lua
var leaseLua string

var leaseScript = wire.NewScript(counters.Lua + leaseLua)

// format is the version of the lists of holders in Redis. A change of what is written changes it.
const format = "1"

// A redisLedger is a [ledger] in Redis. It has no outage policies: a failure is an error.
type redisLedger struct {
	names     counters.Names
	transport *wire.Transport
	clock     counters.Clock
	holder    [8]byte // that this process is
	percent   int
	life      time.Duration
	log       *slog.Logger // nil: slog.Default
	warned    sync.Once    // that Redis cannot make leases
}

// newLedger returns the ledger of a process. Its leases last for life at most, and its trips
// end after timeout. All processes together hold no more than percent of what a limit lets pass
// at once. Nothing is sent twice, because units that are returned twice would be admitted
// twice.
func newLedger(client redis.UniversalClient, oneTag bool, names counters.Names, percent int, life, timeout time.Duration) *redisLedger {
	l := &redisLedger{
		names: names, transport: wire.NewTransport(client, oneTag).Within(timeout),
		percent: percent, life: life,
	}
	_, _ = rand.Read(l.holder[:]) // which cannot fail
	return l
}

// holdersOf returns the name of the list of a counter's holders. No counter has such a name: a
// tier's name is not empty, and has no colon.
func holdersOf(counter string) string { return counter + "::lease:" + format }

// Tag stands for a key in Redis.
func (l *redisLedger) Tag(key string) keyfunc.Digest { return l.names.Digest(key) }

// A lease is what is settled about one counter.
type lease struct {
	hash  uint64 // of the entry
	tag   keyfunc.Digest
	quota *limiter.Quota

	since int64 // Redis's time when the units that are returned were granted
	back  int64 // units that are returned
	keep  int64 // units that are kept, at most
	want  int64 // units wanted while half of the limit is free
	need  int64 // units wanted in any case

	// What Redis says: how many of the units wanted it has charged, and the state then, at
	// its time now.
	// done is false if it is not known to have heard of the lease, foreign is true if
	// other limits use the counter too: then nothing is granted.
	done    bool
	foreign bool
	now     int64
	granted int64
	state   limiter.State
}

// leasesInScript bounds how long a script runs: some 6 microseconds for each lease.
const leasesInScript = 256

// Settle sends leases to Redis, in as many scripts as needed, in one pipeline. In a Cluster
// each lease has a script of its own. If there is an error, Redis may have received
// leases that are not done: their returned units are returned, and their granted units are
// lost.
func (l *redisLedger) Settle(ctx context.Context, leases []lease) error {
	most := leasesInScript
	if l.transport.IsSplit() {
		most = 1
	}
	parts := slices.Collect(slices.Chunk(leases, most))
	runs := make([]*wire.Run, len(parts))
	encode := func(i int, now int64) *wire.Run {
		keys, argument := l.encode(parts[i], now)
		runs[i] = wire.NewRun(leaseScript, keys, argument)
		return runs[i]
	}
	for i := range parts {
		encode(i, l.clock.Now())
	}
	l.transport.Send(ctx, runs...)
	for range counters.MostCorrections {
		var again []*wire.Run
		for i, r := range runs {
			if now, ok := l.clock.Correct(r.Err()); ok {
				again = append(again, encode(i, now))
			}
		}
		if len(again) == 0 {
			break
		}
		l.transport.Send(ctx, again...)
	}
	var failed error // the first
	for i, r := range runs {
		reply, err := r.Text()
		if err == nil && !read(reply, parts[i]) {
			err = wire.ErrAnswer
		}
		failed = cmp.Or(failed, err)
	}
	if failed == nil && len(runs) > 0 {
		l.transport.CheckRoute(runs[0], l.names.Prefix, l.log)
	}
	err := l.transport.Failed("leasestore", failed, 0)
	var unfit interface{ Unusable() bool }
	if errors.As(err, &unfit) && unfit.Unusable() {
		l.warned.Do(func() {
			cmp.Or(l.log, slog.Default()).Error("weir: Redis cannot make leases: a wrong configuration; until it is fixed, Redis decides each request",
				"code", "weir-store-unusable", "error", err)
		})
	}
	return err
}

func (l *redisLedger) encode(leases []lease, now int64) (keys []string, argument []byte) {
	var quotas []*limiter.Quota
	for i := range leases {
		if !slices.Contains(quotas, leases[i].quota) {
			quotas = append(quotas, leases[i].quota)
		}
	}
	b := make([]byte, 0, 22+26*len(quotas)+42*len(leases))
	b = appendCounts(b, len(quotas), len(leases), l.percent)
	b = counters.AppendNumber(b, l.life.Microseconds())
	b = append(b, l.holder[:]...)
	b = counters.AppendQuotas(b, quotas, now)
	for i := range leases {
		e := &leases[i]
		name := l.names.Name(e.tag, e.quota)
		keys = append(keys, name, holdersOf(name))
		b = appendCounts(b, slices.Index(quotas, e.quota)+1)
		for _, n := range [...]int64{e.since, e.back, e.keep, e.want, e.need} {
			b = counters.AppendNumber(b, min(n, 1<<53))
		}
	}
	return keys, b
}

// read reads the script's reply: its time, and 32 bytes for each lease.
func read(reply string, leases []lease) bool {
	if len(reply) != 8+32*len(leases) {
		return false
	}
	now, reply := counters.Number(reply), reply[8:]
	for i := range leases {
		e := &leases[i]
		granted := counters.Number(reply)
		e.done, e.foreign, e.now, e.granted = true, granted < 0, now, max(0, granted)
		e.state = limiter.State{Last: counters.Number(reply[8:]), Level: counters.Number(reply[16:]), Prev: counters.Number(reply[24:])}
		reply = reply[32:]
	}
	return true
}

func appendCounts(b []byte, counts ...int) []byte {
	for _, n := range counts {
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
	}
	return b
}
