package openloop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/openloop"
)

const minute = time.Minute

// Without a limit, the mean response time follows queueing theory for one server:
// service / (1 - load), whether it takes requests in turn (M/M/1) or shares its processor.
func TestAQueueIsAsLongAsTheorySays(t *testing.T) {
	for _, shared := range []bool{false, true} {
		w := openloop.World{Workers: 1, Shared: shared, Service: exponential, Mean: 10 * time.Millisecond}
		m := &mean{}
		run := w.With(0.5, 0.7).Do(m, 30*minute, nil)
		sum := run.Sum(0, 30*60)
		assert.InEpsilon(t, 0.7*100*30*60, sum[0].Came+sum[1].Came, 0.02)
		assert.Equal(t, sum[0].Came+sum[1].Came, sum.Good()+sum.Late())
		assert.InEpsilon(t, 0.010/(1-0.7), m.took.Seconds()/float64(m.n), 0.05, "shared: %v", shared)
	}
}

func exponential(r *rand.Rand) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(10*time.Millisecond))
}

// mean admits all jobs and measures how long they take.
type mean struct {
	took time.Duration
	n    int
}

func (m *mean) Ask(r *openloop.Run, j *openloop.Job) {
	j.State = r.Now()
	r.Start(j)
}

func (m *mean) Leave(r *openloop.Run, j *openloop.Job) {
	m.took += r.Now() - j.State.(time.Duration)
	m.n++
}

func TestARunHasOneResultAndPassesAllOfItsTime(t *testing.T) {
	for _, service := range []openloop.World{openloop.Quick, openloop.Processors, openloop.Mixed} {
		w := service.With(0.2, 2)
		w.Streams = 3
		var passed time.Duration
		a := w.Do(&openloop.Fixed{Free: 20}, 5*time.Second, func(d time.Duration) { passed += d })
		b := w.Do(&openloop.Fixed{Free: 20}, 5*time.Second, nil)
		assert.Equal(t, a.Sum(0, 5), b.Sum(0, 5))
		assert.Equal(t, a.Now(), passed)
		assert.Positive(t, a.Sum(0, 5).Refused())
		w.Seed++
		assert.NotEqual(t, a.Sum(0, 5), w.Do(&openloop.Fixed{Free: 20}, 5*time.Second, nil).Sum(0, 5))
	}
}
