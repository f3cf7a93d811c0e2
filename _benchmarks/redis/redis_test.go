// Package redis measures limiters that count in Redis: one redis-server, without persistence, over
// loopback. Every key may be used once a second and 30 million times ahead, or that often in an
// hour, so that practically nothing is refused.
package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/benchmarks/peers"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/redisstore"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redistest.Silent{})
	redistest.Main(m)
}

const (
	burst  = 30_000_000
	window = time.Hour
)

// A call makes one decision. It is called by one goroutine.
type call func(ctx context.Context, key string) (allowed bool, err error)

// A contestant makes what it needs, and returns what makes a call for each goroutine.
type contestant struct {
	name string
	open func(*environment) (func() call, error)
}

// contestants are all of them. To add one, add it here.
var contestants = []contestant{
	{"weir", openWeir(1, redisstore.Options{})},
	{"weir-rules=3", openWeir(3, redisstore.Options{})},
	{"weir-limits=3", openLimits},
	{"weir-settles", openWeirSettles},                      // each decision reserves 2 units, and is settled to 1
	{"weir-slots", openWeirSlots},                          // one of how many may be at once is taken, and returned
	{"sorted-set", openSortedSet},                          // the same by a script on a sorted set of requests, and ZREM
	{"mennanov", openMennanov},                             // the same by ConcurrentBuffer: four commands in a pipeline, and ZREM
	{"redis_rate", openRedisRate},                          // GCRA: one EVALSHA
	{"redis_rate-autopipeline", openRedisRateAutoPipeline}, // the same over go-redis's own batching, which is experimental there
	{"ulule", openUlule},                                   // a fixed window: one EVALSHA
	{"throttled", openThrottled},                           // GCRA: TIME and GET, then a compare-and-swap by EVAL, up to ten times
	{"httprate-redis", openHTTPRate},                       // MGET, then INCRBY and EXPIRE in a transaction, under one mutex
	{"rueidis", openRueidis},                               // redis_rate's script through rueidis, which pipelines by itself
	{"floor-own-script", openOwnScript},                    // the very commands that weir sends for one decision
	{"floor-evalsha", openEvalSHA},
	{"floor-ping", openPing},
}

type environment struct {
	b    *testing.B
	addr string
	keys int
}

// client is one of go-redis with default options, but for the size of its pool.
func (c *environment) client() *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: c.addr, PoolSize: 64})
	c.b.Cleanup(func() { _ = client.Close() })
	return client
}

func BenchmarkDecide(b *testing.B) {
	listing := os.Getenv("RACE_LIST") != ""
	var server *redistest.Server
	if !listing {
		server = redistest.Start(b)
	}
	for _, keys := range []int{10_000, 1} {
		for _, callers := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("keys=%d,callers=%d", keys, callers), func(b *testing.B) {
				for _, c := range contestants {
					b.Run(c.name, func(b *testing.B) {
						if !listing {
							decide(b, c, server.Addr, keys, callers)
						}
					})
				}
			})
		}
	}
}

func decide(b *testing.B, c contestant, addr string, keys, callers int) {
	env := &environment{b: b, addr: addr, keys: keys}
	control := env.client()
	if err := control.Do(b.Context(), "flushall", "sync").Err(); err != nil {
		b.Fatal(err)
	}
	open, err := c.open(env)
	if err != nil {
		b.Fatal(err)
	}
	asked := make([]string, keys)
	for i := range asked {
		asked[i] = peers.Key(i)
	}
	var refused, failed atomic.Int64
	run := func(callers, n int) {
		var next atomic.Int64
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				ctx, cancel := context.WithCancel(context.Background()) // as a request's
				defer cancel()
				call, random := open(), rand.New(rand.NewPCG(rand.Uint64(), 0))
				for next.Add(1) <= int64(n) {
					switch yes, err := call(ctx, asked[random.IntN(keys)]); {
					case err != nil:
						failed.Add(1)
					case !yes:
						refused.Add(1)
					}
				}
			})
		}
		group.Wait()
	}
	run(max(callers, 64), max(callers, 64, 4*min(keys, 1000))) // so that connections are open, scripts loaded, and keys known
	failed.Store(0)
	refused.Store(0)
	own, theirs := ownCPU(b), redisCPU(b, control)
	b.ResetTimer()
	run(callers, b.N)
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric((ownCPU(b)-own)/n, "own-CPU-µs/op")
	b.ReportMetric((redisCPU(b, control)-theirs)/n, "Redis-CPU-µs/op")
	b.ReportMetric(n/b.Elapsed().Seconds(), "decisions/s")
	if failed.Load() > 0 {
		b.ReportMetric(float64(failed.Load())/n, "errors/op")
	}
	if refused.Load() > 0 {
		b.Fatalf("%d of %d are refused: what is compared is admission", refused.Load(), b.N)
	}
}

func ownCPU(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
}

// redisCPU is the CPU time of the server's main thread, the one that runs commands.
func redisCPU(b *testing.B, control *redis.Client) (micros float64) {
	info, err := control.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); strings.HasSuffix(name, "_main_thread") {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			micros += seconds * 1e6
		}
	}
	return micros
}

