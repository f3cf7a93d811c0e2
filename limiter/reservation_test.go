package limiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
func completions(l Limit) (all []completion) {
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

// meanUse is the mean of used over most.
func meanUse(all []completion) float64 {
	used, most := 0.0, 0.0
	for _, r := range all {
		used, most = used+float64(r.used), most+float64(r.most)
	}
	return used / most
}

// admits is how much is used of what a limiter admits that is told of each completion what to
// reserve, and of those that it admits what they used, when they have lasted so long.
func admits(q *Quota, all []completion, lasting time.Duration, reserve func(completion) int64) (used int64) {
	var s State
	type flight struct {
		completion
		reserved int64
	}
	var flying []flight
	for _, r := range all {
		for len(flying) > 0 && flying[0].at+lasting.Microseconds() <= r.at {
			f := flying[0]
			flying = flying[1:]
			s = q.Refund(s, f.at+lasting.Microseconds(), f.reserved-f.used, f.at)
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
func modelLimit(a Algorithm) Limit {
	if a == SlidingLog {
		return PerMinute(10_000).With(a)
	}
	return PerMinute(100_000).With(a)
}

func settling(t *testing.T, a Algorithm) *Quota {
	q := mustQuota(t, modelLimit(a))
	q.Settles = true
	return q
}

// exactly is what a limiter admits that remembers every event, and decides each time on all of
// them anew: what is settled by then with what was used, and all else with what was reserved.
func exactly(q *Quota, all []completion, lasting time.Duration) (used int64) {
	var events []completion
	level, last := int64(0), int64(0) // of a bucket before the first of events
	per := q.limit.Per.Microseconds()
	for _, r := range all {
		known := func(e completion) int64 {
			if e.at+lasting.Microseconds() <= r.at {
				return e.used
			}
			return e.most
		}
		room := q.capacity
		switch q.Algorithm() {
		case TokenBucket, LeakyBucket:
			add := func(e completion) {
				level = max(0, level-(e.at-last)*q.refill) + known(e)*q.unit
				last = e.at
			}
			for len(events) > 0 && known(events[0]) == events[0].used {
				add(events[0])
				events = events[1:]
			}
			settled, since := level, last
			for _, e := range events {
				add(e)
			}
			room -= divUp(max(0, level-(r.at-last)*q.refill), q.unit)
			level, last = settled, since
		default:
			now, before := int64(0), int64(0)
			for i := len(events) - 1; i >= 0 && events[i].at > r.at-2*per; i-- {
				switch e := events[i]; {
				case q.Algorithm() == SlidingLog && e.at > r.at-per:
					now += known(e)
				case q.Algorithm() == SlidingLog:
				case e.at/per == r.at/per:
					now += known(e)
				case e.at/per == r.at/per-1 && q.Algorithm() == SlidingCounter:
					before += known(e)
				}
			}
			room -= now + before*(per-r.at%per)/per
		}
		if room >= r.most {
			events = append(events, r)
			used += r.used
		}
	}
	return used
}

var lastings = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}

func TestReservingUpperBoundsUsesWhatCanBeUsed(t *testing.T) {
	for a := TokenBucket; int(a) < len(algorithms); a++ {
		if a == LeakyBucket { // later events have their turns, by what was reserved
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			q := settling(t, a)
			all := completions(q.limit)
			most := admits(q, all, 0, clairvoyant)
			require.Greater(t, most*100/30, 97*q.limit.Events, "they come at twice the limit")
			for i, lasting := range lastings {
				used := admits(q, all, lasting, everything)
				exact := exactly(q, all, lasting)
				if i == 0 {
					assert.GreaterOrEqual(t, 100*used/most, int64(90), "%% of what is admitted where it is known beforehand")
				}
				assert.GreaterOrEqual(t, 100*used/exact, int64(90), "%% of what an exact reservation admits, %v", lasting)
				assert.GreaterOrEqual(t, float64(used), 0.9*float64(most)/(1+lasting.Minutes()/meanUse(all)), "%v", lasting)
			}
		})
	}
}

// The table in docs/algorithms.md. WEIR_UPDATE=1 go test -run Table ./limiter writes it again.
func TestTheTableOfReservationsIsWhatIsAdmitted(t *testing.T) {
	of := func(part, whole int64) string { return fmt.Sprintf("%d%%", (100*part+whole/2)/whole) }
	table := "| an answer takes | token bucket | fixed window | sliding counter | sliding log |\n|---|---|---|---|---|\n"
	for _, lasting := range lastings {
		table += fmt.Sprint("| ", lasting)
		for _, a := range []Algorithm{TokenBucket, FixedWindow, SlidingCounter, SlidingLog} {
			q := settling(t, a)
			all := completions(q.limit)
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

func TestOfRequestsAtOnceNoMoreThanTheLimitIsUsed(t *testing.T) {
	// Five at once, on a limit of 100, that may use 58 to 175 tokens.
	estimates := []int64{58, 92, 131, 175, 71}
	for a := TokenBucket; int(a) < len(algorithms); a++ {
		onEveryStore(t, func(t *testing.T, store Store) {
			limit := PerHour(100).With(a)
			if a == LeakyBucket {
				limit = limit.WithBurst(99)
			}
			l := Must(New(Config{Name: "tokens", Limit: limit, Settles: true, Store: store}))
			var used atomic.Int64
			var calls sync.WaitGroup
			for _, estimate := range estimates {
				calls.Go(func() {
					hold, d, err := l.Reserve(t.Context(), "key", estimate)
					if err != nil || !d.Allowed {
						return
					}
					time.Sleep(500 * time.Millisecond)
					used.Add(min(estimate, 100))
					_ = hold.Settle(min(estimate, 100))
				})
			}
			calls.Wait()
			assert.LessOrEqual(t, used.Load(), int64(100))
			assert.Positive(t, used.Load())

			// One that uses more than the limit has no upper bound; the next wait for the rest.
			require.NoError(t, l.Reset(t.Context(), "key"))
			hold, d, err := l.Reserve(t.Context(), "key", 175)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.NoError(t, hold.Settle(175))
			d, err = l.Peek(t.Context(), "key", 100)
			require.NoError(t, err)
			assert.Greater(t, d.RetryAfter, time.Hour, "%v", a)
		})
	}
}
