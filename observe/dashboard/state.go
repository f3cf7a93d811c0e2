package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A state is everything that the page shows.
type state struct {
	Now    int64    `json:"now"`    // Unix seconds
	Second int64    `json:"second"` // since the start: the present one
	Rows   []row    `json:"rows"`
	Hidden int      `json:"hidden"` // rows that are not shown
	Names  []string `json:"names"`  // of outcomes

	History [][]uint32   `json:"history"`          // of each outcome, by the second
	Series  []seriesView `json:"series"`           // of rows with requests
	Places  [][3]int     `json:"places,omitempty"` // a row's number, requests in progress, and that wait
	Units   [][4]uint64  `json:"units,omitempty"`  // a row's number, units reserved, settled, unsettled

	Verdict  verdict       `json:"verdict"`
	Store    storeView     `json:"store"`
	Top      []topView     `json:"top"`
	Unlisted unlisted      `json:"unlisted"`
	Bans     *bansView     `json:"bans,omitempty"`
	Overload *overloadView `json:"overload,omitempty"`
	Outage   bool          `json:"outage,omitempty"`
	Marks    []mark        `json:"marks,omitempty"`
}

// A row is a rule in force, in one tier.
type row struct {
	Rule     string `json:"rule"`
	Tier     string `json:"tier,omitempty"`
	Limit    string `json:"limit"`
	For      string `json:"for,omitempty"`
	OnOutage string `json:"onOutage,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"`
	Outage   string `json:"outage"` // what it does while the store gives no answer
}

type seriesView struct {
	Row     int      `json:"row"`
	Asked   []uint32 `json:"asked"`
	Refused []uint32 `json:"refused"`
}

