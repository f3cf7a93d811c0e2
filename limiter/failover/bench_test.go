package failover_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// A prompt store has its answer at once, so that what is left is the failover's own.
type prompt struct {
	limiter.Store
	err error
}

func (p prompt) Within(time.Duration) limiter.Store { return p }

func (p prompt) Decide(context.Context, []limiter.Charge) error { return p.err }

// patient is one that leaves deadlines to its caller.
type patient struct{ limiter.Store }

func (p patient) Decide(context.Context, []limiter.Charge) error { return nil }

func BenchmarkDecide(b *testing.B) {
	quiet := failover.Options{Failures: 1, ProbeEvery: time.Hour, OnDegraded: ignore}
	shared := quiet
	shared.Replicas = 3
	for _, bb := range []struct {
		name  string
		store limiter.Store
		o     limiter.Outage
	}{
		{"store=alone", prompt{}, limiter.FailLocal},
		{"store=well", wrap(prompt{}, quiet), limiter.FailLocal},
		{"store=well-without-Within", wrap(patient{}, quiet), limiter.FailLocal},
		{"store=outage-open", wrap(prompt{err: errDown}, quiet), limiter.FailOpen},
		{"store=outage-local", wrap(prompt{err: errDown}, shared), limiter.FailLocal},
		{"store=outage-closed", wrap(prompt{err: errDown}, quiet), limiter.FailClosed},
	} {
		q := quota(b, "api", limiter.PerSecond(1_000_000), bb.o)
		decideIn := func(charges []limiter.Charge) { _ = bb.store.Decide(context.Background(), charges) }
		b.Run(bb.name+"/serial", func(b *testing.B) {
			charges := []limiter.Charge{charge(q, "key")}
			b.ReportAllocs()
			for b.Loop() {
				decideIn(charges)
			}
		})
		b.Run(bb.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				charges := []limiter.Charge{charge(q, "key")}
				for p.Next() {
					decideIn(charges)
				}
			})
		})
	}
}
