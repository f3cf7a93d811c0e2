package promlimit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/internal/tally"
)

var all []*prometheus.Desc

// desc names a metric, and notes it for Describe.
func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	all = append(all, d)
	return d
}

var (
	requests = desc("rate_limit_requests_total",
		"What each rule said about the requests that it applied to. A request counts once for every rule: for shares of all requests, take rate_limit_outcomes_total.",
		"rule", "decision", "tier")
	outcomes = desc("rate_limit_outcomes_total",
		"What became of the requests that the limiter had a say in. A request counts once, so shares of requests are of this.", "outcome")
	exceeded = desc("rate_limit_exceeded_total", "Requests that a rule refused.", "rule")
	shadowed = desc("rate_limit_shadow_exceeded_total", "Requests that a rule in shadow would have refused.", "rule")
	overCap  = desc("rate_limit_rules_over_cap_total",
		"Rules, tiers and their reloads that came after MaxRules others, and are counted as rule other.")

	storeErrors = desc("rate_limit_store_errors_total",
		"Requests that the store could not decide about: answered 503, unless all their rules are in shadow.", "store")
	redisErrors = desc("rate_limit_redis_errors_total",
		"Calls that Redis failed at: there was no connection, no answer in time, or an error.")
	degraded = desc("rate_limit_degraded",
		"1 while the rules' outage policies decide in place of the store's server.", "store")
	degradedFor = desc("rate_limit_degraded_seconds_total",
		"For how long the outage policies have been in force in all.", "store")
	breaker = desc("rate_limit_breaker_state",
		"The circuit breaker in front of the store's server, or of one of several: 1 for the state that it is in.",
		"store", "state")
	byServer = desc("rate_limit_store_decisions_total",
		"Calls of the store that were decided, one for all rules of a request, by its server or by an outage policy: server, fail_local, fail_open or fail_closed.", "store", "by")
	redisBatches  = desc("rate_limit_redis_batches_total", "Batches of decisions that went to Redis.")
	redisRefusals = desc("rate_limit_redis_remembered_total", "Decisions that were refusals remembered, without Redis.")

	cells      = desc("rate_limit_table_cells", "Places for keys that the store in memory has taken memory for.")
	bytes      = desc("rate_limit_table_bytes", "Memory of the store in memory.")
	evicted    = desc("rate_limit_table_evicted_total", "Keys that were forgotten at the cap before their time.")
	overflowed = desc("rate_limit_table_overflowed_total", "Decisions at the cap that were taken on a counter shared by new keys.")

	reloads = desc("rate_limit_reloads_total",
		"Attempts to put written rules in force, the first included.", "result")
	reloadOK = desc("rate_limit_last_reload_successful", "1 if the rules that are written are in force.")
	reloadAt = desc("rate_limit_last_reload_success_timestamp_seconds", "When the rules in force came into force.")
	banned   = desc("rate_limit_bans_active", "Bans in force in this process.")
	stale    = desc("rate_limit_bans_stale_seconds",
		"For how long the bans in this process may not have been those of the list that processes share; 0 while they are.")

	inProgress = desc("rate_limit_concurrency_in_progress", "Requests of all keys in progress in this process, of a rule with Concurrency.", "rule", "tier")
	inLine     = desc("rate_limit_concurrency_waiting", "Requests of all keys that wait in this process to be in progress.", "rule", "tier")
	atOnce     = desc("rate_limit_concurrency_limit", "How many requests of one key may be in progress at once.", "rule", "tier")

	overloadLimit    = desc("rate_limit_overload_limit", "How many requests may be in flight.", "route")
	overloadInFlight = desc("rate_limit_overload_in_flight", "Requests in flight, without streams.", "route")
	overloadStreams  = desc("rate_limit_overload_streams", "Answers that are being sent for far longer than others take.", "route")
	overloadWaiting  = desc("rate_limit_overload_waiting", "Requests that wait for a place.", "route")
	overloadRequests = desc("rate_limit_overload_requests_total",
		"Requests by level of priority that took a place or were refused: admitted or shed.", "route", "level", "decision")
	overloaded = desc("rate_limit_overloaded", "1 while requests of a level are refused after a short wait.", "route", "level")
)

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.latency.Describe(to)
	m.turns.Describe(to)
	m.waits.Describe(to)
	for _, d := range all {
		to <- d
	}
}

// A sink is where metrics go when they are collected.
type sink chan<- prometheus.Metric

