package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/internal/whatif"
)

// A whatIfView is what a limit would have refused of the last hour's demand.
type whatIfView struct {
	Text  string   `json:"text"`
	Now   string   `json:"now,omitempty"` // the same of the limit in force, and what it did refuse
	Notes []string `json:"notes"`         // what is not known

	Clients  whatif.Estimate `json:"clients"` // that it refuses something
	Requests whatif.Estimate `json:"requests"`
	Followed int64           `json:"followed"` // clients
	Each     int64           `json:"each"`     // one client of so many is followed
}

// tryWait is how long it may take to try a limit.
const tryWait = 3 * time.Second

// whatIf answers a query of the page: rule, tier and limit.
func (d *Dashboard) whatIf(ctx context.Context, query url.Values) (*whatIfView, error) {
	rule, tier := query.Get("rule"), query.Get("tier")
	limit, err := limiter.Parse(query.Get("limit"))
	if err != nil {
		return nil, mistake{err}
	}
	wanted, err := limiter.NewQuota("what-if", "", limit)
	if err != nil {
		return nil, mistake{err}
	}
	info, err := d.judgeable(rule, tier)
	if err != nil {
		return nil, err
	}
	h, err := d.lastHour(info)
	if err != nil {
		return nil, err
	}
	if !d.trying.TryLock() {
		return nil, mistakef("another limit is being tried: ask again in some seconds")
	}
	defer d.trying.Unlock()
	ctx, cancel := context.WithTimeout(ctx, tryWait)
	defer cancel()
	result, err := h.Try(ctx, wanted, d.start.Unix())
	if err != nil {
		return nil, mistakef("to try %s takes more than %v, as it remembers every event: try it with another algorithm", limit, tryWait)
	}
	units, unitsKnown := result.EstimateUnits()
	v := &whatIfView{
		Text:     h.told(limit.String(), result),
		Clients:  result.EstimateKeys(),
		Requests: units,
		Followed: h.Keys,
		Each:     h.Each,
	}
	if len(info.Limits) == 0 && !info.Own {
		q, err := limiter.NewQuota("in force", "", info.Limit)
		var now whatif.Result
		if err == nil {
			now, err = h.Try(ctx, q, d.start.Unix())
		}
		if err == nil {
			v.Now = "By the same reckoning, " + h.told(info.Limit.String()+", which is in force,", now)
			if h.counted && !info.Shadow {
				v.Now += fmt.Sprintf(" It did refuse %s, %s of all that it was asked.", counted(int64(h.refused), "request"), percent(h.refused, h.asked))
			}
		} else if ctx.Err() != nil {
			v.Now = "The limit in force is not tried beside it, as that takes too long."
		}
	}
	v.Notes = d.unknowns(info, limit, h, unitsKnown)
	return v, nil
}

// judgeable is a rule in force of which requests say what a limit would do.
func (d *Dashboard) judgeable(rule, tier string) (*middleware.RuleInfo, error) {
	var found *middleware.RuleInfo
	for _, l := range d.all() {
		for _, info := range l.Rules() {
			if info.Name == rule && info.Tier == tier && (found == nil || found.Own) {
				found = &info
			}
		}
	}
	switch {
	case found == nil:
		return nil, orNoRule(nil, rule)
	case found.Deny:
		return nil, mistakef("%s refuses every request, whatever the limit", rule)
	case found.Limit == limiter.Limit{}:
		return nil, mistakef("%s has no limit on how often, only on how many at once", rule)
	case found.Counts != middleware.Counts{}:
		return nil, mistakef("%s counts by how requests end, which is not recorded", rule)
	}
	return found, nil
}

// An hour is the demand that a rule met in the last hour, and what it did.
type hour struct {
	*whatif.Demand
	asked, refused uint64
	banned         uint64 // requests that met no rule
	counted        bool   // these are of the same time as the Demand
}

func (d *Dashboard) lastHour(info *middleware.RuleInfo) (*hour, error) {
	c := &d.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	now := d.now()
	c.fold(now)
	s := c.byName[seriesName{info.Name, info.Tier}]
	switch {
	case s == nil && len(c.byName) < maxSeries:
		return nil, mistakef("nothing has been asked of %s since this process began", info.Name)
	case s == nil || s.demand == nil:
		return nil, mistakef("the demand of %s is not recorded: there is room for %d rules and tiers, and others were asked first", info.Name, mostRecorders)
	}
	h := &hour{
		Demand:  s.demand.Demand(now),
		asked:   s.askedPast.sum(0, s.asked.folded, now),
		refused: s.refusedPast.sum(0, s.refused.folded, now),
		banned:  c.outcomePast[middleware.OutcomeBanned].sum(0, c.outcome[middleware.OutcomeBanned].folded, now),
	}
	h.counted = h.Seconds+steps[0] >= min(now-s.began, whatif.Seconds)
	if h.Units == 0 {
		return nil, mistakef("nothing was asked of %s in the last %s", info.Name, h.length())
	}
	return h, nil
}

