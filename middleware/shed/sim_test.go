package shed

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

// A world is a service and the traffic to it.
type world struct {
	workers int                            // how many requests it works on at once
	service func(*rand.Rand) time.Duration // how long each takes
	mean    time.Duration                  // of that
	high    float64                        // part of the requests of the high tier
	streams int
	load    func(at time.Duration) float64 // arrivals, in parts of the capacity
	seed    uint64
}

// capacity is requests per second.
func (w *world) capacity() float64 { return float64(w.workers) / w.mean.Seconds() }

// good is how late an answer may be, beside its own service time.
const good = 500 * time.Millisecond

// A tally counts the requests that came in a part of the time.
type tally struct{ came, good, late, shed int }

// outcome is by tier, high first, and by second.
type outcome struct{ seconds [][2]tally }

func (o *outcome) sum(from, to int) (t [2]tally) {
	for _, s := range o.seconds[from:min(to, len(o.seconds))] {
		for i := range s {
			t[i].came += s[i].came
			t[i].good += s[i].good
			t[i].late += s[i].late
			t[i].shed += s[i].shed
		}
	}
	return t
}

func tiered(tier string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	return r.WithContext(middleware.WithTier(context.Background(), tier))
}

// run has the traffic come for so long. It is to be called in a bubble.
func (w *world) run(limit middleware.Overload, d time.Duration) (o outcome, cut int) {
	random := rand.New(rand.NewPCG(w.seed, 1))
	o.seconds = make([][2]tally, int(d/time.Second)+1)
	requests := [2]*http.Request{tiered("premium"), tiered("free")}
	workers := make(chan struct{}, w.workers)
	var mu sync.Mutex
	var all sync.WaitGroup
	over := make(chan struct{})
	for range w.streams {
		all.Go(func() {
			p, _ := limit.Admit(requests[1])
			if p == nil {
				mu.Lock()
				cut++
				mu.Unlock()
				return
			}
			p.Streams(false)
			<-over
			p.Leave()
		})
	}
	start := time.Now()
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() / (w.load(at) * w.capacity()) * float64(time.Second))
		if at >= d {
			break
		}
		time.Sleep(at - time.Since(start))
		tier := 1
		if random.Float64() < w.high {
			tier = 0
		}
		service := w.service(random)
		all.Go(func() {
			intended := start.Add(at)
			became := func(n *int) { mu.Lock(); *n++; mu.Unlock() }
			t := &o.seconds[int(at/time.Second)][tier]
			became(&t.came)
			p, _ := limit.Admit(requests[tier])
			if p == nil {
				became(&t.shed)
				return
			}
			workers <- struct{}{}
			time.Sleep(service)
			<-workers
			p.Leave()
			if time.Since(intended) <= service+good {
				became(&t.good)
			} else {
				became(&t.late)
			}
		})
	}
	close(over)
	all.Wait()
	return o, cut
}

type nothing struct{}

func (nothing) Admit(*http.Request) (middleware.Place, time.Duration) { return exempt{}, 0 }

func steady(n float64) func(time.Duration) float64 { return func(time.Duration) float64 { return n } }

func exponential(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
}

func uniform(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return time.Duration((0.5 + r.Float64()) * float64(mean)) }
}

// bimodal is two seconds for a part of the requests, and 10 ms for the others.
func bimodal(part float64) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration {
		if r.Float64() < part {
			return 2 * time.Second
		}
		return 10 * time.Millisecond
	}
}

// A fixed limit refuses what is beyond it.
type fixed chan struct{}

func (f fixed) Admit(*http.Request) (middleware.Place, time.Duration) {
	select {
	case f <- struct{}{}:
		return held(f), 0
	default:
		return nil, time.Second
	}
}

type held chan struct{}

func (held) Streams(bool) {}
func (h held) Leave()     { <-h }

// knowing is a limit that needs to find out nothing.
func knowing(w *world) *Limiter {
	l := premium()
	m := &l.all.meter
	m.limit, m.rate, m.shrunk = float64(w.workers), w.capacity(), true
	m.complete, m.cohort, m.since = true, 1<<30, 1<<60 // its window never ends
	return l
}

func premium() *Limiter { return Must(New(Options{Priority: ByTier("premium")})) }

