package otellimit

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/internal/tally"
)

// Attributes of metrics, beside those of spans.
const (
	decisionKey = attribute.Key("rate_limit.decision")
	storeKey    = attribute.Key("rate_limit.store")
	byKey       = attribute.Key("rate_limit.by")
)

// instruments are read from the tally when a reader collects.
type instruments struct {
	requests, outcomes, errors, failures, decisions, evicted, overflowed metric.Int64ObservableCounter

	degradedFor metric.Float64ObservableCounter

	degraded, cells, bytes, inProgress, inLine metric.Int64ObservableGauge
}

// measure makes the instruments and has them read.
func (t *Observer) measure(meter metric.Meter) error {
	m := maker{meter: meter}
	in := instruments{
		requests:    m.counter("rate_limit.requests", "{request}", "What each rule said about the requests that it applied to."),
		outcomes:    m.counter("rate_limit.outcomes", "{request}", "What became of the requests that the limiter had a say in."),
		errors:      m.counter("rate_limit.store.errors", "{request}", "Requests that the store could not decide about."),
		failures:    m.counter("rate_limit.store.failures", "{call}", "Calls that the store's server failed at."),
		decisions:   m.counter("rate_limit.store.decisions", "{decision}", "Decisions by the store's server (server) or by an outage policy (fail_local, fail_open, fail_closed)."),
		evicted:     m.counter("rate_limit.table.evicted", "{key}", "Keys that were forgotten at the cap before their time."),
		overflowed:  m.counter("rate_limit.table.overflowed", "{decision}", "Decisions at the cap on a counter shared by new keys."),
		degraded:    m.gauge("rate_limit.store.degraded", "1", "1 while outage policies decide in place of the store's server."),
		cells:       m.gauge("rate_limit.table.cells", "{cell}", "Places for keys that memory is taken for."),
		bytes:       m.gauge("rate_limit.table.size", "By", "Memory of the store in memory."),
		inProgress:  m.gauge("rate_limit.concurrency.in_progress", "{request}", "Requests of all keys in progress in this process, of a rule with Concurrency."),
		inLine:      m.gauge("rate_limit.concurrency.waiting", "{request}", "Requests of all keys that wait in this process to be in progress."),
		degradedFor: m.seconds("rate_limit.store.degraded.time", "For how long outage policies have been in force in all."),
	}
	var err error
	t.duration, err = meter.Float64Histogram("rate_limit.decision.duration", metric.WithUnit("s"),
		metric.WithDescription("How long decisions took in the store; of a store in memory, one in 64 is measured."),
		metric.WithExplicitBucketBoundaries(tally.LatencyBounds...))
	m.note(err)
	overload := m.overload()
	paced := m.pace()
	t.waits, err = meter.Float64Histogram("rate_limit.pace.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("How long attempts to send a request to others waited before they were sent."),
		metric.WithExplicitBucketBoundaries(tally.WaitBounds...))
	m.note(err)
	if m.err != nil {
		return m.err
	}
	store := attribute.NewSet(storeKey.String(t.tally.Store.Kind))
	t.store = []metric.RecordOption{metric.WithAttributeSet(store)}
	t.callback, err = meter.RegisterCallback(
		func(_ context.Context, to metric.Observer) error {
			in.readRules(to, t.tally)
			in.readPlaces(to, &t.placing)
			in.readStore(to, t.tally, metric.WithAttributeSet(store))
			overload.read(to, t.overload())
			paced.read(to, t.paced)
			return nil
		}, m.made...)
	return err
}

func (in *instruments) readRules(to metric.Observer, t *tally.Tally) {
	for _, o := range middleware.Outcomes() {
		to.ObserveInt64(in.outcomes, int64(t.Outcome(o)), metric.WithAttributes(outcomeKey.String(o.String())))
	}
	for _, r := range t.Rules() {
		for _, d := range tally.Decisions() {
			attributes := []attribute.KeyValue{ruleKey.String(r.Rule), decisionKey.String(d.String())}
			if r.Tier != "" {
				attributes = append(attributes, tierKey.String(r.Tier))
			}
			to.ObserveInt64(in.requests, int64(r.Count[d]), metric.WithAttributes(attributes...))
		}
	}
}

func (in *instruments) readPlaces(to metric.Observer, p *tally.Placing) {
	for _, of := range p.InProgress(mostMaxRules) {
		attributes := []attribute.KeyValue{ruleKey.String(of.Rule.Name)}
		if of.Rule.Tier != "" {
			attributes = append(attributes, tierKey.String(of.Rule.Tier))
		}
		to.ObserveInt64(in.inProgress, of.Requests, metric.WithAttributes(attributes...))
		to.ObserveInt64(in.inLine, of.Waiting, metric.WithAttributes(attributes...))
	}
}

func (in *instruments) readStore(to metric.Observer, t *tally.Tally, store metric.MeasurementOption) {
	to.ObserveInt64(in.errors, int64(t.Errors()), store)
	if t.Store.Memory != nil {
		stats := t.Store.Memory()
		to.ObserveInt64(in.cells, int64(stats.Cells), store)
		to.ObserveInt64(in.bytes, int64(stats.Bytes), store)
		to.ObserveInt64(in.evicted, int64(stats.Evicted), store)
		to.ObserveInt64(in.overflowed, int64(stats.Overflowed), store)
	}
	if t.Store.Failover != nil {
		stats := t.Store.Failover()
		to.ObserveInt64(in.degraded, oneIf(stats.Degraded), store)
		to.ObserveInt64(in.failures, int64(stats.Failures), store)
		to.ObserveFloat64(in.degradedFor, t.Store.Degraded(stats).Seconds(), store)
		for by, n := range map[string]uint64{
			"server": stats.Decided, "fail_local": stats.Local, "fail_open": stats.Open, "fail_closed": stats.Closed,
		} {
			to.ObserveInt64(in.decisions, int64(n), metric.WithAttributes(byKey.String(by)), store)
		}
	}
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// A maker makes instruments and remembers the first error.
type maker struct {
	meter metric.Meter
	made  []metric.Observable
	err   error
}

func (m *maker) note(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *maker) counter(name, unit, help string) metric.Int64ObservableCounter {
	c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.note(err)
	m.made = append(m.made, c)
	return c
}

func (m *maker) seconds(name, help string) metric.Float64ObservableCounter {
	c, err := m.meter.Float64ObservableCounter(name, metric.WithUnit("s"), metric.WithDescription(help))
	m.note(err)
	m.made = append(m.made, c)
	return c
}

func (m *maker) gauge(name, unit, help string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.note(err)
	m.made = append(m.made, g)
	return g
}
