package limiter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
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

// admits returns how many units are used by the completions that q admits. Each reserves the most that it may
// use, and is settled when it has lasted so long.
func admits(q *limiter.Quota, all []completion, lasting time.Duration) (used int64) {
	var s limiter.State
	var flying []completion
	for _, r := range all {
		for len(flying) > 0 && flying[0].at+lasting.Microseconds() <= r.at {
			f := flying[0]
			flying = flying[1:]
			s = q.Settle(s, f.at+lasting.Microseconds(), returned(f.most-f.used, f.at))
		}
		if after, ok := q.Take(s, r.at, r.most); ok {
			s = after
			flying = append(flying, r)
			used += r.used
		}
	}
	return used
}

// modelLimit is 100,000 tokens a minute, or what a log can hold.
func modelLimit(a limiter.Algorithm) limiter.Limit {
	if a == limiter.SlidingLog {
		return limiter.PerMinute(10_000).With(a)
	}
	return limiter.PerMinute(100_000).With(a)
}

// The table in docs/algorithms.md. WEIR_UPDATE=1 go test -run Table ./limiter writes it again.
func TestTheTableOfReservationsIsWhatIsAdmitted(t *testing.T) {
	of := func(part, whole int64) string { return fmt.Sprintf("%d%%", (100*part+whole/2)/whole) }
	table := "| an answer takes | token bucket | fixed window | sliding counter | sliding log |\n|---|---|---|---|---|\n"
	const second = time.Second
	for _, lasting := range []time.Duration{2 * second, 10 * second, 30 * second} {
		table += fmt.Sprint("| ", lasting)
		for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingLog} {
			q := mustQuota(t, modelLimit(a))
			q.Settles = true
			all := completions(q.Limit())
			known := slices.Clone(all)
			for i := range known {
				known[i].most = known[i].used
			}
			table += " | " + of(admits(q, all, lasting), admits(q, known, 0))
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
