package redis

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/go-redis/redis_rate/v10"
	"github.com/mennanov/limiters"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/weirgo/weir/benchmarks/peers"
)

// shared is for a Call that needs nothing of its own in a goroutine.
func shared(c call) func() call { return func() call { return c } }

func redisRateLimit() redis_rate.Limit {
	return redis_rate.Limit{Rate: 1, Period: time.Second, Burst: burst}
}

func openRedisRate(c *environment) (func() call, error) {
	return redisRateCaller(redis_rate.NewLimiter(c.client())), nil
}

func openRedisRateAutoPipeline(c *environment) (func() call, error) {
	pipeliner, err := c.client().AutoPipeline()
	if err != nil {
		return nil, err
	}
	return redisRateCaller(redis_rate.NewLimiter(pipeliner)), nil // the client closes its pipeliner
}

func redisRateCaller(limiter *redis_rate.Limiter) func() call {
	limit := redisRateLimit()
	return shared(func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Allow(ctx, key, limit)
		if err != nil {
			return false, err
		}
		return result.Allowed > 0, nil
	})
}

func openUlule(c *environment) (func() call, error) {
	store, err := ululeredis.NewStoreWithOptions(c.client(), ulule.StoreOptions{Prefix: "ulule"})
	if err != nil {
		return nil, err
	}
	limiter := ulule.New(store, ulule.Rate{Period: window, Limit: burst})
	return shared(func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Get(ctx, key)
		return !result.Reached, err
	}), nil
}

func openThrottled(c *environment) (func() call, error) {
	store, err := goredisstore.NewCtx(c.client(), "throttled:")
	if err != nil {
		return nil, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1), MaxBurst: burst - 1})
	if err != nil {
		return nil, err
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}), nil
}

// openHTTPRate calls OnLimit, which decides and sets headers, and is what httprate's
// handler calls. There is no leaner way: the counter on its own decides nothing, and
// Status does not count. The request is made once and the headers go nowhere.
func openHTTPRate(c *environment) (func() call, error) {
	counter := httprateredis.NewCounter(&httprateredis.Config{
		Client:           c.client(),
		PrefixKey:        "httprate",
		FallbackDisabled: true, // so that an error is seen to be one
	})
	limiter := httprate.NewRateLimiter(burst, window,
		httprate.WithLimitCounter(counter),
		httprate.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			w.(*nowhere).err = err
		}))
	return func() call {
		w := &nowhere{Nowhere: peers.Nowhere{Fields: http.Header{}}}
		var request *http.Request
		return func(ctx context.Context, key string) (bool, error) {
			if request == nil || request.Context() != ctx {
				request = new(http.Request).WithContext(ctx)
			}
			w.err = nil
			limited := limiter.OnLimit(w, request, key)
			return !limited, w.err
		}
	}, nil
}

// nowhere keeps the error instead of a response.
type nowhere struct {
	peers.Nowhere
	err error
}

// openRueidis sends redis_rate's script with its arguments, and reads the answer as
// redis_rate does.
func openRueidis(c *environment) (func() call, error) {
	source, err := redisRateScript()
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{c.addr}})
	if err != nil {
		return nil, err
	}
	c.b.Cleanup(client.Close)
	script, limit := rueidis.NewLuaScript(source), redisRateLimit()
	return shared(func(ctx context.Context, key string) (bool, error) {
		answer, err := script.Exec(ctx, client, []string{"rueidis:" + key}, []string{
			strconv.Itoa(limit.Burst), strconv.Itoa(limit.Rate),
			strconv.FormatFloat(limit.Period.Seconds(), 'f', -1, 64), "1",
		}).ToArray()
		if err != nil {
			return false, err
		}
		if len(answer) != 4 {
			return false, errors.New("rueidis: the script did not return four values")
		}
		allowed, err := answer[0].AsInt64()
		_, remainingErr := answer[1].AsInt64()
		_, retryErr := answer[2].AsFloat64()
		_, resetErr := answer[3].AsFloat64()
		return allowed > 0, errors.Join(err, remainingErr, retryErr, resetErr)
	}), nil
}

// redisRateScript is the source that redis_rate sends to a server which does not know it.
func redisRateScript() (string, error) {
	var source string
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }})
	defer client.Close()
	client.AddHook(recorder{func(args []any) error {
		if args[0] == "eval" {
			source = args[1].(string)
		}
		return noScript{}
	}})
	_, err := redis_rate.NewLimiter(client).Allow(context.Background(), "", redisRateLimit())
	if source == "" {
		return "", errors.Join(errors.New("redis_rate sent no script"), err)
	}
	return source, nil
}

// A recorder is a hook of go-redis that hears of commands. With an error they are not sent.
type recorder struct{ heard func(args []any) error }

func (r recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := r.heard(cmd.Args()); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (r recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = r.heard(cmd.Args())
		}
		return next(ctx, cmds)
	}
}

// noScript is what a server says that does not know a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script." }
func (noScript) RedisError()   {}

// mostAtOnce is how many requests of a key may be under way: more than there are callers.
const mostAtOnce = 1000

// enter is what apisix and others do: a sorted set of the requests that are under way, by when
// they began.
var enter = redis.NewScript(`
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

func openSortedSet(c *environment) (func() call, error) {
	client := c.client()
	var requests atomic.Int64
	return shared(func(ctx context.Context, key string) (bool, error) {
		name, request := "set:{"+key+"}", strconv.FormatInt(requests.Add(1), 36)
		entered, err := enter.Run(ctx, client, []string{name}, mostAtOnce, 10_000, request).Int()
		if err != nil || entered == 0 {
			return false, err
		}
		return true, client.ZRem(ctx, name, request).Err()
	}), nil
}

func openMennanov(c *environment) (func() call, error) {
	client := c.client()
	var buffers sync.Map
	var requests atomic.Int64
	return shared(func(ctx context.Context, key string) (bool, error) {
		found, ok := buffers.Load(key)
		if !ok {
			found, _ = buffers.LoadOrStore(key, limiters.NewConcurrentBuffer(limiters.NewLockNoop(),
				limiters.NewConcurrentBufferRedis(client, "mennanov:"+key, 10*time.Second, limiters.NewSystemClock()), mostAtOnce, limiters.NewStdLogger()))
		}
		buffer, request := found.(*limiters.ConcurrentBuffer), strconv.FormatInt(requests.Add(1), 36)
		switch err := buffer.Limit(ctx, request); {
		case errors.Is(err, limiters.ErrLimitExhausted):
			return false, nil
		case err != nil:
			return false, err
		}
		return true, buffer.Done(ctx, request)
	}), nil
}
