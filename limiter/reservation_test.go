package limiter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

// How much of a limit is used by callers that reserve what a call of a language model may cost
// at most, and settle what it did: a simulation.

// A completion is a call that comes at a time in microseconds and uses some of what it may.
type completion struct{ at, used, most int64 }

const (
	modelSeed   = 16
	modelMedian = 0.12 // of max_tokens
	modelSigma  = 0.8
	modelSpan   = 30 * time.Minute
)

// completions come at twice the limit, at random: each may use a 25th of it.
func completions(l limiter.Limit) (all []completion) {
	random := rand.New(rand.NewPCG(modelSeed, 0))
	most := l.Events / 25
	mean := 0.0 // of what they use
	use := func() int64 {
		share := math.Min(1, modelMedian*math.Exp(modelSigma*random.NormFloat64()))
		return max(1, int64(share*float64(most)))
	}
	const sample = 10_000
	for range sample {
		mean += float64(use()) / sample
	}
	every := float64(l.Per.Microseconds()) * mean / float64(2*l.Events)
	at := 1.7e15
	for end := at + float64(modelSpan.Microseconds()); at < end; at += random.ExpFloat64() * every {
		all = append(all, completion{int64(at), use(), most})
	}
	return all
}

// admits is how much is used of what a limiter admits that is told of each completion what to
// reserve, and of those that it admits what they used, when they have lasted so long.
func admits(q *limiter.Quota, all []completion, lasting time.Duration, reserve func(completion) int64) (used int64) {
	var s limiter.State
	type flight struct {
		completion
		reserved int64
	}
	var flying []flight
	for _, r := range all {
		for len(flying) > 0 && flying[0].at+lasting.Microseconds() <= r.at {
			f := flying[0]
			flying = flying[1:]
			s = q.Settle(s, f.at+lasting.Microseconds(), returned(f.reserved-f.used, f.at))
		}
		reserved := reserve(r)
		after, ok := q.Take(s, r.at, reserved)
		if !ok {
			continue
		}
		s = after
		flying = append(flying, flight{r, reserved})
		used += r.used
	}
	return used
}

func everything(r completion) int64  { return r.most }
func clairvoyant(r completion) int64 { return r.used }

// modelLimit is 100,000 tokens a minute, or what a log can hold.
func modelLimit(a limiter.Algorithm) limiter.Limit {
	if a == limiter.SlidingLog {
		return limiter.PerMinute(10_000).With(a)
	}
	return limiter.PerMinute(100_000).With(a)
}

func settling(t *testing.T, a limiter.Algorithm) *limiter.Quota {
	q := mustQuota(t, modelLimit(a))
	q.Settles = true
	return q
}

var lastings = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}

// The table in docs/algorithms.md. WEIR_UPDATE=1 go test -run Table ./limiter writes it again.
func TestTheTableOfReservationsIsWhatIsAdmitted(t *testing.T) {
	of := func(part, whole int64) string { return fmt.Sprintf("%d%%", (100*part+whole/2)/whole) }
	table := "| an answer takes | token bucket | fixed window | sliding counter | sliding log |\n|---|---|---|---|---|\n"
	for _, lasting := range lastings {
		table += fmt.Sprint("| ", lasting)
		for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingLog} {
			q := settling(t, a)
			all := completions(q.Limit())
			table += " | " + of(admits(q, all, lasting, everything), admits(q, all, 0, clairvoyant))
		}
		table += " |\n"
	}
	const name, begin, end = "../docs/algorithms.md", "<!-- reservations -->\n", "<!-- end -->"
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	got, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if os.Getenv("WEIR_UPDATE") != "" {
		require.NoError(t, os.WriteFile(name, []byte(before+begin+table+end+after), 0o644))
		got = table
	}
	assert.Equal(t, table, got)
}
