package sloglimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/sloglimit"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

// A log is the records written so far.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns the records since the last time.
func (l *log) take(t *testing.T) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var records []map[string]any
	for line := range strings.Lines(l.text.String()) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		records = append(records, record)
	}
	l.text.Reset()
	return records
}

// logging is a limiter with those rules whose refusals are in the log.
func logging(t *testing.T, o sloglimit.Options, c middleware.Config) (http.Handler, *sloglimit.Logger, *log) {
	written := &log{}
	o.Logger = slog.New(slog.NewJSONHandler(written, nil))
	refusals := sloglimit.Must(sloglimit.New(o))
	c.Observer = refusals
	l := middleware.Must(middleware.New(c))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(http.ResponseWriter, *http.Request) {})
	return l.Handler(mux), refusals, written
}

func ask(h http.Handler, key string) int {
	r := httptest.NewRequest(http.MethodGet, "/items/7", nil)
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// byKey lets one request an hour pass, whenever the hour begins.
var byKey = middleware.Rule{Name: "key", Key: keyfunc.APIKey("X-Api-Key"), Limit: limiter.PerHour(1).With(limiter.SlidingLog), Match: middleware.Route("/items/{id}")}

func TestABurstIsOneRecordAtOnceAndOneForEachInterval(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h, _, written := logging(t, sloglimit.Options{}, middleware.Config{Rules: []middleware.Rule{byKey}})
		ask(h, "carla")
		assert.Empty(t, written.take(t), "she passed")

		for range 100 {
			require.Equal(t, http.StatusTooManyRequests, ask(h, "carla"))
		}
		records := written.take(t)
		require.Len(t, records, 1)
		r := records[0]
		assert.Equal(t, "INFO", r["level"])
		assert.Equal(t, "weir-refused", r["code"])
		assert.Equal(t, "key", r["rule"])
		assert.Equal(t, "1/1h sliding-log", r["limit"])
		assert.Equal(t, "GET /items/{id}", r["route"])
		assert.Equal(t, 1.0, r["requests"])
		assert.Positive(t, r["retry_after"])
		key := r["key"]
		assert.Len(t, key, keyfunc.DigestSize)
		assert.NotContains(t, r, "tier")

		time.Sleep(time.Minute + time.Millisecond)
		synctest.Wait()
		records = written.take(t)
		require.Len(t, records, 1)
		assert.Equal(t, 99.0, records[0]["requests"])
		assert.Equal(t, key, records[0]["key"])

		ask(h, "carla")
		assert.Empty(t, written.take(t), "it is still the same burst")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, written.take(t), 1)

		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, written.take(t), "nothing was refused, so the burst is over")
		ask(h, "carla")
		require.Len(t, written.take(t), 1, "the next one begins at once")
		time.Sleep(time.Hour)
	})
}

func TestNoKeyIsLoggedUnlessAskedFor(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		const secret = "sk_live_0123456789"
		h, refusals, written := logging(t, sloglimit.Options{}, middleware.Config{Rules: []middleware.Rule{byKey}})
		ask(h, secret)
		ask(h, secret)
		assert.NotContains(t, written.text.String(), secret)
		assert.NotContains(t, written.text.String(), "192.0.2.1")
		first := written.take(t)[0]["key"]
		refusals.Flush()

		under := []byte("0123456789abcdef")
		h, refusals, written = logging(t, sloglimit.Options{Secret: under}, middleware.Config{Rules: []middleware.Rule{byKey}})
		ask(h, secret)
		ask(h, secret)
		key, err := byKey.Key(&http.Request{Header: http.Header{"X-Api-Key": {secret}}})
		require.NoError(t, err)
		second := written.take(t)[0]["key"]
		assert.Equal(t, keyfunc.NewDigester(under).Digest(key).String(), second, "as in every process with the secret")
		assert.NotEqual(t, first, second)
		refusals.Flush()

		h, refusals, written = logging(t, sloglimit.Options{ShowKeys: true}, middleware.Config{Rules: []middleware.Rule{byKey}})
		for _, key := range []string{secret, strings.Repeat("x", 10_000)} {
			ask(h, key)
			ask(h, key)
		}
		records := written.take(t)
		assert.Contains(t, records[0]["key"], secret)
		assert.Len(t, records[1]["key"], 128)
		refusals.Flush()
	})
}

func TestBeyondMaxKeysRefusalsAreLoggedByRule(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h, _, written := logging(t, sloglimit.Options{MaxKeys: 3}, middleware.Config{Rules: []middleware.Rule{byKey}})
		for i := range 100 {
			ask(h, fmt.Sprint(i))
			ask(h, fmt.Sprint(i))
		}
		records := written.take(t)
		require.Len(t, records, 4, "three keys, and the others")
		assert.NotContains(t, records[3], "key")
		assert.Contains(t, records[3]["msg"], "more keys")
		time.Sleep(time.Minute)
		synctest.Wait()
		records = written.take(t)
		require.Len(t, records, 1)
		assert.Equal(t, 96.0, records[0]["requests"])

		time.Sleep(2 * time.Minute) // the keys are forgotten
		synctest.Wait()
		ask(h, "77")
		assert.Contains(t, written.take(t)[0], "key", "there is room again")
		time.Sleep(time.Hour)
	})
}