// errDegraded is a decision of an outage policy's instead of Redis's.
var errDegraded = errors.New("degraded: Redis gave no answer in time")

// openWeir opens a store that decides on so many rules at once, for one key.
func openWeir(rules int, o redisstore.Options) func(*environment) (func() call, error) {
	return func(c *environment) (func() call, error) {
		quotas := make([]*limiter.Quota, rules)
		for i := range quotas {
			var err error
			if quotas[i], err = limiter.NewQuota(fmt.Sprint("rule", i), "", bucket(i)); err != nil {
				return nil, err
			}
		}
		return weirCaller(redisstore.New(c.client(), o), quotas), nil
	}
}

func bucket(i int) limiter.Limit {
	return limiter.Limit{Events: 1, Per: time.Second, Burst: int64(burst - i), Algorithm: limiter.TokenBucket}
}

// openLimits has three limits in one rule.
func openLimits(c *environment) (func() call, error) {
	l, err := limiter.New(limiter.Config{Name: "rule", Store: redisstore.New(c.client(), redisstore.Options{}), Limit: limiter.All(
		limiter.Limit{Events: burst, Per: time.Hour},
		limiter.Limit{Events: burst, Per: 2 * time.Hour},
		limiter.Limit{Events: burst, Per: 3 * time.Hour},
	)})
	return shared(func(ctx context.Context, key string) (bool, error) {
		d, err := l.Allow(ctx, key)
		if err == nil && d.Degraded {
			err = errDegraded
		}
		return d.Allowed, err
	}), err
}

func weirCaller(store limiter.Store, quotas []*limiter.Quota) func() call {
	return func() call {
		charges := make([]limiter.Charge, len(quotas))
		return func(ctx context.Context, key string) (bool, error) {
			for i, q := range quotas {
				charges[i] = limiter.Charge{Quota: q, Key: key, Cost: 1}
			}
			if err := store.Decide(ctx, charges); err != nil {
				return false, err
			}
			d := charges[0].Decision
			if d.Degraded {
				return false, errDegraded
			}
			return d.Allowed, nil
		}
	}
}

func openWeirSettles(c *environment) (func() call, error) {
	q, err := limiter.NewQuota("rule", "", limiter.Limit{Events: burst, Per: 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	q.Settles = true
	return settlingCaller(c, q, 2, 1), nil
}

func openWeirSlots(c *environment) (func() call, error) {
	q, err := limiter.NewConcurrency("rule", "", mostAtOnce)
	if err != nil {
		return nil, err
	}
	return settlingCaller(c, q, 1, 0), nil
}

// settlingCaller takes so many units, and says at once how many it really was.
func settlingCaller(c *environment, q *limiter.Quota, cost, actual int64) func() call {
	store := redisstore.New(c.client(), redisstore.Options{})
	c.b.Cleanup(func() { _ = store.Close() })
	return func() call {
		var charges [1]limiter.Charge
		return func(ctx context.Context, key string) (bool, error) {
			charges[0] = limiter.Charge{Quota: q, Key: key, Cost: cost}
			if err := store.Decide(ctx, charges[:]); err != nil {
				return false, err
			}
			if charges[0].Decision.Degraded {
				return false, errDegraded
			}
			if !charges[0].Decision.Allowed {
				return false, nil
			}
			return true, store.Settle(ctx, []limiter.Settlement{{Charge: charges[0], Actual: actual}})
		}
	}
}

// openOwnScript records what weir sends for every key, to send just that.
func openOwnScript(c *environment) (func() call, error) {
	var sent []any
	recorded := redis.NewClient(&redis.Options{Addr: c.addr, ContextTimeoutEnabled: true}) // or weir's copy has no hooks
	c.b.Cleanup(func() { _ = recorded.Close() })
	recorded.AddHook(recorder{func(args []any) error {
		if args[0] == "evalsha" {
			sent = append([]any(nil), args...)
		}
		return nil
	}})
	q, err := limiter.NewQuota("rule", "", bucket(0))
	if err != nil {
		return nil, err
	}
	decide := weirCaller(redisstore.New(recorded, redisstore.Options{}), []*limiter.Quota{q})()
	commands := make(map[string][]any, c.keys)
	for i := range c.keys {
		sent = nil
		if _, err := decide(context.Background(), peers.Key(i)); err != nil || sent == nil {
			return nil, errors.Join(errors.New("weir sent no EVALSHA"), err)
		}
		commands[peers.Key(i)] = sent
	}
	client := c.client()
	return shared(func(ctx context.Context, key string) (bool, error) {
		return true, client.Do(ctx, commands[key]...).Err()
	}), nil
}

func openPing(c *environment) (func() call, error) {
	client := c.client()
	return shared(func(ctx context.Context, _ string) (bool, error) { return true, client.Ping(ctx).Err() }), nil
}

func openEvalSHA(c *environment) (func() call, error) {
	client := c.client()
	hash, err := client.ScriptLoad(context.Background(), "return 1").Result()
	return shared(func(ctx context.Context, key string) (bool, error) {
		n, err := client.EvalSha(ctx, hash, []string{key}).Int()
		return n == 1, err
	}), err
}
