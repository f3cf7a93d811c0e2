package promlimit

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/pace"
)

var (
	paceAttempts = desc("rate_limit_pace_attempts_total",
		"Attempts to send a request to others, by what became of them. A request that is sent again counts again.", "rule", "outcome")
	paceRetries   = desc("rate_limit_pace_retries_total", "Attempts after which the request was to be sent again.", "rule")
	paceCooldowns = desc("rate_limit_pace_cooldowns_total", "Answers to this process after which no process sends requests for a while.", "rule")
	paceCooldown  = desc("rate_limit_pace_cooldown_seconds", "For how much longer requests of a key are held back, as their server refused some.", "rule")
	paceWaiting   = desc("rate_limit_pace_waiting", "Requests that wait.", "rule")
	paceInFlight  = desc("rate_limit_pace_in_flight", "Requests that were sent and have no response yet.", "rule")
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
	r := m.paced.Observe(o)
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
	m.paced.Follow(t)
	return nil
}

// collectPace is what was sent to others.
func (m *Metrics) collectPace(to sink) {
	m.waits.Collect(to)
	for _, r := range m.paced.Rules() {
		for _, o := range pace.Outcomes() {
			to.count(paceAttempts, r.Count(o), r.Rule, o.String())
		}
		to.count(paceRetries, r.Retries(), r.Rule)
		to.count(paceCooldowns, r.Cooldowns(), r.Rule)
	}
	for _, s := range m.paced.Stats() {
		to.gauge(paceWaiting, float64(s.Waiting), s.Rule)
		to.gauge(paceInFlight, float64(s.InFlight), s.Rule)
		to.gauge(paceCooldown, max(0, time.Until(s.Until).Seconds()), s.Rule)
	}
}