type storeView struct {
	Bad   bool   `json:"bad"`
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`

	Servers []serverView `json:"servers,omitempty"` // that do not answer

	degraded uint64 // decisions by outage policies in the last ten seconds
}

type bansView struct {
	Total int       `json:"total"`
	List  []banView `json:"list"`
	Error string    `json:"error,omitempty"`
}

type banView struct {
	Key   string `json:"key"`
	Name  string `json:"name,omitempty"` // the key, if Key is a digest and keys may be shown
	Rule  string `json:"rule,omitempty"`
	Until int64  `json:"until,omitempty"` // Unix milliseconds; 0: until it is lifted
	Times int    `json:"times,omitempty"`
	Since int64  `json:"since,omitempty"` // Unix milliseconds; 0: not known

	Reason string `json:"reason,omitempty"` // the operator's, or what the rule bans for
	By     string `json:"by,omitempty"`
}

const (
	maxRows     = 500
	maxBansSeen = 100
	bansEvery   = 5  // seconds
	bansRest    = 50 // times as long as it took to read many bans
	bansWait    = 500 * time.Millisecond
)

// latest is the latest state, which all viewers share for a second.
type latest struct {
	sync.Mutex
	second  int64
	state   []byte // nil: it has to be read again
	bans    *bansView
	bansDue int64 // when they are read again
}

// state returns the state as JSON.
func (d *Dashboard) state() []byte {
	l := &d.latest
	l.Lock()
	defer l.Unlock()
	now := d.now()
	if l.state != nil && l.second == now {
		return l.state
	}
	if d.options.Bans != nil && (l.bans == nil || now >= l.bansDue) {
		began := time.Now()
		l.bans = d.lookAtBans()
		l.bansDue = now + max(bansEvery, int64(bansRest*time.Since(began)/time.Second))
	}
	l.second, l.state = now, mustMarshal(d.look(now, l.bans))
	return l.state
}

// look makes the present state. d.latest is locked.
func (d *Dashboard) look(now int64, bans *bansView) *state {
	s := &state{Now: time.Now().Unix(), Second: now, Bans: bans}
	health := d.health()
	s.Rows, s.Hidden = d.rows(health)
	s.Outage, s.Marks = health.Degraded, marksOf(health)
	for _, o := range middleware.Outcomes() {
		s.Names = append(s.Names, o.String())
	}
	d.count(s, health)
	s.Top, s.Unlisted = d.lookAtTop(s.Rows)
	s.Verdict = d.judge(s)
	return s
}

func mustMarshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("dashboard: %v", err)) // all of its types can be marshaled
	}
	return text
}

// health returns the state of the store's server; zero if the store does not report it.
func (d *Dashboard) health() (health failover.Stats) {
	if d.store.Failover != nil {
		health = d.store.Failover()
	}
	return health
}

// rows returns the rules in force, and how many more there are.
func (d *Dashboard) rows(health failover.Stats) (rows []row, hidden int) {
	known := map[row]bool{}
	for _, l := range d.all() {
		for _, info := range l.Rules() {
			r := row{
				Rule: info.Name, Tier: info.Tier, Limit: info.LimitText(), For: info.Route,
				OnOutage: info.OnOutage.String(), Shadow: info.Mode == middleware.Shadow, Outage: inOutage(health, &info),
			}
			switch {
			case info.ForTier != "":
				r.For = "tier " + info.ForTier
			case info.Default:
				r.For = "default"
			}
			if known[r] {
				continue
			}
			known[r] = true
			if len(rows) == maxRows {
				hidden++
				continue
			}
			rows = append(rows, r)
		}
	}
	return rows, hidden
}

// count adds the counts to the state.
func (d *Dashboard) count(s *state, health failover.Stats) {
	c := &d.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fold(s.Second)
	for _, o := range middleware.Outcomes() {
		s.History = append(s.History, c.outcome[o].seconds(s.Second, span))
	}
	for i, row := range s.Rows {
		known := c.byName[seriesName{row.Rule, row.Tier}]
		if known != nil && known.asked.sum(s.Second, span) > 0 {
			s.Series = append(s.Series, seriesView{i, known.asked.seconds(s.Second, span), known.refused.seconds(s.Second, span)})
		}
	}
	s.Places, s.Units = d.places(s.Rows), d.units(s.Rows)
	s.Store = d.lookAtStore(s.Second, health)
	s.Overload = d.lookAtOverload()
}

// places returns the requests in progress of the rows that have some.
func (d *Dashboard) places(rows []row) (places [][3]int) {
	for _, l := range d.all() {
		for _, p := range l.InProgress() {
			if p.Requests == 0 && p.Waiting == 0 {
				continue
			}
			if i := slices.IndexFunc(rows, func(r row) bool { return r.Rule == p.Rule.Name && r.Tier == p.Rule.Tier }); i >= 0 {
				places = append(places, [3]int{i, int(p.Requests), int(p.Waiting)})
			}
		}
	}
	return places
}

// units returns the units of the first row of each rule that reserves some.
func (d *Dashboard) units(rows []row) (units [][4]uint64) {
	for _, l := range d.all() {
		for _, u := range l.Reservations() {
			if i := slices.IndexFunc(rows, func(r row) bool { return r.Rule == u.Rule }); i >= 0 && u.Reserved > 0 {
				units = append(units, [4]uint64{uint64(i), u.Reserved, u.Settled, u.Unsettled})
			}
		}
	}
	return units
}

// lookAtStore returns the state of the store. The counts are locked.
func (d *Dashboard) lookAtStore(now int64, health failover.Stats) storeView {
	const recent = 5 // seconds
	c := &d.counts
	v := storeView{Servers: downOf(health), degraded: c.degraded.sum(now, 10)}
	failed := false
	if last := c.lastErr.Load(); last != nil && now-last.second < 60+int64(health.DegradedFor/time.Second) {
		v.Error = cut(last.err.Error())
		failed = now-last.second < recent
	} else if health.LastError != nil {
		v.Error = cut(health.LastError.Error())
	}
	switch {
	case health.Degraded:
		v.Bad, v.Text = true, "does not answer"
		if health.DegradedFor >= time.Second {
			v.Text = "has not answered for " + operate.Duration(health.DegradedFor)
		}
	case failed:
		v.Bad, v.Text = true, "cannot decide"
	case d.store.Failover == nil && c.degraded.sum(now, recent) > 0:
		v.Bad, v.Text = true, "does not answer"
	case d.options.Store != nil && d.store.Kind == "memory":
		v.Text = "counts in this process"
	default:
		v.Text = "answers"
	}
	return v
}

func (d *Dashboard) lookAtBans() *bansView {
	ctx, cancel := context.WithTimeout(context.Background(), bansWait)
	defer cancel()
	all, err := d.options.Bans.All(ctx)
	v := &bansView{Total: d.options.Bans.Count(), List: []banView{}}
	if err != nil {
		v.Error = cut(err.Error())
	}
	all = all[:min(len(all), maxBansSeen)]
	var names map[string]string
	if slices.ContainsFunc(all, func(b bans.Ban) bool { return b.Digest != "" }) { // else the list has the keys
		names = d.names()
	}
	rules := d.rulesByName()
	for _, ban := range all {
		view := d.banView(ban, rules)
		view.Name = names[ban.Digest]
		v.List = append(v.List, view)
	}
	return v
}

func (d *Dashboard) banView(ban bans.Ban, rules map[string]*middleware.RuleInfo) banView {
	v := banView{
		Key: d.shownBan(ban), Rule: ban.Rule, Times: ban.Times, Reason: ban.Reason, By: ban.By,
	}
	if rule := rules[ban.Rule]; rule != nil && rule.Escalate.After > 0 {
		v.Reason = escalated(rule)
	}
	if !ban.Since.IsZero() {
		v.Since = ban.Since.UnixMilli()
	}
	if !ban.Until.IsZero() {
		v.Until = ban.Until.UnixMilli()
	}
	return v
}

// rulesByName returns the rules in force.
func (d *Dashboard) rulesByName() map[string]*middleware.RuleInfo {
	rules := map[string]*middleware.RuleInfo{}
	for _, l := range d.all() {
		for _, info := range l.Rules() {
			rules[info.Name] = &info
		}
	}
	return rules
}
