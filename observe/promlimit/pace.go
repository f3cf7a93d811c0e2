package promlimit

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/pace"
)

var (
	paceCooldown = desc("rate_limit_pace_cooldown_seconds", "For how much longer requests of a key are held back, as their server refused some.", "rule")
	paceWaiting  = desc("rate_limit_pace_waiting", "Requests that wait.", "rule")
	paceInFlight = desc("rate_limit_pace_in_flight", "Requests that were sent and have no response yet.", "rule")
)

func newWaits() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rate_limit_pace_wait_seconds",
		Help:    "How long attempts waited before they were sent.",
		Buckets: tally.WaitBounds,
	}, []string{"rule"})
}

// ObserveAttempt implements [pace.Observer].
func (m *Metrics) ObserveAttempt(o *pace.Observation) {
	r := m.from.Paced.Observe(o)
	switch o.Outcome {
	case pace.OutcomeServed, pace.OutcomeRefused, pace.OutcomeFailed:
		m.waits.WithLabelValues(r.Rule).Observe(o.Waited.Seconds())
	}
}

// FollowTransport adds how many requests wait now, are in flight, and for how long they are held
// back. It may be called for several.
func (m *Metrics) FollowTransport(t *pace.Transport) error {
	if t == nil {
		return errors.New("promlimit: FollowTransport needs a Transport")
	}
	m.from.Paced.Follow(t)
	return nil
}

// collectCooldowns is how requests to others are now.
func (m *Metrics) collectCooldowns(to sink) {
	for _, s := range m.from.Paced.Stats() {
		to.gauge(paceWaiting, float64(s.Waiting), s.Rule)
		to.gauge(paceInFlight, float64(s.InFlight), s.Rule)
		to.gauge(paceCooldown, max(0, time.Until(s.Until).Seconds()), s.Rule)
	}
}