func (to sink) count(d *prometheus.Desc, n uint64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (to sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (to sink) is(d *prometheus.Desc, yes bool, labels ...string) {
	v := 0.0
	if yes {
		v = 1
	}
	to.gauge(d, v, labels...)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	to := sink(metrics)
	m.latency.Collect(metrics)
	m.turns.Collect(metrics)
	m.collectRules(to)
	m.collectStore(to)
	m.collectOperation(to)
	for _, p := range m.placing.InProgress(m.options.MaxRules) {
		to.gauge(inProgress, float64(p.Requests), p.Rule.Name, p.Rule.Tier)
		to.gauge(inLine, float64(p.Waiting), p.Rule.Name, p.Rule.Tier)
		to.gauge(atOnce, float64(p.Rule.Concurrency.Max), p.Rule.Name, p.Rule.Tier)
	}
	m.collectOverload(to)
	m.collectPace(to)
}

// collectRules is what was decided.
func (m *Metrics) collectRules(to sink) {
	for _, o := range middleware.Outcomes() {
		to.count(outcomes, m.tally.Outcome(o), o.String())
	}
	list := m.tally.Rules() // by rule
	for i, r := range list {
		for _, d := range tally.Decisions() {
			to.count(requests, r.Count[d], r.Rule, d.String(), r.Tier)
		}
		if i > 0 { // the sum over tiers goes with the last
			if before := list[i-1]; before.Rule == r.Rule {
				for d, n := range before.Count {
					list[i].Count[d] += n
				}
			}
		}
		if i+1 == len(list) || list[i+1].Rule != r.Rule {
			to.count(exceeded, list[i].Count[tally.Refused], r.Rule)
			to.count(shadowed, list[i].Count[tally.ShadowRefused], r.Rule)
		}
	}
	to.count(overCap, m.tally.Dropped())
}

// collectStore is how the store is.
func (m *Metrics) collectStore(to sink) {
	s := m.tally.Store
	to.count(storeErrors, m.tally.Errors(), s.Kind)
	if s.Memory != nil {
		stats := s.Memory()
		to.gauge(cells, float64(stats.Cells))
		to.gauge(bytes, float64(stats.Bytes))
		to.count(evicted, stats.Evicted)
		to.count(overflowed, stats.Overflowed)
	}
	if s.Failover != nil {
		stats := s.Failover()
		to.is(degraded, stats.Degraded, s.Kind)
		to <- prometheus.MustNewConstMetric(degradedFor, prometheus.CounterValue, s.Degraded(stats).Seconds(), s.Kind)
		to.is(breaker, !stats.Degraded, s.Kind, "closed")
		to.is(breaker, stats.Degraded, s.Kind, "open")
		to.count(byServer, stats.Decided, s.Kind, "server")
		to.count(byServer, stats.Local, s.Kind, "fail_local")
		to.count(byServer, stats.Open, s.Kind, "fail_open")
		to.count(byServer, stats.Closed, s.Kind, "fail_closed")
		if s.Kind == "redis" {
			to.count(redisErrors, stats.Failures)
		}
	}
	if s.Batches != nil {
		sent, remembered := s.Batches()
		to.count(redisBatches, sent)
		to.count(redisRefusals, remembered)
	}
}

// collectOperation is what operators do, and escalation.
func (m *Metrics) collectOperation(to sink) {
	var list bans.List
	if w := m.watcher.Load(); w != nil {
		loaded, refused, last, err := (*w).Reloads()
		to.count(reloads, loaded, "loaded")
		to.count(reloads, refused, "refused")
		to.is(reloadOK, err == nil)
		to.gauge(reloadAt, float64(last.UnixMilli())/1000)
		list = (*w).Bans()
	}
	if m.options.Bans != nil {
		list = m.options.Bans
	}
	if list != nil {
		to.gauge(banned, float64(m.bans.of(list)))
	}
	if shared, ok := list.(sharedBans); ok {
		to.gauge(stale, shared.Stale().Seconds())
	}
}

// collectOverload is what the service has room for.
func (m *Metrics) collectOverload(to sink) {
	overload := m.options.Overload
	if w := m.watcher.Load(); w != nil && overload == nil {
		overload, _ = (*w).Overload().(*shed.Limiter)
	}
	if overload == nil {
		return
	}
	for _, s := range overload.Stats() {
		to.gauge(overloadLimit, float64(s.Limit), s.Route)
		to.gauge(overloadInFlight, float64(s.InFlight), s.Route)
		to.gauge(overloadStreams, float64(s.Streams), s.Route)
		to.gauge(overloadWaiting, float64(s.Waiting), s.Route)
		for _, level := range s.Levels {
			to.count(overloadRequests, level.Admitted, s.Route, level.Name, "admitted")
			to.count(overloadRequests, level.Shed, s.Route, level.Name, "shed")
			to.is(overloaded, level.Overloaded, s.Route, level.Name)
		}
	}
}
