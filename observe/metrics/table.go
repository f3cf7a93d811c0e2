package metrics

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/pace"
)

// A Metric is a counter or a gauge, with the values of its labels as series.
type Metric struct {
	Prometheus    string // its name in Prometheus
	OpenTelemetry string // its name in OpenTelemetry
	Unit          string // as in UCUM, for OpenTelemetry: "s", "By" or "{request}"
	Help          string // one sentence
	Gauge         bool   // else it is a counter
	OfStore       bool   // it describes the store, also where no label names the store

	Labels []string // names of the labels
}

var (
	requests = Metric{"rate_limit_requests_total", "rate_limit.requests", "{request}",
		"Decisions of each rule. A request counts once for every rule that applied: for shares of all requests use the outcomes.",
		false, false, []string{"rule", "decision", "tier"}}
	exceeded = Metric{"rate_limit_exceeded_total", "rate_limit.exceeded", "{request}",
		"Requests that a rule refused, in all tiers.", false, false, []string{"rule"}}
	outcomes = Metric{"rate_limit_outcomes_total", "rate_limit.outcomes", "{request}",
		"Outcomes of the requests that the limiter saw. A request counts once, so use this for shares of all requests.",
		false, false, []string{"outcome"}}

	storeErrors = Metric{"rate_limit_store_errors_total", "rate_limit.store.errors", "{request}",
		"Requests that the store could not decide about: answered 503, unless all their rules are in shadow.",
		false, true, []string{"store"}}
	degraded = Metric{"rate_limit_degraded", "rate_limit.store.degraded", "1",
		"1 while the rules' outage policies decide in place of the store's server.", true, true, []string{"store"}}
	degradedFor = Metric{"rate_limit_degraded_seconds_total", "rate_limit.store.degraded.time", "s",
		"Total time in which the outage policies have decided.", false, true, []string{"store"}}
	failures = Metric{"rate_limit_store_failures_total", "rate_limit.store.failures", "{call}",
		"Failed calls of the store's server: no connection, no answer in time, or an error.", false, true, []string{"store"}}
	byServer = Metric{"rate_limit_store_decisions_total", "rate_limit.store.decisions", "{decision}",
		"Decisions of the store, one for all rules of a request, by its server or by an outage policy: server, fail_local, fail_open or fail_closed.",
		false, true, []string{"store", "by"}}

	bytes      = Metric{"rate_limit_table_bytes", "rate_limit.table.size", "By", "Memory of the store in memory.", true, true, nil}
	evicted    = Metric{"rate_limit_table_evicted_total", "rate_limit.table.evicted", "{key}", "Keys that were evicted at the cap before they were idle.", false, true, nil}
	overflowed = Metric{"rate_limit_table_overflowed_total", "rate_limit.table.overflowed", "{decision}",
		"Decisions at the cap on a counter that new keys share.", false, true, nil}

	inProgress = Metric{"rate_limit_concurrency_in_progress", "rate_limit.concurrency.in_progress", "{request}",
		"Requests of all keys in progress in this process, of a rule with AtOnce.", true, false, []string{"rule", "tier"}}
	inQueue = Metric{"rate_limit_concurrency_waiting", "rate_limit.concurrency.waiting", "{request}",
		"Requests of all keys that wait in this process for a slot.", true, false, []string{"rule", "tier"}}

	units = Metric{"rate_limit_units_total", "rate_limit.units", "{unit}",
		"Units of a rule that reserves: reserved, settled as what requests really cost, or unsettled: of requests that ended and cost what was reserved.",
		false, false, []string{"rule", "state"}}

	overloadLimit = Metric{"rate_limit_overload_limit", "rate_limit.overload.limit", "{request}",
		"How many requests may be in flight.", true, false, []string{"route"}}
	overloadInFlight = Metric{"rate_limit_overload_in_flight", "rate_limit.overload.in_flight", "{request}",
		"Requests in flight, without streams.", true, false, []string{"route"}}
	overloadWaiting = Metric{"rate_limit_overload_waiting", "rate_limit.overload.waiting", "{request}",
		"Requests that wait for a slot.", true, false, []string{"route"}}
	overloadRequests = Metric{"rate_limit_overload_requests_total", "rate_limit.overload.requests", "{request}",
		"Requests by level of priority: admitted or shed.", false, false, []string{"route", "level", "decision"}}

	paceAttempts = Metric{"rate_limit_pace_attempts_total", "rate_limit.pace.attempts", "{attempt}",
		"Attempts to send a request to another server, by outcome. A request that is sent again counts again.", false, false, []string{"rule", "outcome"}}
	paceRetries = Metric{"rate_limit_pace_retries_total", "rate_limit.pace.retries", "{attempt}",
		"Attempts that were followed by a retry.", false, false, []string{"rule"}}
	paceCooldown = Metric{"rate_limit_pace_cooldown_seconds", "rate_limit.pace.cooldown", "s",
		"Remaining time of the longest cooldown of the rule's keys, in which no request is sent.", true, false, []string{"rule"}}
	paceWaiting = Metric{"rate_limit_pace_waiting", "rate_limit.pace.waiting", "{request}",
		"Outgoing requests that wait.", true, false, []string{"rule"}}

	reloads = Metric{"rate_limit_reloads_total", "rate_limit.reloads", "{reload}",
		"Attempts to load rules, the first one included.", false, false, []string{"result"}}
	reloadOK = Metric{"rate_limit_last_reload_successful", "rate_limit.last_reload.successful", "1",
		"1 if the rules as they are written are in force.", true, false, nil}
	banned = Metric{"rate_limit_bans_active", "rate_limit.bans.active", "{ban}",
		"Bans in force in this process.", true, false, nil}
	stale = Metric{"rate_limit_bans_stale_seconds", "rate_limit.bans.stale", "s",
		"For how long this process may have missed bans of the shared list; 0 while it follows the list.", true, false, nil}

	topRefused = Metric{"rate_limit_top_client_refused", "rate_limit.top_client.refused", "{request}",
		"Refusals of the clients that a rule refused most in the last minutes, as far back as the window of package offenders.",
		true, false, []string{"rule", "client"}}

	all = []*Metric{
		&requests, &exceeded, &outcomes, &storeErrors, &degraded, &degradedFor, &failures, &byServer,
		&bytes, &evicted, &overflowed, &inProgress, &inQueue, &units,
		&overloadLimit, &overloadInFlight, &overloadWaiting, &overloadRequests,
		&paceAttempts, &paceRetries, &paceCooldown, &paceWaiting,
		&reloads, &reloadOK, &banned, &stale, &topRefused,
	}
)

