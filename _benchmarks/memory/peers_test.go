package memory

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/mennanov/limiters"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weirgo/weir/benchmarks/peers"
)

// shared is for a call that needs nothing of its own in a goroutine.
func shared(c call) func() call { return func() call { return c } }

func openGoLimiter(b *testing.B, q quota, _ int) func() call {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.Burst), Interval: peers.Window})
	if err != nil {
		b.Fatal(err)
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok, err
	})
}

// openHTTPRate calls OnLimit, the leanest call that both decides and counts. It formats fields.
func openHTTPRate(_ *testing.B, q quota, _ int) func() call {
	l := httprate.NewRateLimiter(int(q.Burst), peers.Window)
	return func() call {
		w, r := &peers.Nowhere{Fields: http.Header{}}, new(http.Request)
		return func(_ context.Context, key string) (bool, error) { return !l.OnLimit(w, r, key), nil }
	}
}

func openUlule(_ *testing.B, q quota, _ int) func() call {
	l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: peers.Window, Limit: q.Burst})
	return shared(func(ctx context.Context, key string) (bool, error) {
		result, err := l.Get(ctx, key)
		return !result.Reached, err
	})
}

func openThrottled(b *testing.B, q quota, _ int) func() call {
	store, err := memstore.NewCtx(0)
	if err != nil {
		b.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(1, q.Every), MaxBurst: int(q.Burst) - 1})
	if err != nil {
		b.Fatal(err)
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited, err
	})
}

func openTollbooth(_ *testing.B, q quota, _ int) func() call {
	l := tollbooth.NewLimiter(perSecond(q), &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: peers.Window}).SetBurst(int(q.Burst))
	return shared(func(_ context.Context, key string) (bool, error) { return !l.LimitReached(key), nil })
}

func openMennanov(_ *testing.B, q quota, _ int) func() call {
	registry, clock, logger := limiters.NewRegistry(), limiters.NewSystemClock(), limiters.NewStdLogger()
	bucket := func() any {
		return limiters.NewTokenBucket(q.Burst, q.Every, limiters.NewLockNoop(), limiters.NewTokenBucketInMemory(), clock, logger)
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		_, err := registry.GetOrCreate(key, bucket, peers.Window, clock.Now()).(*limiters.TokenBucket).Limit(ctx)
		if errors.Is(err, limiters.ErrLimitExhausted) {
			return false, nil
		}
		return err == nil, err
	})
}

func openEcho(_ *testing.B, q quota, _ int) func() call {
	store := echomiddleware.NewRateLimiterMemoryStoreWithConfig(echomiddleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(perSecond(q)), Burst: int(q.Burst), ExpiresIn: peers.Window,
	})
	return shared(func(_ context.Context, key string) (bool, error) { return store.Allow(key) })
}

func newBucket(q quota) *rate.Limiter { return rate.NewLimiter(rate.Every(q.Every), int(q.Burst)) }

func openRateRWMutex(_ *testing.B, q quota, _ int) func() call {
	var mu sync.RWMutex
	buckets := map[string]*rate.Limiter{}
	return shared(func(_ context.Context, key string) (bool, error) {
		mu.RLock()
		bucket := buckets[key]
		mu.RUnlock()
		if bucket == nil {
			mu.Lock()
			if bucket = buckets[key]; bucket == nil {
				bucket = newBucket(q)
				buckets[key] = bucket
			}
			mu.Unlock()
		}
		return bucket.Allow(), nil
	})
}

func openRateSyncMap(_ *testing.B, q quota, _ int) func() call {
	var buckets sync.Map
	return shared(func(_ context.Context, key string) (bool, error) {
		bucket, ok := buckets.Load(key)
		if !ok {
			bucket, _ = buckets.LoadOrStore(key, newBucket(q))
		}
		return bucket.(*rate.Limiter).Allow(), nil
	})
}

func perSecond(q quota) float64 { return float64(time.Second) / float64(q.Every) }
