package offenders_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/offenders"
)

var noop = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

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