// The services.
var (
	// quick has 8 connections, and answers in 5 to 15 ms.
	quick = world{workers: 8, service: uniform(10 * time.Millisecond), mean: 10 * time.Millisecond}

	// random has 64, and takes 20 ms on average, exponentially distributed.
	random = world{workers: 64, service: exponential(20 * time.Millisecond), mean: 20 * time.Millisecond}

	// mixed has 32: one request in fifty takes two seconds, the others 10 ms.
	mixed = world{workers: 32, service: bimodal(0.02), mean: 49800 * time.Microsecond}
)

func (w world) with(high, load float64) *world {
	w.high, w.load, w.seed = high, steady(load), 1
	return &w
}

// seconds is how long the traffic comes. All begins with a limiter that knows nothing.
const seconds = 20

func TestGoodputStaysAtItsPeakAndTheHighTierIsServed(t *testing.T) {
	for name, w := range map[string]world{"quick": quick, "random": random, "mixed": mixed} {
		for _, high := range []float64{0.2, 0.5} {
			for _, load := range []float64{0.5, 0.8, 1, 2, 5, 10} {
				if w.capacity()*load > 10_000 || high > 0.2 && load != 1 && load != 2 {
					continue // which would only take long
				}
				t.Run(fmt.Sprintf("%s, high %v, load %v", name, high, load), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := w.with(high, load)
						o, _ := w.run(premium(), seconds*time.Second)
						r := o.sum(0, seconds)
						goodput := float64(r[0].good+r[1].good) / (seconds * w.capacity())
						t.Logf("goodput %.3f of the capacity, high tier %+v, low tier %+v", goodput, r[0], r[1])
						peak := min(1, load)
						if load == 1 { // chance makes queues that make some late, whoever admits them
							k, _ := w.run(knowing(w), seconds*time.Second)
							s := k.sum(0, seconds)
							peak = float64(s[0].good+s[1].good) / (seconds * w.capacity())
						}
						assert.GreaterOrEqual(t, goodput, 0.9*peak)
						if load <= 0.8 {
							assert.Zero(t, r[0].shed+r[1].shed)
						}
						if load <= 2 && (load*high < 1 || name != "mixed") {
							assert.GreaterOrEqual(t, float64(r[0].came-r[0].shed), 0.99*float64(r[0].came))
						}
					})
				})
			}
		}
	}
}

// From half the capacity to ten times, and back.
func TestAServiceRecoversFromAStepAndFromARamp(t *testing.T) {
	for name, load := range map[string]func(time.Duration) float64{
		"step": func(at time.Duration) float64 {
			if at > 5*time.Second && at < 15*time.Second {
				return 10
			}
			return 0.5
		},
		"ramp": func(at time.Duration) float64 {
			return max(0.5, 10-math.Abs(at.Seconds()-10)*2)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := quick.with(0.2, 1)
			w.load = load
			o, _ := w.run(premium(), 30*time.Second)
			r := o.sum(6, 14) // it is twice the capacity at least
			assert.GreaterOrEqual(t, float64(r[0].good+r[1].good), 0.9*8*w.capacity(), "%s: %+v", name, r)
			r = o.sum(20, 30) // it is back for 5 s
			assert.Zero(t, r[0].shed+r[1].shed+r[0].late+r[1].late, "%s: %+v", name, r)
		})
	}
}

func TestStreamsAreNeitherRefusedNorCountedAsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := quick.with(0.2, 0.7)
		w.streams = 40
		l := premium()
		o, refused := w.run(l, seconds*time.Second)
		r := o.sum(0, seconds)
		assert.Zero(t, refused)
		assert.Zero(t, r[0].shed+r[1].shed+r[0].late+r[1].late, "%+v", r)
		s := l.Stats()[0]
		assert.Zero(t, s.Streams+s.InFlight+s.Waiting, "all have left")
		assert.Less(t, s.Latency, 12*time.Millisecond)
	})
}

