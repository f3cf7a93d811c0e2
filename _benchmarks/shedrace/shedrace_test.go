// Package shedrace has another adaptive limiter in the world in which middleware/shed is
// measured, for the table in docs/overload.md. It is a test, as it needs a clock that is faked:
//
//	go -C _benchmarks test -v ./shedrace
package shedrace

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
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

func TestFailsafeIsWhatTheTableSays(t *testing.T) {
	const near = 0.05
	page, err := os.ReadFile("../../docs/overload.md")
	require.NoError(t, err)
	for name, service := range map[string]openloop.World{"quick": openloop.Quick, "mixed": openloop.Mixed} {
		synctest.Test(t, func(t *testing.T) {
			goodput, high, _ := service.Figures(seconds, run)
			for what, row := range map[string]openloop.Row{"goodput": goodput, "high tier good": high} {
				row, name := row, name+", "+what+": failsafe-go"
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
