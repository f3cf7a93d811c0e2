package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/mennanov/limiters"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weirgo/weir/benchmarks/race"
)

// shared is for a Call that needs nothing of its own in a goroutine.
func shared(call race.Call) func() race.Call { return func() race.Call { return call } }

func goLimiterStore(s *environment) (golimiter.Store, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.quota.burst), Interval: window})
	if err == nil {
		s.closeLater(func() { _ = store.Close(context.Background()) }) // or its goroutine holds on to it
	}
	return store, err
}

func openGoLimiter(s *environment) (func() race.Call, error) {
	store, err := goLimiterStore(s)
	return shared(func(ctx context.Context, key string) (bool, error) {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok, err
	}), err
}

func wrapGoLimiter(s *environment, next http.Handler) (limited, bare http.Handler, err error) {
	store, err := goLimiterStore(s)
	if err != nil {
		return nil, nil, err
	}
	m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, nil, err
	}
	return m.Handle(next), nil, nil
}

func openHTTPRate(s *environment) (func() race.Call, error) {
	limiter := httprate.NewRateLimiter(int(s.quota.burst), window)
	return func() race.Call {
		w, r := newNowhere(), new(http.Request)
		return func(_ context.Context, key string) (bool, error) {
			return !limiter.OnLimit(w, r, key), nil
		}
	}, nil
}

func wrapHTTPRate(s *environment, next http.Handler) (limited, bare http.Handler, err error) {
	return httprate.LimitBy(int(s.quota.burst), window, func(r *http.Request) (string, error) {
		return httprate.CanonicalizeIP(address(r)), nil
	})(next), nil, nil
}

func ululeLimiter(s *environment) *ulule.Limiter {
	return ulule.New(ululememory.NewStore(), ulule.Rate{Period: window, Limit: s.quota.burst})
}

func openUlule(s *environment) (func() race.Call, error) {
	limiter := ululeLimiter(s)
	return shared(func(ctx context.Context, key string) (bool, error) {
		result, err := limiter.Get(ctx, key)
		return !result.Reached, err
	}), nil
}

func wrapUlule(s *environment, next http.Handler) (limited, bare http.Handler, err error) {
	return ululehttp.NewMiddleware(ululeLimiter(s)).Handler(next), nil, nil
}

func openThrottled(s *environment) (func() race.Call, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(1, s.quota.every), MaxBurst: int(s.quota.burst) - 1,
	})
	return shared(func(ctx context.Context, key string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}), err
}

func tollboothLimiter(s *environment) *tollboothlimiter.Limiter {
	l := tollbooth.NewLimiter(perSecond(s.quota), &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: window})
	return l.SetBurst(int(s.quota.burst)).SetIPLookup(tollboothlimiter.IPLookup{Name: "RemoteAddr"})
}

func openTollbooth(s *environment) (func() race.Call, error) {
	limiter := tollboothLimiter(s)
	return shared(func(_ context.Context, key string) (bool, error) {
		return !limiter.LimitReached(key), nil
	}), nil
}

func wrapTollbooth(s *environment, next http.Handler) (limited, bare http.Handler, err error) {
	return tollbooth.HTTPMiddleware(tollboothLimiter(s))(next), nil, nil
}

func openMennanov(s *environment) (func() race.Call, error) {
	registry, clock, logger := limiters.NewRegistry(), limiters.NewSystemClock(), limiters.NewStdLogger()
	bucket := func() any {
		return limiters.NewTokenBucket(s.quota.burst, s.quota.every, limiters.NewLockNoop(), limiters.NewTokenBucketInMemory(), clock, logger)
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		_, err := registry.GetOrCreate(key, bucket, window, clock.Now()).(*limiters.TokenBucket).Limit(ctx)
		if errors.Is(err, limiters.ErrLimitExhausted) {
			return false, nil
		}
		return err == nil, err
	}), nil
}

func newEchoStore(s *environment) *echomiddleware.RateLimiterMemoryStore {
	return echomiddleware.NewRateLimiterMemoryStoreWithConfig(echomiddleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(perSecond(s.quota)), Burst: int(s.quota.burst), ExpiresIn: window,
	})
}

func openEcho(s *environment) (func() race.Call, error) {
	store := newEchoStore(s)
	return shared(func(_ context.Context, key string) (bool, error) { return store.Allow(key) }), nil
}

func wrapEcho(s *environment, next http.Handler) (limited, bare http.Handler, err error) {
	with := func(m echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.GET("/", echo.WrapHandler(next), m)
		return e
	}
	return with(echomiddleware.RateLimiter(newEchoStore(s))), with(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return next(c) }
	}), nil
}

func newBucket(q quota) *rate.Limiter { return rate.NewLimiter(rate.Every(q.every), int(q.burst)) }

func openRateRWMutex(s *environment) (func() race.Call, error) {
	var mu sync.RWMutex
	buckets := map[string]*rate.Limiter{}
	return shared(func(_ context.Context, key string) (bool, error) {
		mu.RLock()
		bucket := buckets[key]
		mu.RUnlock()
		if bucket == nil {
			mu.Lock()
			if bucket = buckets[key]; bucket == nil {
				bucket = newBucket(s.quota)
				buckets[key] = bucket
			}
			mu.Unlock()
		}
		return bucket.Allow(), nil
	}), nil
}

func openRateSyncMap(s *environment) (func() race.Call, error) {
	var buckets sync.Map
	return shared(func(_ context.Context, key string) (bool, error) {
		bucket, ok := buckets.Load(key)
		if !ok {
			bucket, _ = buckets.LoadOrStore(key, newBucket(s.quota))
		}
		return bucket.(*rate.Limiter).Allow(), nil
	}), nil
}

func perSecond(q quota) float64 { return float64(time.Second) / float64(q.every) }
