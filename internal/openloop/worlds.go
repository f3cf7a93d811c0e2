package openloop

import (
	"math/rand/v2"
	"time"
)

// The services.
var (
	// Quick has 8 workers and answers in 5 to 15 ms.
	Quick = World{Workers: 8, Service: uniform, Mean: 10 * time.Millisecond}

	// Mixed has 32 workers. One request in fifty takes two seconds, the others 10 ms.
	Mixed = World{Workers: 32, Service: bimodal, Mean: 49800 * time.Microsecond}

	// Processors has 4 shared processors. A request needs 5 to 15 ms of one.
	Processors = World{Workers: 4, Shared: true, Service: uniform, Mean: 10 * time.Millisecond}
)

// Loads are the loads that goals are stated for, as multiples of the capacity.
var Loads = [6]float64{0.5, 0.8, 1, 2, 5, 10}

// With returns the service under a load, with a share of the high tier.
func (w World) With(high, load float64) *World {
	w.High, w.Load, w.Seed = high, func(time.Duration) float64 { return load }, 1
	return &w
}

// uniform draws 5 to 15 ms.
func uniform(r *rand.Rand) time.Duration {
	return time.Duration((0.5 + r.Float64()) * float64(10*time.Millisecond))
}

// bimodal draws two seconds for one request in fifty, and 10 ms for the others.
func bimodal(r *rand.Rand) time.Duration {
	if r.Float64() < 0.02 {
		return 2 * time.Second
	}
	return 10 * time.Millisecond
}

// Fixed refuses a job if no slot is free. Free is the number of free slots.
type Fixed struct{ Free int }

// Ask implements [Limit].
func (f *Fixed) Ask(r *Run, j *Job) {
	if f.Free == 0 {
		r.Refuse(j)
		return
	}
	f.Free--
	r.Start(j)
}

// Leave implements [Limit].
func (f *Fixed) Leave(*Run, *Job) { f.Free++ }
