package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// A kind is what contestants are put to: a third party, and what is measured of it.
type kind struct {
	name, about string
	metrics     []race.Metric
	measure     func(f *field, ctx context.Context, contestant string, k kind) (race.Figures, error)
	party       func(ctx context.Context, limit int64) (party, error) // nil: measure has its own
	only        string                                                // the one contestant that takes part; empty: all
}

// Names of kinds.
const (
	byNginx = "nginx"
	byWeir  = "weir"
	cool    = "cooldown"
	dead    = "503"
	closed  = "closed port"
	cost    = "cost"
)

// kinds are all, in the order in which they run.
var kinds = []kind{
	{byNginx, fmt.Sprintf("limit_req with %d/s, burst=%d nodelay", limit, burst), shareMetrics, (*field).share, nginxParty, ""},
	{byWeir, fmt.Sprintf("a token bucket of %d/s with a burst of %d, both families of fields", limit, burst), shareMetrics, (*field).share, weirParty, ""},
	{cool, fmt.Sprintf("%d/s, and after a second one request is answered 429 with Retry-After: %d", coolLimit, int(cooldown/time.Second)), coolMetrics, (*field).cool, nil, ""},
	{dead, "every request is answered 503", deadMetrics, (*field).dead, deadParty, ""},
	{closed, "no connection is taken", deadMetrics, (*field).dead, closedParty, ""},
	{cost, "a request that does not wait, above a transport that answers at once, in one goroutine", costMetrics, (*field).cost, nil, weir},
}

func caseNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

func (k kind) raceCase(s settings) race.Case {
	if k.name == cost {
		return race.Case{Name: k.name, Goroutines: 1, Keys: 1}
	}
	return race.Case{Name: k.name, Goroutines: processes * s.callers, Keys: 1}
}

const (
	limit     = 100   // requests per second
	coolLimit = 1_000 // so that a millisecond is to be seen
)

// Of shares.
const (
	passed  race.Metric = "% of the limit got through"
	refused race.Metric = "% answered 429"
	sent    race.Metric = "sent/s"
)

var shareMetrics = []race.Metric{refused, race.Refused, passed, sent}

// Of cooldowns.
const (
	stopped race.Metric = "ms until all stopped"
	within  race.Metric = "sent within it, after that"
	after   race.Metric = "first second after, % of limit"
	herd    race.Metric = "worst 100 ms of that, % of limit"
)

var coolMetrics = []race.Metric{stopped, within, after, herd}

// known is how soon all processes are to know of a cooldown.
const known = 5 * time.Millisecond

// perCall is of servers that give no answer of use.
const perCall race.Metric = "requests per call"

var deadMetrics = []race.Metric{perCall}

// A field is where they are measured.
type field struct {
	settings
	redis      *race.Server
	service    service
	complaints map[string]string // by contestant, the first error
}

// run runs all contestants in one kind.
func (f *field) run(ctx context.Context, k kind) (*race.Results, error) {
	plan := &race.Plan{
		Cases: []race.Case{k.raceCase(f.settings)}, Rounds: f.Rounds, Slice: f.Slice, Metrics: k.metrics,
		Progress: race.ProgressTo(race.Progress(os.Stderr)),
		Measure: func(ctx context.Context, c race.Contestant, _ race.Case) (race.Figures, error) {
			if err := f.redis.Client.FlushAll(ctx).Err(); err != nil {
				return nil, err
			}
			return k.measure(f, ctx, c.Name, k)
		},
	}
	for _, c := range contestants {
		if (len(f.Only) == 0 || slices.Contains(f.Only, c.name)) && (k.only == "" || k.only == c.name) {
			plan.Contestants = append(plan.Contestants, race.Contestant{Name: c.name, About: c.about})
		}
	}
	return plan.Run(ctx)
}

// call has the service call a party. Began hears when.
func (f *field) call(contestant string, p party, limit int64, duration time.Duration, began func(time.Time)) (outcome, error) {
	t := task{Contestant: contestant, URL: p.url(), Redis: f.redis.Addr, Limit: limit, Callers: f.callers, Duration: duration}
	return f.service.perform(t, began)
}

