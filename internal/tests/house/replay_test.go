package house_test

import (
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echo4 "github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/adapters/echo5limit"
	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/internal/traffic"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A model says what a limit admits, as slowly and as plainly as it can be said. Times
// are microseconds since 1970.
type model interface {
	// free is how many events of a client could pass at t.
	free(client string, t int64) int64

	// take notes an event that passes at t, and returns how long it has to wait.
	take(client string, t int64) (delay int64)
}

// logModel keeps the time of every event, and counts those in the past period.
type logModel struct {
	events, per int64
	log         map[string][]int64
}

func (m *logModel) free(client string, t int64) int64 {
	left := m.events
	for _, event := range m.log[client] {
		if event+m.per > t {
			left--
		}
	}
	return left
}

func (m *logModel) take(client string, t int64) int64 {
	m.log[client] = append(m.log[client], t)
	return 0
}

// windowModel counts the events of every window there ever was. The window before
// counts for as much of it as the last period overlaps, in whole units.
type windowModel struct {
	events, per int64
	slides      bool
	counts      map[string]map[int64]int64 // by client and window
}

func (m *windowModel) free(client string, t int64) int64 {
	window := t / m.per
	left := m.events - m.counts[client][window]
	if m.slides {
		overlap := big.NewRat(m.per-t%m.per, m.per)
		left -= floor(overlap.Mul(overlap, big.NewRat(m.counts[client][window-1], 1)))
	}
	return max(0, left)
}

func (m *windowModel) take(client string, t int64) int64 {
	if m.counts[client] == nil {
		m.counts[client] = map[int64]int64{}
	}
	m.counts[client][t/m.per]++
	return 0
}

// bucketModel has fractions of tokens in buckets.
type bucketModel struct {
	events, per, burst int64
	buckets            map[string]bucket
}

type bucket struct {
	tokens *big.Rat
	at     int64
}

func (m *bucketModel) tokens(client string, t int64) *big.Rat {
	full := big.NewRat(m.burst, 1)
	b, ok := m.buckets[client]
	if !ok {
		return full
	}
	tokens := big.NewRat((t-b.at)*m.events, m.per)
	if tokens.Add(tokens, b.tokens); tokens.Cmp(full) > 0 {
		return full
	}
	return tokens
}

func (m *bucketModel) free(client string, t int64) int64 { return floor(m.tokens(client, t)) }

func (m *bucketModel) take(client string, t int64) int64 {
	tokens := m.tokens(client, t)
	m.buckets[client] = bucket{tokens.Sub(tokens, big.NewRat(1, 1)), t}
	return 0
}

// queueModel knows when the last event in the queue leaves it. The next one leaves an
// interval later, and must not have more than burst intervals to wait.
type queueModel struct {
	interval, burst int64
	lastLeaves      map[string]int64
}

func (m *queueModel) wait(client string, t int64) int64 {
	last, ok := m.lastLeaves[client]
	if !ok {
		return 0
	}
	return max(0, last+m.interval-t)
}

func (m *queueModel) free(client string, t int64) (n int64) {
	for wait := m.wait(client, t); wait <= m.burst*m.interval; wait += m.interval {
		n++
	}
	return n
}

func (m *queueModel) take(client string, t int64) int64 {
	wait := m.wait(client, t)
	m.lastLeaves[client] = t + wait
	return wait
}

func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func newModel(l limiter.Limit) model {
	per, algorithm := l.Per.Microseconds(), l.Algorithm
	if algorithm == limiter.SlidingWindow {
		algorithm = limiter.SlidingCounter
		if l.Events <= 10 {
			algorithm = limiter.SlidingLog
		}
	}
	switch algorithm {
	case limiter.SlidingLog:
		return &logModel{l.Events, per, map[string][]int64{}}
	case limiter.FixedWindow, limiter.SlidingCounter:
		return &windowModel{l.Events, per, algorithm == limiter.SlidingCounter, map[string]map[int64]int64{}}
	case limiter.TokenBucket:
		return &bucketModel{l.Events, per, l.Burst, map[string]bucket{}}
	default:
		return &queueModel{per / l.Events, l.Burst, map[string]int64{}}
	}
}

// routers serve everything with one handler behind a limit.
var routers = map[string]func(*middleware.RateLimit, http.HandlerFunc) http.Handler{
	"nethttp": func(limits *middleware.RateLimit, handler http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("/", handler)
		return limits.Handler(mux)
	},
	"chi": func(limits *middleware.RateLimit, handler http.HandlerFunc) http.Handler {
		r := chi.NewRouter()
		r.Use(chilimit.New(limits))
		r.HandleFunc("/*", handler)
		return r
	},
	"gin": func(limits *middleware.RateLimit, handler http.HandlerFunc) http.Handler {
		gin.SetMode(gin.TestMode)
		r := gin.New()
		r.Use(ginlimit.New(limits))
		r.Any("/*path", func(c *gin.Context) { handler(c.Writer, c.Request) })
		return r
	},
	"echo": func(limits *middleware.RateLimit, handler http.HandlerFunc) http.Handler {
		e := echo4.New()
		e.Use(echolimit.New(limits))
		e.Any("/*", func(c echo4.Context) error {
			handler(c.Response(), c.Request())
			return nil
		})
		return e
	},
	"echo5": func(limits *middleware.RateLimit, handler http.HandlerFunc) http.Handler {
		e := echo5.New()
		e.Use(echo5limit.New(limits))
		e.Any("/*", func(c *echo5.Context) error {
			handler(c.Response(), c.Request())
			return nil
		})
		return e
	},
}

// Requests at their own times: what is decided is what the models say. A router adds nothing to
// it, so that one algorithm with a wait and one without are enough for each.
func TestTrafficIsLimitedAsTheModelsSay(t *testing.T) {
	requests := traffic.Generate(1, 10_000)
	perIP := func(router string, most int, limits ...limiter.Limit) {
		t.Run(fmt.Sprint(router, limits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replay(t, requests[:most], routers[router], limits) })
		})
	}
	queue := limiter.Limit{Events: 1, Per: 9 * time.Second, Burst: 2, Algorithm: limiter.LeakyBucket}
	few := limiter.Limit{Events: 3, Per: 20 * time.Second}
	for _, algorithm := range []limiter.Algorithm{limiter.SlidingWindow, limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingCounter} {
		perIP("nethttp", len(requests), few.With(algorithm))
	}
	perIP("nethttp", len(requests), queue)
	perIP("nethttp", len(requests), limiter.Limit{Events: 3, Per: 40 * time.Second, Burst: 4, Algorithm: limiter.TokenBucket})
	for router := range routers {
		perIP(router, 2_000, queue)
		perIP(router, 2_000, few)
	}

	// A limit for all clients and one for each client: both are taken, or neither.
	perIP("nethttp", len(requests), limiter.PerMinute(60), few.With(limiter.SlidingLog))
	perIP("nethttp", len(requests), limiter.Limit{Events: 1, Per: time.Second, Burst: 10, Algorithm: limiter.TokenBucket}, limiter.PerHour(5).With(limiter.FixedWindow))
	perIP("nethttp", len(requests), limiter.PerHour(100), limiter.PerDay(10))
}