// All returns all metrics. They are the same in each call, so they may be keys of a map.
func All() []*Metric { return slices.Clone(all) }

// An Emit receives a value of a metric, with the values of its labels.
type Emit func(m *Metric, value float64, labels ...string)

func (emit Emit) is(m *Metric, yes bool, labels ...string) {
	value := 0.0
	if yes {
		value = 1
	}
	emit(m, value, labels...)
}

// Read emits the values of all metrics. A metric whose value is not known has none.
func (t *Table) Read(emit Emit) {
	for _, o := range middleware.Outcomes() {
		emit(&outcomes, float64(t.outcomes[o].Load()), o.String())
	}
	ofRule := map[string]float64{}
	t.rules.each(func(n name, c *counts) {
		for d, word := range decisions {
			emit(&requests, float64(c[d].Load()), n.rule, word, n.tier)
		}
		ofRule[n.rule] += float64(c[refused].Load())
	})
	for rule, n := range ofRule {
		emit(&exceeded, n, rule)
	}
	emit(&storeErrors, float64(t.errors.Load()), t.store.Kind)
	readStore(emit, t.store)
	for _, p := range t.inProgress() {
		emit(&inProgress, float64(p.Requests), p.Rule.Name, p.Rule.Tier)
		emit(&inQueue, float64(p.Waiting), p.Rule.Name, p.Rule.Tier)
	}
	for _, r := range t.reservations() {
		emit(&units, float64(r.Reserved), r.Rule, "reserved")
		emit(&units, float64(r.Settled), r.Rule, "settled")
		emit(&units, float64(r.Unsettled), r.Rule, "unsettled")
	}
	if l := t.overload(); l != nil {
		readOverload(emit, l.Stats())
	}
	t.paced.each(func(n name, c *counts) {
		for _, o := range pace.Outcomes() {
			emit(&paceAttempts, float64(c[o].Load()), n.rule, o.String())
		}
		emit(&paceRetries, float64(c[retried].Load()), n.rule)
	})
	for _, s := range t.waiting() {
		emit(&paceWaiting, float64(s.Waiting), s.Rule)
		emit(&paceCooldown, max(0, time.Until(s.Until).Seconds()), s.Rule)
	}
	t.readRules(emit)
	if t.options.Top != nil {
		t.readTop(emit)
	}
}

