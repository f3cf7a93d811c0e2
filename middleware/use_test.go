package middleware_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/race"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// What a rule reserves of what a request may cost, at most mostTokens.
type reservation string

const (
	upperBound reservation = "max_tokens"
	mean       reservation = "the mean"
	nothing    reservation = "nothing (Afterwards)"
)

const (
	mostTokens = 1000
	meanTokens = 165 // of tokens
)

// drawTokens draws what a request really costs: lognormal, with a median of 12% of the most and
// a sigma of 0.8.
func drawTokens(random *rand.Rand) int64 {
	return min(mostTokens, max(1, int64(0.12*mostTokens*math.Exp(0.8*random.NormFloat64()))))
}

// A use is what becomes of a limit, in parts of it: what was used per period, and the most
// that was within a period, counted when the answers began.
type use struct{ mean, peak float64 }

// useOf sends twice as many requests as the limit has room for, for some periods, each of which
// is answered after that time.
func useOf(t *testing.T, limit limiter.Limit, reserves reservation, answered time.Duration) (u use) {
	synctest.Test(t, func(t *testing.T) {
		rule := middleware.Rule{Name: "tokens", Key: keyfunc.Global, Limit: limit, Cost: middleware.Reserve(func(r *http.Request) int64 {
			if reserves == mean {
				return meanTokens
			}
			return mostTokens
		}), Counts: afterwards(middleware.Counts{}, reserves == nothing)}
		type admission struct {
			at     time.Time
			tokens int64
		}
		var mu sync.Mutex
		var admitted []admission
		h := limited(t, middleware.Config{Rules: []middleware.Rule{rule}}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			n, _ := strconv.ParseInt(r.Header.Get("X-Tokens"), 10, 64)
			mu.Lock()
			admitted = append(admitted, admission{time.Now(), n})
			mu.Unlock()
			time.Sleep(answered)
			assert.NoError(t, middleware.Settle(r.Context(), "tokens", n))
		}))

		const seed, warm, periods = 16, 2, 6
		random := rand.New(rand.NewPCG(seed, seed))
		var requests sync.WaitGroup
		pause := time.Duration(float64(limit.Per) * meanTokens / float64(2*limit.Events))
		began := time.Now()
		for time.Since(began) < (warm+periods)*limit.Per {
			r := request(header("X-Tokens", fmt.Sprint(drawTokens(random))))
			requests.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			time.Sleep(pause)
		}
		requests.Wait()

		var sum, within int64
		from := 0
		for i, a := range admitted {
			within += a.tokens
			for a.at.Sub(admitted[from].at) >= limit.Per {
				within -= admitted[from].tokens
				from++
			}
			if a.at.Sub(began) >= warm*limit.Per {
				sum += admitted[i].tokens
				u.peak = max(u.peak, float64(within)/float64(limit.Events))
			}
		}
		u.mean = float64(sum) / float64(limit.Events*periods)
	})
	return u
}

func TestTheTableOfReservations(t *testing.T) {
	if race.Enabled {
		t.Skip("it takes a minute then, and shows no race that the others do not")
	}
	t.Parallel()
	page, err := os.ReadFile("../docs/costs.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| ([0-9ms.]+) \| (\d+)% \(([\d.]+)\) \| (\d+)% \(([\d.]+)\) \| (\d+)% \(([\d.]+)\) \|$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 6)
	for _, row := range rows {
		answered, err := time.ParseDuration(row[1])
		require.NoError(t, err)
		for i, reserves := range []reservation{upperBound, mean, nothing} {
			u := useOf(t, limiter.PerMinute(100_000), reserves, answered)
			t.Logf("%v, reserved %s: %.0f%% (%.2f)", answered, reserves, 100*u.mean, u.peak)
			percent, _ := strconv.ParseFloat(row[2+2*i], 64)
			peak, _ := strconv.ParseFloat(row[3+2*i], 64)
			assert.InDelta(t, percent, 100*u.mean, 3, "%v, reserved %s", answered, reserves)
			assert.InDelta(t, peak, u.peak, 0.05, "%v, reserved %s", answered, reserves)
		}
	}
}
