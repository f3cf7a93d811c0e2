// Package shedrace has another adaptive limiter in the world in which middleware/shed is
// measured, for the table in docs/overload.md. It is a test, as it needs a clock that is faked:
//
//	go -C _benchmarks test -v ./shedrace
package shedrace

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/openloop"
)

const seconds = 20

// A bare limit has its defaults, and refuses what it has no room for.
type bare struct {
	adaptivelimiter.AdaptiveLimiter[any]
}

func (b bare) Ask(r *openloop.Run, j *openloop.Job) {
	permit, ok := b.TryAcquirePermit()
	if !ok {
		r.Refuse(j)
		return
	}
	j.State = permit
	r.Start(j)
}

func (bare) Leave(_ *openloop.Run, j *openloop.Job) { j.State.(adaptivelimiter.Permit).Record() }

// run has the time of the bubble pass as that of the world does.
func run(w *openloop.World) *openloop.Run {
	return w.Do(bare{adaptivelimiter.NewWithDefaults[any]()}, seconds*time.Second, time.Sleep)
}

// prioritized is the same limiter with two priorities and its defaults. It queues: each request waits in a goroutine
// of its own, as it would in a server.
type prioritized struct {
	adaptivelimiter.PriorityLimiter[any]
	granted []*openloop.Job // since the last event; nobody else runs while the world does
	refused []*openloop.Job
	mu      sync.Mutex
}

func (p *prioritized) Ask(r *openloop.Run, j *openloop.Job) {
	level := priority.High
	if j.Tier > 0 {
		level = priority.Low
	}
	go func() {
		permit, err := p.AcquirePermitWithPriority(context.Background(), level)
		p.mu.Lock()
		defer p.mu.Unlock()
		if j.State = permit; err != nil {
			p.refused = append(p.refused, j)
			return
		}
		p.granted = append(p.granted, j)
	}()
	p.settle(r)
}

func (p *prioritized) Leave(r *openloop.Run, j *openloop.Job) {
	j.State.(adaptivelimiter.Permit).Record()
	p.settle(r)
}

// settle lets the world go on with the requests that are no longer waiting.
func (p *prioritized) settle(r *openloop.Run) {
	synctest.Wait()
	granted, refused := p.granted, p.refused
	p.granted, p.refused = nil, nil
	for _, j := range refused {
		r.Refuse(j)
	}
	for _, j := range granted {
		r.Start(j)
	}
}

func runPrioritized(w *openloop.World) *openloop.Run {
	prioritizer := adaptivelimiter.NewPrioritizer()
	defer prioritizer.ScheduleCalibrations(context.Background(), 100*time.Millisecond)() // once a second it does worse
	limiter := &prioritized{PriorityLimiter: adaptivelimiter.NewBuilder[any]().BuildPrioritized(prioritizer)}
	return w.Do(limiter, seconds*time.Second, time.Sleep)
}

func TestFailsafeIsWhatTheTableSays(t *testing.T) {
	const near = 0.15 // priorities are drawn at random
	page, err := os.ReadFile("../../docs/overload.md")
	require.NoError(t, err)
	services := map[string]openloop.World{"quick": openloop.Quick, "mixed": openloop.Mixed}
	for service, world := range services {
		synctest.Test(t, func(t *testing.T) {
			goodput, high, _ := world.Figures(seconds, runPrioritized)
			for what, row := range map[string]openloop.Row{"goodput": goodput, "high tier good": high} {
				name := service + ", " + what + ": failsafe-go, prioritized"
				t.Logf("| %s | %.3f", name, row)
				written, err := openloop.ReadRow(string(page), name)
				if !assert.NoError(t, err) {
					continue
				}
				for i := range row {
					assert.InDelta(t, row[i], written[i], near, "%s at %v", name, openloop.Loads[i])
				}
			}
		})
	}
}

func TestFailsafeBesideStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openloop.Quick.With(0.2, 0.7)
		w.Streams = 40
		r := run(w)
		sum := r.Sum(0, seconds)
		t.Logf("%d of 40 streams and %d of %d requests are refused", r.Cut(), sum.Refused(), sum[0].Came+sum[1].Came)
		assert.Positive(t, sum.Refused())
	})
}