// readTop emits the clients that are refused most. Clients choose their keys, and a system of metrics may refuse
// everything if a label is no UTF-8 or if two series have the same labels. So a digest stands for such a key, and of
// two keys that look alike, one is left out.
func (t *Table) readTop(emit Emit) {
	for _, rule := range t.options.Top.Rules() {
		shown := map[string]bool{}
		for _, o := range t.options.Top.Top(rule.Name, cmp.Or(t.options.TopClients, defaultTopClients)) {
			if !utf8.ValidString(o.Key) {
				o.Key = o.Digest
			}
			if !shown[o.Key] {
				emit(&topRefused, float64(o.Refused.N), rule.Name, o.Key)
			}
			shown[o.Key] = true
		}
	}
}

// readRules emits the reloads of the rules that are followed, and their bans.
func (t *Table) readRules(emit Emit) {
	list := t.options.Bans
	if w := t.watcher.Load(); w != nil {
		loaded, refused, _, err := (*w).Reloads()
		emit(&reloads, float64(loaded), "loaded")
		emit(&reloads, float64(refused), "refused")
		emit.is(&reloadOK, err == nil)
		if list == nil {
			list = (*w).Bans()
		}
	}
	if list == nil {
		return
	}
	emit(&banned, float64(list.Count()))
	if shared, ok := list.(interface{ Stale() time.Duration }); ok {
		emit(&stale, shared.Stale().Seconds())
	}
}

func readStore(emit Emit, s *tally.Store) {
	if s.Memory != nil {
		stats := s.Memory()
		emit(&bytes, float64(stats.Bytes))
		emit(&evicted, float64(stats.Evicted))
		emit(&overflowed, float64(stats.Overflowed))
	}
	if s.Failover == nil {
		return
	}
	stats := s.Failover()
	emit.is(&degraded, stats.Degraded, s.Kind)
	emit(&degradedFor, stats.DegradedInAll.Seconds(), s.Kind)
	emit(&failures, float64(stats.Failures), s.Kind)
	emit(&byServer, float64(stats.Decided), s.Kind, "server")
	emit(&byServer, float64(stats.Local), s.Kind, "fail_local")
	emit(&byServer, float64(stats.Open), s.Kind, "fail_open")
	emit(&byServer, float64(stats.Closed), s.Kind, "fail_closed")
}

func readOverload(emit Emit, stats []shed.Stats) {
	for _, s := range stats {
		emit(&overloadLimit, float64(s.Limit), s.Route)
		emit(&overloadInFlight, float64(s.InFlight), s.Route)
		emit(&overloadWaiting, float64(s.Waiting), s.Route)
		for _, level := range s.Levels {
			emit(&overloadRequests, float64(level.Admitted), s.Route, level.Name, "admitted")
			emit(&overloadRequests, float64(level.Shed), s.Route, level.Name, "shed")
		}
	}
}
