package shed_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
)

func TestOptionsThatAreWrongAreNamed(t *testing.T) {
	for want, o := range map[string]shed.Options{
		"Options.MaxWait is -1s":                      {MaxWait: -time.Second},
		`Options.Exempt: Route: pattern "GET health"`: {Exempt: middleware.Route("GET health")},
		"Options.MaxWait is 1m0s":                     {MaxWait: time.Minute},
		"Options.Priority has 0 tiers":                {Priority: []string{}},
		"Options.Priority has a tier without a name":  {Priority: []string{"a", ""}},
		`Options.Priority has "a" twice`:              {Priority: []string{"a", "a"}},
		`Options.Priority has "others"`:               {Priority: []string{"others"}},
		"Options.Priority has 16 tiers":               {Priority: strings.Split("abcdefghijklmnop", "")},
	} {
		_, err := shed.New(o)
		assert.ErrorContains(t, err, "shed: ")
		assert.ErrorContains(t, err, want)
		assert.Panics(t, func() { shed.Must(shed.New(o)) })
	}
	_, err := shed.New(shed.Options{MaxWait: -1, Priority: []string{}})
	assert.ErrorContains(t, err, "MaxWait")
	assert.ErrorContains(t, err, "Priority", "all that is wrong is said")
}

// What the limiter holds is what is in flight, whatever comes and goes in whatever order.
func TestEachPlaceIsTakenAndGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := shed.Must(shed.New(shed.Options{Priority: []string{"premium", "free"}, MaxWait: 20 * time.Millisecond}))
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

func TestAStreamIsCountedUntilItIsLongerThanOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := premium()
		flushed, _ := l.Admit(tiered(""))
		flushed.Streams(false)
		detached, _ := l.Admit(tiered(""))
		detached.Streams(true)
		assert.Equal(t, [2]int{1, 1}, [2]int{l.Stats()[0].InFlight, l.Stats()[0].Streams}, "a connection that is taken over is no request")
		time.Sleep(shed.SlowTime + shed.SweepEvery)
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
	l := shed.Must(shed.New(shed.Options{PerRoute: true}))
	on := func(pattern string) *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = pattern
		return r
	}
	for range shed.InitialLimit {
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
	for range 3 * shed.MostRoutes {
		p, _ := l.Admit(on("GET /" + strings.Repeat("x", rand.IntN(1<<14))))
		if p != nil {
			p.Leave()
		}
	}
	assert.LessOrEqual(t, len(l.Stats()), shed.MostRoutes+1, "patterns that a client makes up are bounded")
}

func TestExemptRequestsAreNotCounted(t *testing.T) {
	l := shed.Must(shed.New(shed.Options{Exempt: middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/health" })}))
	r := httptest.NewRequest("GET", "/health", nil)
	p, _ := l.Admit(r)
	p.Streams(true)
	assert.Zero(t, l.Stats()[0].InFlight)
	p.Leave()
	assert.Equal(t, "exempt from the overload limit", l.Explain(r))
	assert.Equal(t, `acquires a slot of the service's overload limit, in level "others", 2 of 2`, premium().Explain(tiered("free")))
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

var _ middleware.Overload = (*shed.Limiter)(nil)

func tiered(tier string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	return r.WithContext(middleware.WithTier(context.Background(), tier))
}

func premium() *shed.Limiter { return shed.Must(shed.New(shed.Options{Priority: []string{"premium"}})) }