func TestEveryRuleThatRefusedIsNamedAndNoneInShadow(t *testing.T) {
	h, refusals, written := logging(t, sloglimit.Options{}, middleware.Config{Rules: []middleware.Rule{
		byKey, {Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(1).With(limiter.SlidingLog)}, {Name: "new", Key: keyfunc.Global, Limit: limiter.PerHour(1).With(limiter.SlidingLog), Mode: middleware.Shadow},
		{Name: "wide", Key: keyfunc.Global, Limit: limiter.PerHour(100)},
	}})
	defer refusals.Flush()
	ask(h, "carla")
	ask(h, "carla")
	records := written.take(t)
	require.Len(t, records, 2)
	assert.Equal(t, "key", records[0]["rule"])
	assert.Equal(t, "all", records[1]["rule"])
	assert.NotContains(t, records[1], "key", "it has none")
}

func TestARefusalSaysThatItIsForHowManyAtOnce(t *testing.T) {
	_, refusals, written := logging(t, sloglimit.Options{}, middleware.Config{Rules: []middleware.Rule{byKey}})
	defer refusals.Flush()
	rule := middleware.Rule{Name: "exports", Key: byKey.Key, Limit: limiter.All(limiter.PerHour(100), limiter.AtOnce(1))}
	l := middleware.Must(middleware.New(middleware.Config{Observer: refusals, Rules: []middleware.Rule{rule}}))
	var h http.Handler
	h = l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		assert.Equal(t, http.StatusTooManyRequests, ask(h, "carla"))
	}))
	ask(h, "carla")
	records := written.take(t)
	require.Len(t, records, 1)
	assert.Equal(t, "weir-refused", records[0]["code"])
	assert.Equal(t, "1 at once", records[0]["limit"])
}

func TestBansAndMissingKeysAreTold(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bans.Must(bans.New(bans.Options{}))
		rule := byKey
		rule.NoKey = middleware.NoKeyUnauthorized
		h, refusals, written := logging(t, sloglimit.Options{}, middleware.Config{
			Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.APIKey("X-Api-Key")}}, Rules: []middleware.Rule{rule},
		})
		key, err := keyfunc.APIKey("X-Api-Key")(&http.Request{Header: http.Header{"X-Api-Key": {"mallory"}}})
		require.NoError(t, err)
		_, err = list.Escalate(context.Background(), key, "login", bans.Escalation{Ban: time.Hour, Factor: 2, Max: 24 * time.Hour})
		require.NoError(t, err)
		require.NoError(t, list.Ban(context.Background(), "other", 0))
		require.Equal(t, http.StatusForbidden, ask(h, "mallory"))
		require.Equal(t, http.StatusUnauthorized, ask(h, ""))
		records := written.take(t)
		require.Len(t, records, 2)
		assert.Equal(t, "weir-banned", records[0]["code"])
		assert.Equal(t, "login", records[0]["rule"])
		assert.EqualValues(t, 3600, records[0]["retry_after"], "seconds")
		assert.Equal(t, "weir-no-key", records[1]["code"])
		refusals.Flush()
	})
}

func TestFlushTellsWhatIsPendingAndStopsTheTimer(t *testing.T) {
	h, refusals, written := logging(t, sloglimit.Options{}, middleware.Config{Rules: []middleware.Rule{byKey}})
	refusals.Flush()
	for range 5 {
		ask(h, "carla")
	}
	written.take(t)
	refusals.Flush()
	records := written.take(t)
	require.Len(t, records, 1)
	assert.Equal(t, 3.0, records[0]["requests"])
	refusals.Flush()
	assert.Empty(t, written.take(t))
}

func TestNoRefusalIsLostAmongMany(t *testing.T) {
	h, refusals, written := logging(t, sloglimit.Options{MaxKeys: 5}, middleware.Config{Rules: []middleware.Rule{byKey}})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				ask(h, fmt.Sprint((g+i)%10))
				if i%100 == 0 {
					refusals.Flush()
				}
			}
		})
	}
	all.Wait()
	refusals.Flush()
	refused := 0.0
	for _, r := range written.take(t) {
		refused += r["requests"].(float64)
	}
	assert.Equal(t, 8*500.0-10, refused)
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := sloglimit.New(sloglimit.Options{Interval: time.Millisecond, MaxKeys: -1, Secret: []byte("short")})
	require.Error(t, err)
	for _, text := range []string{"Interval is 1ms", "MaxKeys is -1", "Secret has 5 bytes"} {
		assert.ErrorContains(t, err, text)
	}
	assert.Panics(t, func() { sloglimit.Must(sloglimit.New(sloglimit.Options{MaxKeys: -1})) })
}

func TestWhatPassesCostsNoAllocation(t *testing.T) {
	refusals := sloglimit.Must(sloglimit.New(sloglimit.Options{}))
	o := &middleware.Observation{Outcome: middleware.OutcomeAllowed}
	assert.Zero(t, testing.AllocsPerRun(100, func() { refusals.Observe(o) }))
}

// A refusal that is not logged is what an attack costs.
func BenchmarkRefusal(b *testing.B) {
	refusals := sloglimit.Must(sloglimit.New(sloglimit.Options{Logger: slog.New(slog.DiscardHandler)}))
	o := &middleware.Observation{
		Request: httptest.NewRequest(http.MethodGet, "/", nil), Outcome: middleware.OutcomeRefused,
		Rules: []middleware.RuleResult{{Rule: &middleware.RuleInfo{Name: "ip", Limit: limiter.PerHour(1)}, Key: "192.0.2.1", Cost: 1, Decision: limiter.Decision{}}},
	}
	b.ReportAllocs()
	for b.Loop() {
		refusals.Observe(o)
	}
	refusals.Flush()
}
