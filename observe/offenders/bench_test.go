package offenders_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/offenders"
)

// nobody is a ResponseWriter whose own cost is a map.
type nobody struct{ header http.Header }

func (w nobody) Header() http.Header         { return w.header }
func (w nobody) Write(b []byte) (int, error) { return len(b), nil }
func (w nobody) WriteHeader(int)             {}

var noop = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// BenchmarkMiddleware is what a request takes, with nobody listening, with somebody who does
// nothing, and with a sketch.
func BenchmarkMiddleware(b *testing.B) {
	for _, limit := range []struct {
		name string
		limiter.Limit
	}{{"allowed", limiter.PerDay(30_000_000)}, {"refused", limiter.PerDay(1)}} {
		for _, observer := range []struct {
			name string
			middleware.Observer
		}{{"none", nil}, {"idle", idle{}}, {"sketch", sketch(b, offenders.Options{})}} {
			config := middleware.Config{
				Observer: observer.Observer,
				Rules:    []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limit.Limit}},
			}
			b.Run(limit.name+"/"+observer.name, func(b *testing.B) { benchmark(b, config) })
		}
	}
}

type idle struct{}

func (idle) Observe(*middleware.Observation) {}

func benchmark(b *testing.B, config middleware.Config) {
	h := middleware.Must(middleware.New(config)).Handler(noop)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), nobody{http.Header{}}
		for pb.Next() {
			clear(w.header)
			h.ServeHTTP(w, r)
		}
	})
}

// BenchmarkObserve is the sketch alone: for one key, for as many as have counters, and for
// ever new ones, of which each takes another's; and all from two goroutines for each CPU.
func BenchmarkObserve(b *testing.B) {
	for _, refused := range []bool{false, true} {
		for _, n := range []int{1, 100, 1 << 17} {
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprintf("192.0.%d.%d", i>>8, i&255)
			}
			name := fmt.Sprintf("refused=%v/keys=%d", refused, n)
			b.Run(name, func(b *testing.B) {
				s, o := sketch(b, offenders.Options{}), seen(b, "ip", refused)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					o.Rules[0].Key = keys[i%n]
					s.Observe(o)
				}
			})
			b.Run(name+"/parallel", func(b *testing.B) {
				s := sketch(b, offenders.Options{})
				b.SetParallelism(2)
				b.RunParallel(func(pb *testing.PB) {
					o := seen(b, "ip", refused)
					for i := 0; pb.Next(); i++ {
						o.Rules[0].Key = keys[i%n]
						s.Observe(o)
					}
				})
			})
		}
	}
}

// BenchmarkTop is to read what is known of a rule whose counters are all used.
func BenchmarkTop(b *testing.B) {
	s, o := sketch(b, offenders.Options{}), seen(b, "ip", true)
	for i := range 1 << 17 {
		o.Rules[0].Key = fmt.Sprint(i)
		s.Observe(o)
	}
	for b.Loop() {
		s.Top("ip", 10)
	}
}

func sketch(t testing.TB, o offenders.Options) *offenders.Sketch {
	t.Helper()
	s, err := offenders.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seen is what is observed of a request under one rule, for a key to be set.
func seen(t testing.TB, rule string, refused bool) *middleware.Observation {
	t.Helper()
	return &middleware.Observation{Rules: []middleware.RuleResult{
		{Rule: &middleware.RuleInfo{Name: rule}, Cost: 1, Decision: limiter.Decision{Allowed: !refused}},
	}}
}