// complain notes an error of a contestant's where there should be none.
func (f *field) complain(contestant string, k kind, o outcome) {
	if o.Error != "" && f.complaints[contestant] == "" {
		f.complaints[contestant] = fmt.Sprintf("%s (%d of %d calls), %s", k.name, o.Failed, o.Calls, o.Error)
	}
}

// warmUp is not measured by share, but for its refusals.
const warmUp = time.Second

// share is how much of a limit gets through. The party is another one each time, so that
// nothing is left of those before.
func (f *field) share(ctx context.Context, contestant string, k kind) (race.Figures, error) {
	p, err := k.party(ctx, limit)
	if err != nil {
		return nil, err
	}
	defer p.close()
	var began time.Time
	o, err := f.call(contestant, p, limit, warmUp+f.Slice, func(t time.Time) { began = t })
	if err != nil {
		return nil, err
	}
	f.complain(contestant, k, o)
	all, err := p.arrivals(began)
	if err != nil {
		return nil, err
	}
	through, out, from, to := 0, 0, began.Add(warmUp), began.Add(warmUp+f.Slice)
	figures := race.Figures{}
	for _, a := range all {
		if a.status == http.StatusTooManyRequests {
			figures[race.Refused]++
		}
		if a.at.Before(from) || !a.at.Before(to) {
			continue
		}
		out++
		if a.status == http.StatusOK {
			through++
		}
	}
	figures[passed] = 100 * float64(through) / (limit * f.Slice.Seconds())
	figures[sent] = float64(out) / f.Slice.Seconds()
	figures[refused] = 100 * figures[race.Refused] / float64(max(len(all), 1))
	return figures, nil
}

// cool is what becomes of a refusal that one caller is told of.
func (f *field) cool(_ context.Context, contestant string, k kind) (race.Figures, error) {
	p, err := newCoolParty()
	if err != nil {
		return nil, err
	}
	defer p.close()
	var began time.Time
	o, err := f.call(contestant, p, coolLimit, warmUp+cooldown+1500*time.Millisecond, func(t time.Time) {
		began = t
		p.refuseAt(t.Add(warmUp))
	})
	if err != nil {
		return nil, err
	}
	f.complain(contestant, k, o)
	refusal, err := p.refusal()
	if err != nil {
		return nil, err
	}
	all, err := p.arrivals(began)
	if err != nil {
		return nil, err
	}
	const bin = 100 * time.Millisecond
	bins := make([]float64, time.Second/bin)
	figures := race.Figures{}
	for _, a := range all {
		switch since := a.at.Sub(refusal); {
		case since < 0: // the one that was refused, too
		case since < cooldown:
			figures[stopped] = max(figures[stopped], since.Seconds()*1000)
			if since > known {
				figures[within]++
			}
		case since < cooldown+time.Second:
			figures[after] += 100. / coolLimit
			bins[(since-cooldown)/bin] += 100. / (coolLimit * bin.Seconds())
		}
	}
	figures[herd] = slices.Max(bins)
	return figures, nil
}

// dead is how many requests a server gets that gives no answer of use.
func (f *field) dead(ctx context.Context, contestant string, k kind) (race.Figures, error) {
	p, err := k.party(ctx, limit)
	if err != nil {
		return nil, err
	}
	defer p.close()
	o, err := f.call(contestant, p, limit, f.Slice, func(time.Time) {})
	if err != nil {
		return nil, err
	}
	return race.Figures{perCall: float64(o.Sent) / float64(max(o.Calls, 1))}, nil
}

// goals are what pace is meant to reach.
func goals(s settings) (goals []race.Goal) {
	for _, k := range kinds {
		add := func(m race.Metric, of string, b race.Bound) {
			goals = append(goals, race.Goal{Metric: m, Case: k.raceCase(s), Of: of, Bound: b})
		}
		switch k.name {
		case byNginx, byWeir:
			add(passed, weir, race.AtLeast(98))
			add(refused, weir, race.AtMost(0.1))
		case cool:
			add(stopped, weir, race.AtMost(float64(known/time.Millisecond)))
			add(within, weir, race.AtMost(0))
			add(after, weir, race.AtMost(100))
		case dead, closed:
			add(perCall, weir, race.AtMost(1.1))
		case cost:
			add(decisions, weir, race.AtMost(2))
		}
	}
	return goals
}
