package shed

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/openloop"
)

// seconds is how long the traffic comes. All begins with a limiter that knows nothing.
const seconds = 20

// thorough runs worlds that are like others, and with other seeds.
var thorough = os.Getenv("WEIR_TABLE") != ""

func TestGoodputStaysAtItsPeakAndTheHighTierIsServed(t *testing.T) {
	for name, service := range map[string]openloop.World{
		"quick": openloop.Quick, "mixed": openloop.Mixed, "processors": openloop.Processors,
	} {
		for _, high := range []float64{0.2, 0.5} {
			for _, load := range openloop.Loads {
				if !thorough && (high > 0.2 && load != 1 && load != 2 || service.Capacity()*load > 4000) {
					continue
				}
				t.Run(fmt.Sprintf("%s, high %v, load %v", name, high, load), func(t *testing.T) {
					w := service.With(high, load)
					// Where the high tier is all that the service can do, chance decides in some.
					served := load <= 2 && (load*high < 1 || name == "quick")
					holdsGoals(t, w, load, served)
					for thorough && w.Seed < 5 {
						w.Seed++
						holdsGoals(t, w, load, served)
					}
				})
			}
		}
	}
}

func holdsGoals(t *testing.T, w *openloop.World, load float64, served bool) {
	seconds := seconds
	if !thorough {
		seconds = max(8, min(seconds, int(16_000/(load*w.Capacity())))) // requests
	}
	capacity := float64(seconds) * w.Capacity()
	r := do(w, learning(), seconds).Sum(0, seconds)
	goodput := float64(r.Good()) / capacity
	t.Logf("goodput %.3f of the capacity, high tier %+v, low tier %+v", goodput, r[0], r[1])
	peak := min(1, load)
	if load == 1 { // chance makes queues that make some late, whoever admits them
		k := do(w, knowing(w), seconds).Sum(0, seconds)
		peak = min(1, float64(k.Good())/capacity)
	}
	assert.GreaterOrEqual(t, goodput, 0.9*peak)
	if load <= 0.8 {
		assert.Zero(t, r.Refused())
	}
	if served {
		assert.GreaterOrEqual(t, float64(r[0].Came-r[0].Refused), 0.99*float64(r[0].Came))
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
		for _, service := range []openloop.World{openloop.Quick, openloop.Processors} {
			w := service.With(0.2, 1)
			w.Load = load
			o := do(w, learning(), 30)
			r := o.Sum(6, 14) // it is twice the capacity at least
			assert.GreaterOrEqual(t, float64(r.Good()), 0.9*8*w.Capacity(), "%s: %+v", name, r)
			r = o.Sum(20, 30) // it is back for 5 s
			assert.Zero(t, r.Refused()+r.Late(), "%s: %+v", name, r)
		}
	}
}

func TestStreamsAreNeitherRefusedNorCountedAsSlow(t *testing.T) {
	w := openloop.Quick.With(0.2, 0.7)
	w.Streams = 40
	l := learning()
	o := do(w, l, seconds)
	r := o.Sum(0, seconds)
	assert.Zero(t, o.Cut())
	assert.Zero(t, r.Refused()+r.Late(), "%+v", r)
	s := l.stats("", nil)
	assert.Zero(t, s.Streams+s.InFlight+s.Waiting, "all have left")
	assert.Less(t, s.Latency, 12*time.Millisecond)
}

// Five times as slow, as when a database loses its cache, and back: the base of the latency
// goes up and down.
func TestALimitFollowsAServiceThatBecomesSlowerAndFasterAgain(t *testing.T) {
	w := openloop.Quick.With(0.2, 2)
	w.Slower = func(at time.Duration) float64 {
		if at > 20*time.Second && at < 60*time.Second {
			return 5
		}
		return 1
	}
	o := do(w, learning(), 80)
	slow, again := o.Sum(35, 60), o.Sum(65, 80)
	assert.GreaterOrEqual(t, float64(slow.Good()), 0.9*25*w.Capacity()/5, "%+v", slow)
	assert.GreaterOrEqual(t, float64(again.Good()), 0.9*15*w.Capacity(), "%+v", again)
}

// A limit that was high enough for a moment of quiet does not take what waits for work.
func TestALimitThatBeginsInAnOverloadIsFoundAllTheSame(t *testing.T) {
	w := openloop.Quick.With(0.2, 10)
	l := learning()
	do(w, l, 5)
	assert.InDelta(t, 8, l.meter.limit, 4)
	assert.InDelta(t, 0.01, l.meter.base, 0.002)
}

// TestTheTableOfTheDocs checks the table in docs/overload.md. Its figures may differ by a few percent,
// because floating-point sums differ between processors.
func TestTheTableOfTheDocs(t *testing.T) {
	if !thorough {
		t.Skip("it takes ten seconds; WEIR_TABLE=1 runs it")
	}
	page, err := os.ReadFile("../../docs/overload.md")
	require.NoError(t, err)
	for _, service := range []struct {
		name string
		openloop.World
	}{{"quick", openloop.Quick}, {"mixed", openloop.Mixed}} {
		for _, limit := range []struct {
			name string
			make func(w *openloop.World) openloop.Limit
		}{
			{"nothing", func(*openloop.World) openloop.Limit { return &openloop.Fixed{Free: math.MaxInt} }},
			{"a fixed limit", func(w *openloop.World) openloop.Limit { return &openloop.Fixed{Free: 2 * w.Workers} }},
			{"**shed**", func(*openloop.World) openloop.Limit { return learning() }},
		} {
			goodput, high, refused := service.Figures(seconds, func(w *openloop.World) *openloop.Run {
				return do(w, limit.make(w), seconds)
			})
			inTable(t, string(page), service.name+", goodput: "+limit.name, goodput)
			inTable(t, string(page), service.name+", high tier good: "+limit.name, high)
			if service.name == "quick" && limit.name == "**shed**" {
				inTable(t, string(page), "quick, refused: **shed**", refused)
			}
		}
	}
}

func inTable(t *testing.T, page, name string, want openloop.Row) {
	const near = 0.03
	written, err := openloop.ReadRow(page, name)
	require.NoError(t, err, "%.3f", want)
	for i := range want {
		assert.InDelta(t, want[i], written[i], near, "%s at %v", name, openloop.Loads[i])
	}
}