// Five times as slow, as when a database loses its cache, and back: the base of the latency
// goes up and down.
func TestALimitFollowsAServiceThatBecomesSlowerAndFasterAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := quick.with(0.2, 2)
		w.service = func(r *rand.Rand) time.Duration {
			d := quick.service(r)
			if s := time.Since(start).Seconds(); s > 20 && s < 60 {
				d *= 5
			}
			return d
		}
		o, _ := w.run(premium(), 80*time.Second)
		slow, again := o.sum(35, 60), o.sum(65, 80)
		assert.GreaterOrEqual(t, float64(slow[0].good+slow[1].good), 0.9*25*w.capacity()/5, "%+v", slow)
		assert.GreaterOrEqual(t, float64(again[0].good+again[1].good), 0.9*15*w.capacity(), "%+v", again)
	})
}

// A service that does nothing any more is not asked for more and more.
func TestNoMorePlacesAreGivenToAServiceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := premium()
		ctx, stop := context.WithCancel(middleware.WithTier(t.Context(), "premium"))
		var all sync.WaitGroup
		var shed atomic.Int64
		for range 1000 {
			all.Go(func() {
				p, _ := l.Admit(tiered("premium").WithContext(context.Background()))
				if p == nil {
					shed.Add(1)
					return
				}
				<-ctx.Done()
				p.Leave()
			})
			time.Sleep(10 * time.Millisecond)
		}
		assert.LessOrEqual(t, l.Stats()[0].InFlight, initialLimit)
		time.Sleep(2 * patience)
		assert.EqualValues(t, 1000-initialLimit, shed.Load(), "they do not wait for ever")
		stop()
		all.Wait()
		assert.Zero(t, l.Stats()[0].InFlight)
	})
}

// TestTheTableOfTheDocs holds the table in docs/overload.md, to a few in a hundred, as goroutines
// that wake at one time have no order.
func TestTheTableOfTheDocs(t *testing.T) {
	if os.Getenv("WEIR_TABLE") == "" {
		t.Skip("it takes a minute; WEIR_TABLE=1 runs it")
	}
	const near = 0.04
	page, err := os.ReadFile("../../docs/overload.md")
	require.NoError(t, err)
	for _, s := range []struct {
		name string
		w    world
	}{{"quick", quick}, {"mixed", mixed}} {
		for _, with := range []struct {
			name string
			make func(w *world) middleware.Overload
		}{
			{"nothing", func(*world) middleware.Overload { return nothing{} }},
			{"a fixed limit", func(w *world) middleware.Overload { return make(fixed, 2*w.workers) }},
			{"**shed**", func(*world) middleware.Overload { return premium() }},
			{"knows", func(w *world) middleware.Overload { return knowing(w) }},
		} {
			goodput := row(t, page, s.name+", goodput: "+with.name)
			high := row(t, page, s.name+", high tier good: "+with.name)
			var refused *[6]float64
			if s.name == "quick" && with.name == "**shed**" {
				counts := row(t, page, "quick, refused at: **shed**")
				refused = &counts
			}
			for i, load := range []float64{0.5, 0.8, 1, 2, 5, 10} {
				synctest.Test(t, func(t *testing.T) {
					w := s.w.with(0.2, load)
					o, _ := w.run(with.make(w), seconds*time.Second)
					r := o.sum(0, seconds)
					name := fmt.Sprintf("%s, %s, at %v", s.name, with.name, load)
					assert.InDelta(t, goodput[i], float64(r[0].good+r[1].good)/(seconds*w.capacity()), near, name)
					assert.InDelta(t, high[i], float64(r[0].good)/float64(r[0].came), near, name)
					if refused != nil {
						assert.InDelta(t, refused[i], float64(r[0].shed+r[1].shed), near*float64(r[0].came+r[1].came), name)
					}
				})
			}
		}
	}
}

// row is the numbers in a row of a table.
func row(t *testing.T, page []byte, name string) (numbers [6]float64) {
	_, cells, ok := strings.Cut(string(page), "| "+name+" |")
	require.True(t, ok, name)
	cells, _, _ = strings.Cut(cells, "\n")
	texts := strings.Split(strings.TrimSuffix(cells, "|"), "|")
	require.Len(t, texts, len(numbers), name)
	for i, text := range texts {
		number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
		var err error
		numbers[i], err = strconv.ParseFloat(number, 64)
		require.NoError(t, err, name)
		if percent {
			numbers[i] /= 100
		}
	}
	return numbers
}
