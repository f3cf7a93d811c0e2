package shed

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/middleware"
)

func TestOptionsThatAreWrongAreNamed(t *testing.T) {
	for want, o := range map[string]Options{
		"Options.MaxWait is -1s":                      {MaxWait: -time.Second},
		`Options.Exempt: Route: pattern "GET health"`: {Exempt: middleware.Route("GET health")},
		"Options.MaxWait is 1m0s":                     {MaxWait: time.Minute},
		"Options.Priority has 0 tiers":                {Priority: []string{}},
		"Options.Priority has a tier without a name":  {Priority: []string{"a", ""}},
		`Options.Priority has "a" twice`:              {Priority: []string{"a", "a"}},
		`Options.Priority has "others"`:               {Priority: []string{"others"}},
		"Options.Priority has 16 tiers":               {Priority: strings.Split("abcdefghijklmnop", "")},
	} {
		_, err := New(o)
		assert.ErrorContains(t, err, "shed: ")
		assert.ErrorContains(t, err, want)
		assert.Panics(t, func() { Must(New(o)) })
	}
	_, err := New(Options{MaxWait: -1, Priority: []string{}})
	assert.ErrorContains(t, err, "MaxWait")
	assert.ErrorContains(t, err, "Priority", "all that is wrong is said")
}

func TestLevelsAreThoseOfTheTier(t *testing.T) {
	l := Must(New(Options{Priority: []string{"premium", "free"}}))
	for tier, want := range map[string]int{"premium": 0, "free": 1, "": 2, "unknown": 2} {
		assert.Equal(t, want, l.level(tiered(tier)), tier)
	}
}

// What the limiter holds is what is in flight, whatever comes and goes in whatever order.
func TestEachPlaceIsTakenAndGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Must(New(Options{Priority: []string{"premium", "free"}, MaxWait: 20 * time.Millisecond}))
		var all sync.WaitGroup
		var held, most, admitted atomic.Int64
		var refused atomic.Uint64
		random := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			r := tiered([]string{"premium", "free", ""}[random.IntN(3)])
			ctx, cancel := context.WithTimeout(r.Context(), time.Duration(random.IntN(100))*time.Millisecond)
			took, streams, hijacks := time.Duration(random.IntN(30))*time.Millisecond, random.IntN(50) == 0, random.IntN(50) == 0
			all.Go(func() {
				defer cancel()
				p, after := l.Admit(r.WithContext(ctx))
				if p == nil {
					if ctx.Err() == nil {
						refused.Add(1)
					}
					assert.True(t, after >= time.Second && after <= 10*time.Second, after)
					return
				}
				admitted.Add(1)
				if streams || hijacks {
					p.Streams(hijacks)
					p.Streams(false)
					time.Sleep(10 * took)
				} else {
					most.Store(max(most.Load(), held.Add(1)))
					time.Sleep(took)
					held.Add(-1)
				}
				p.Leave()
			})
			time.Sleep(time.Duration(random.IntN(400)) * time.Microsecond)
		}
		all.Wait()
		s := l.Stats()[0]
		assert.Zero(t, s.InFlight+s.Waiting+s.Streams)
		var took, shed uint64
		for _, level := range s.Levels {
			took, shed = took+level.Admitted, shed+level.Shed
		}
		assert.EqualValues(t, admitted.Load(), took)
		assert.GreaterOrEqual(t, shed, refused.Load())
		assert.Less(t, took+shed, uint64(20_000), "a client that is gone was not refused")
		assert.Equal(t, []string{"premium", "free", "others"}, []string{s.Levels[0].Name, s.Levels[1].Name, s.Levels[2].Name})
	})
}

func TestRequestsThatCannotBeServedInTimeAreRefusedAtOnceTheOldestFirst(t *testing.T) {
	g := newGate(2, 300*time.Millisecond)
	g.planSweep = func() {}
	g.meter.limit, g.meter.rate, g.meter.shrunk = 1, 100, true // 30 requests in MaxWait, 500 in patience
	var refused []time.Duration
	g.answer = func(p *slot, admitted bool) {
		assert.False(t, admitted)
		assert.Equal(t, 1, p.level, "the first level is in no overload")
		refused = append(refused, p.came)
	}
	now := time.Duration(0)
	enter := func(level, n int) {
		for range n {
			now++
			g.enter(&slot{gate: g, level: level}, now)
		}
	}
	enter(0, 1) // is admitted
	enter(0, 10)
	enter(1, 490)
	assert.Empty(t, refused, "chance makes such queues too")
	enter(1, 1)
	assert.Len(t, refused, 471, "10 of the first level wait, and 20 of the second")
	assert.True(t, slices.IsSorted(refused))
	assert.Equal(t, time.Duration(12), refused[0])
	assert.Equal(t, []uint64{0, 471}, []uint64{g.counts[0].Shed, g.counts[1].Shed})
	enter(1, 1)
	assert.Len(t, refused, 472)
	enter(0, 31)
	assert.Len(t, refused, 492, "the first level's take their room")
	assert.Equal(t, 41, g.queue.n)
}

