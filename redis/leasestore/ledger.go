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

// newLedger returns the ledger of a process. Its refills last for life at most, and its trips
// end after timeout. All processes together hold no more than percent of what a limit lets pass
// at once. Nothing is sent twice, because units that are returned twice would be admitted
// twice.
func newLedger(client redis.UniversalClient, oneTag bool, names counters.Names, percent int,
	life, timeout time.Duration) *redisLedger {
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

// A refill is what is exchanged with Redis about one counter: units back, units wanted, and its answer.
type refill struct {
	hash  uint64 // of the entry
	tag   keyfunc.Digest
	quota *limiter.Quota

	since redisTime // when the units that are returned were granted
	back  int64     // units that are returned
	keep  int64     // units that are kept, at most
	want  int64     // units wanted while half of the limit is free
	need  int64     // units wanted in any case

	// Redis's answer. done is false if Redis may not have received the refill. foreign is true if
	// other limits use the counter too: then nothing is granted.
	done    bool
	foreign bool
	now     redisTime
	granted int64 // and charged
	state   limiter.State
}

// refillsInScript bounds how long a script runs: some 6 microseconds for each refill.
const refillsInScript = 256

// Refill sends refills to Redis, in as many scripts as needed, in one pipeline. In a Cluster each refill
// has a script of its own. If there is an error, Redis may have received refills that are not done: their
// returned units are returned, and their granted units are lost.
func (l *redisLedger) Refill(ctx context.Context, refills []refill) error {
	most := refillsInScript
	if l.transport.IsSplit() {
		most = 1
	}
	chunks := slices.Collect(slices.Chunk(refills, most))
	runs := make([]*wire.Run, len(chunks))
	for range 1 + counters.MostCorrections {
		var due []*wire.Run
		for i, chunk := range chunks {
			now, isDue := l.clock.Now(), runs[i] == nil
			if !isDue {
				now, isDue = l.clock.Correct(runs[i].Err())
			}
			if isDue {
				keys, argument := l.encode(chunk, now)
				runs[i] = wire.NewRun(leaseScript, keys, argument)
				due = append(due, runs[i])
			}
		}
		if len(due) == 0 {
			break
		}
		l.transport.Send(ctx, due...)
	}
	var failed error // the first
	for i, r := range runs {
		reply, err := r.Text()
		if err == nil && !read(reply, chunks[i]) {
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
			cmp.Or(l.log, slog.Default()).Error("weir: Redis cannot make leases: a wrong configuration; "+
				"until it is fixed, Redis decides each request", "code", "weir-store-unusable", "error", err)
		})
	}
	return err
}

func (l *redisLedger) encode(refills []refill, now int64) (keys []string, argument []byte) {
	var quotas []*limiter.Quota
	for i := range refills {
		if !slices.Contains(quotas, refills[i].quota) {
			quotas = append(quotas, refills[i].quota)
		}
	}
	b := make([]byte, 0, 22+26*len(quotas)+42*len(refills))
	b = appendCounts(b, len(quotas), len(refills), l.percent)
	b = counters.AppendNumber(b, l.life.Microseconds())
	b = append(b, l.holder[:]...)
	b = counters.AppendQuotas(b, quotas, now)
	for i := range refills {
		r := &refills[i]
		name := l.names.Name(r.tag, r.quota)
		keys = append(keys, name, holdersOf(name))
		b = appendCounts(b, slices.Index(quotas, r.quota)+1)
		for _, n := range [...]int64{int64(r.since), r.back, r.keep, r.want, r.need} {
			b = counters.AppendNumber(b, min(n, 1<<53))
		}
	}
	return keys, b
}

// read reads the script's reply: its time, and 32 bytes for each refill.
func read(reply string, refills []refill) bool {
	if len(reply) != 8+32*len(refills) {
		return false
	}
	now, reply := counters.Number(reply), reply[8:]
	for i := range refills {
		r := &refills[i]
		granted := counters.Number(reply)
		r.done, r.foreign, r.now, r.granted = true, granted < 0, redisTime(now), max(0, granted)
		r.state.Last, r.state.Level = counters.Number(reply[8:]), counters.Number(reply[16:])
		r.state.Prev = counters.Number(reply[24:])
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
