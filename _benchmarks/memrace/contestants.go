package main

import (
	"net/http"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/limiter"
)

// A contestant can take part in those cases that it has something for.
type contestant struct {
	name   string
	module string // its version is told; empty for floors
	about  string

	// open makes an empty limiter, and returns what makes a caller for each goroutine.
	open func(*environment) (func() race.Call, error)

	// wrap puts next behind the middleware. Bare is the same without the limiter: what it
	// takes is not the limiter's. It may be nil.
	wrap func(s *environment, next http.Handler) (limited, bare http.Handler, err error)

	// charges is how many a decision in the case of several rules has.
	charges int
}

// contestants are all of them. To add one, add it here.
var contestants = []contestant{
	{name: weir, module: weirModule, about: "limiter.Limiter, a token bucket; a middleware by address with both families of header fields",
		open: openWeir(limiter.TokenBucket), wrap: wrapWeir, charges: 1},
	{name: "weir-sliding-window", module: weirModule, about: "limiter.Limiter", open: openWeir(limiter.SlidingWindow)},
	{name: "weir-leaky-bucket", module: weirModule, about: "limiter.Limiter", open: openWeir(limiter.LeakyBucket)},
	{name: "weir-fixed-window", module: weirModule, about: "limiter.Limiter", open: openWeir(limiter.FixedWindow)},
	{name: "weir-sliding-log", module: weirModule, about: "limiter.Limiter; one hot key may have 100 events in 10 µs, as logs are for small limits", open: openWeir(limiter.SlidingLog)},
	{name: weirThreeRules, module: weirModule, about: "limiter.Memory, one decision on three token buckets, beside weir's on one", charges: 3},

	{name: goLimiter, module: "github.com/sethvargo/go-limiter", about: "memorystore, Take, a fixed window for each key; httplimit",
		open: openGoLimiter, wrap: wrapGoLimiter},
	{name: "httprate", module: "github.com/go-chi/httprate", about: "local counter, a sliding window, OnLimit: the leanest call that both decides and counts, though it formats header fields; LimitBy the address",
		open: openHTTPRate, wrap: wrapHTTPRate},
	{name: "ulule", module: "github.com/ulule/limiter/v3", about: "memory store, Get, a fixed window; the middleware for net/http",
		open: openUlule, wrap: wrapUlule},
	{name: "throttled", module: "github.com/throttled/throttled/v2", about: "memstore without a bound, RateLimitCtx, GCRA", open: openThrottled},
	{name: "tollbooth", module: "github.com/didip/tollbooth/v8", about: "LimitReached, a token bucket; HTTPMiddleware by the peer's address",
		open: openTollbooth, wrap: wrapTollbooth},
	{name: "mennanov", module: "github.com/mennanov/limiters", about: "a TokenBucket in process for each key in a Registry", open: openMennanov},
	{name: echoStore, module: "github.com/labstack/echo/v4", about: "RateLimiterMemoryStore, Allow, a token bucket; RateLimiter in an Echo, less an Echo with a middleware that does nothing",
		open: openEcho, wrap: wrapEcho},
	{name: "rate+RWMutex", module: "golang.org/x/time", about: "a rate.Limiter for each key, in a map under a sync.RWMutex", open: openRateRWMutex},
	{name: "rate+sync.Map", module: "golang.org/x/time", about: "a rate.Limiter for each key, in a sync.Map", open: openRateSyncMap},

	{name: floor, about: "a floor: reads the clock, hashes the key, and does one compare-and-swap in a table that is large enough from the start", open: openFloor},
}

// Those that goals and tables speak of.
const (
	weir           = "weir"
	weirThreeRules = "weir-3-rules"
	goLimiter      = "go-limiter"
	echoStore      = "echo"
	floor          = "floor"

	weirModule = "github.com/weirgo/weir"
)

func named(name string) (contestant, bool) {
	for _, e := range contestants {
		if e.name == name {
			return e, true
		}
	}
	return contestant{}, false
}

// peer says whether a contestant is another library, or what people write themselves.
func peer(name string) bool {
	e, _ := named(name)
	return e.module != "" && e.module != weirModule
}