func TestAStreamIsCountedUntilItIsLongerThanOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := premium()
		flushed, _ := l.Admit(tiered(""))
		flushed.Streams(false)
		detached, _ := l.Admit(tiered(""))
		detached.Streams(true)
		assert.Equal(t, [2]int{1, 1}, [2]int{l.Stats()[0].InFlight, l.Stats()[0].Streams}, "a connection that is taken over is no request")
		time.Sleep(slowTime + sweepEvery)
		synctest.Wait()
		assert.Equal(t, [2]int{0, 2}, [2]int{l.Stats()[0].InFlight, l.Stats()[0].Streams})
		flushed.Leave()
		detached.Leave()
		assert.Zero(t, l.Stats()[0].Streams)

		short, _ := l.Admit(tiered("")) // flushed at once, as pages are that are sent in parts
		short.Streams(false)
		short.Leave()
		time.Sleep(time.Minute)
		assert.Zero(t, l.Stats()[0].InFlight+l.Stats()[0].Streams)
	})
}

func TestRoutesHaveLimitsOfTheirOwn(t *testing.T) {
	l := Must(New(Options{PerRoute: true}))
	on := func(pattern string) *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = pattern
		return r
	}
	for range initialLimit {
		_, _ = l.Admit(on("GET /slow"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	full, _ := l.Admit(on("GET /slow").WithContext(ctx))
	assert.Nil(t, full)
	p, _ := l.Admit(on("GET /quick").WithContext(ctx))
	assert.NotNil(t, p)
	p, _ = l.Admit(on("").WithContext(ctx))
	assert.NotNil(t, p)
	assert.Len(t, l.Stats(), 3)
	assert.Equal(t, "acquires a slot of its route's overload limit", l.Explain(on("GET /slow")))
	for range 3 * mostRoutes {
		p, _ := l.Admit(on("GET /" + strings.Repeat("x", rand.IntN(1<<14))))
		if p != nil {
			p.Leave()
		}
	}
	assert.LessOrEqual(t, len(l.Stats()), mostRoutes+1, "patterns that a client makes up are bounded")
}

func TestExemptRequestsAreNotCounted(t *testing.T) {
	l := Must(New(Options{Exempt: middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/health" })}))
	r := httptest.NewRequest("GET", "/health", nil)
	p, _ := l.Admit(r)
	p.Streams(true)
	assert.Zero(t, l.Stats()[0].InFlight)
	p.Leave()
	assert.Equal(t, "exempt from the overload limit", l.Explain(r))
	assert.Equal(t, `acquires a slot of the service's overload limit, in level "others", 2 of 2`, premium().Explain(tiered("free")))
}

func TestALatencyIsKnownToASixteenth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(int64(10*time.Microsecond), int64(time.Hour)).Draw(t, "latency"))
		of := middleOf(bucketOf(d))
		assert.InEpsilon(t, d.Seconds(), of, 1.0/14)
	})
}

func TestTheSlowestQuarterSaysNothing(t *testing.T) {
	var l latencies
	for range 75 {
		l.add(10 * time.Millisecond)
	}
	for range 25 {
		l.add(time.Hour)
	}
	assert.InEpsilon(t, 0.01, l.lower(100), 0.06)
}

func TestAnAdmittedRequestAllocatesNothing(t *testing.T) {
	l, r := premium(), tiered("premium")
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		p, _ := l.Admit(r)
		p.Leave()
	}))
}

func BenchmarkAdmit(b *testing.B) {
	l, r := premium(), tiered("premium")
	b.ReportAllocs()
	for b.Loop() {
		p, _ := l.Admit(r)
		p.Leave()
	}
}

func BenchmarkAdmitParallel(b *testing.B) {
	l, r := premium(), tiered("premium")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if p, _ := l.Admit(r); p != nil {
				p.Leave()
			}
		}
	})
}

var _ middleware.Overload = (*Limiter)(nil)

func tiered(tier string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	return r.WithContext(middleware.WithTier(context.Background(), tier))
}

func premium() *Limiter { return Must(New(Options{Priority: []string{"premium"}})) }