// told says what a limit refuses.
func (h *hour) told(limit string, r whatif.Result) string {
	clients, all := r.EstimateKeys(), whatif.EstimateKeys(h.Keys, h.Each)
	units, known := r.EstimateUnits()
	in := " in the last " + h.length() + "."
	switch {
	case clients.Exact() && r.Keys == 0:
		return fmt.Sprintf("%s would have refused nothing to any of %s%s", limit, counted(all.About, "client"), in)
	case clients.Exact():
		return fmt.Sprintf("%s would have refused something to %d of %s, %s of %s%s", limit,
			r.Keys, counted(all.About, "client"), percent(uint64(r.Units), uint64(h.Units)), counted(h.Units, h.unit()), in)
	case r.Keys == 0:
		return fmt.Sprintf("%s would have refused nothing to any of the %s that are followed%s Of some %s, up to %s may be such that it does.", limit,
			counted(h.Keys, "client"), in, number(all.About), number(clients.High))
	case !known:
		return fmt.Sprintf("%s would have refused something to some %s (%s to %s) of some %s%s", limit,
			counted(clients.About, "client"), number(clients.Low), number(clients.High), number(all.About), in)
	}
	of := float64(h.Units) * float64(h.Each)
	return fmt.Sprintf("%s would have refused something to some %s (%s to %s) of some %s, and some %s of %ss (%s to %s)%s", limit,
		counted(clients.About, "client"), number(clients.Low), number(clients.High), number(all.About),
		percentOf(float64(units.About)/of), h.unit(), percentOf(float64(units.Low)/of), percentOf(float64(units.High)/of), in)
}

func (h *hour) unit() string {
	if h.Odd {
		return "unit"
	}
	return "request"
}

func (h *hour) length() string {
	if h.Seconds < 120 {
		return fmt.Sprintf("%d s", h.Seconds)
	}
	return fmt.Sprintf("%d min", h.Seconds/60)
}

// unknowns are what the answer does not know.
func (d *Dashboard) unknowns(info *middleware.RuleInfo, limit limiter.Limit, h *hour, unitsKnown bool) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	switch {
	case h.Each > 1:
		note("One client in %d is followed, by a hash of its key and whatever it asks: %s. Others are taken to be alike, so the numbers are between their bounds 19 times in 20.",
			h.Each, number(h.Keys))
		if !unitsKnown {
			note("So few of them would have been refused that how many requests that comes to is not known.")
		}
	case h.Keys > 1:
		note("All clients of this process are followed: nothing is estimated.")
	}
	switch n := d.fleet.others(); {
	case d.store.Kind == "memory":
		note("This process counts for itself. What clients ask of others is not in it, and does not count here.")
	case n > 0:
		note("This is what this process was asked, one of %d. Clients ask the others as well, so where these share their counters more would be refused than this.", n+1)
	default:
		note("This is what this process was asked. Where several processes share their counters, clients ask those as well, and would be refused more than this.")
	}
	if h.refused > 0 && !info.Shadow {
		note("What the rule refused is in the demand; what others refused takes nothing of it, and is not. Not known is what clients did not ask as they were refused before, nor what they only asked again for that.")
	}
	if h.banned > 0 {
		note("Clients that are banned met no rule, so what they asked is not in it.")
	}
	if limit.Per > time.Duration(h.Seconds)*time.Second {
		note("The limit's period is longer than the %s that are known, so it would refuse more than this.", h.length())
	}
	if info.Own {
		note("Some keys have limits of their own, which this does not look at.")
	}
	if info.Settles || info.ChargeAfter || h.Odd {
		note("Requests count as what they were charged when they came, and not as what they came to cost.")
	}
	note("Every client begins with nothing used, and times are known to an eighth of a second.")
	return notes
}

// counted is a number of things.
func counted(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return number(n) + " " + thing + "s"
}

// number is a number for people.
func number(n int64) string { return grouped(strconv.FormatInt(n, 10)) }