// replay runs in a bubble, where time is that of the requests. The last limit is for
// each client, those before it for all.
func replay(t *testing.T, requests []traffic.Request, router func(*middleware.RateLimit, http.HandlerFunc) http.Handler, limits []limiter.Limit) {
	time.Sleep(time.Until(requests[0].Time())) // before there is a store: it lives 17 years
	var rules []middleware.Rule
	var models []model
	for i, limit := range limits {
		rule := middleware.Rule{Name: strconv.Itoa(i), Key: keyfunc.Global, Limit: limit}
		if i == len(limits)-1 {
			rule.Key = keyfunc.IP()
		}
		rules, models = append(rules, rule), append(models, newModel(limit))
	}
	var handled atomic.Int64
	handler := router(middleware.Must(middleware.New(middleware.Config{Rules: rules})),
		func(w http.ResponseWriter, _ *http.Request) {
			handled.Add(1)
			w.WriteHeader(http.StatusNoContent)
		})

	passed, refused := 0, 0
	var waiting sync.WaitGroup
	for i, entry := range requests {
		time.Sleep(time.Until(entry.Time()))
		now := time.Now().UnixMicro()
		clients := slices.Repeat([]string{"all"}, len(models))
		clients[len(models)-1] = entry.Client

		// What the models say.
		free := make([]int64, len(models))
		allowed := true
		for m, model := range models {
			free[m] = model.free(clients[m], now)
			allowed = allowed && free[m] > 0
		}
		var delay int64
		if allowed {
			for m, model := range models {
				delay = max(delay, model.take(clients[m], now))
				free[m] = model.free(clients[m], now)
			}
		}
		at := func(seconds int) bool { // whether it would pass then
			for m, model := range models {
				if model.free(clients[m], now+int64(seconds)*1_000_000) < 1 {
					return false
				}
			}
			return true
		}

		// What Weir says. A request that has to wait does so in its own goroutine.
		w := httptest.NewRecorder()
		r := httptest.NewRequest(entry.Method, entry.Target, nil)
		r.RemoteAddr = net.JoinHostPort(entry.Client, "4711")
		r.Header.Set("User-Agent", entry.UserAgent)
		waiting.Go(func() {
			handler.ServeHTTP(w, r)
			if waited := time.Now().UnixMicro() - now; waited != delay {
				t.Errorf("request %d of %s waited %d us, want %d", i, entry.Client, waited, delay)
			}
			if got, want := w.Header().Get("X-RateLimit-Remaining"), strconv.FormatInt(slices.Min(free), 10); got != want {
				t.Errorf("request %d of %s at %v: %s remain, want %s", i, entry.Client, entry.Time(), got, want)
			}
		})
		synctest.Wait()

		if delay == 0 && allowed != (w.Code != http.StatusTooManyRequests) {
			t.Fatalf("request %d of %s at %v: status %d, allowed should be %t", i, entry.Client, entry.Time(), w.Code, allowed)
		}
		if t.Failed() {
			t.FailNow() // not ten thousand times
		}
		if allowed {
			passed++
			continue
		}
		refused++
		retry, err := strconv.Atoi(w.Header().Get("Retry-After"))
		require.NoError(t, err)
		if !at(retry) || at(retry-1) {
			t.Fatalf("request %d of %s at %v: Retry-After is %d: it should be the first second to pass", i, entry.Client, entry.Time(), retry)
		}
	}
	waiting.Wait()
	t.Logf("%d passed, %d were refused", passed, refused)
	require.LessOrEqual(t, handled.Load(), int64(passed), "a refused request is not handled")
	require.Greater(t, passed, len(requests)/10, "a good part passes")
	require.Greater(t, refused, len(requests)/10, "a good part is refused")
}
