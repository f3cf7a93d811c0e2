package simulate

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/middleware"
)

// A Tally counts the decisions on a log's requests. Its memory depends on the clients and rules.
type Tally struct {
	Counts
	began, last int64

	rules   []RuleCounts
	numbers map[[2]string]int // of rules, by name and tier
	clients map[string]*client
}

// Counts are numbers of requests.
type Counts struct {
	Requests  int64 `json:"requests"`
	Refused   int64 `json:"refused"`          // refused by a limit
	Banned    int64 `json:"banned"`           // refused because of a ban
	NoKey     int64 `json:"no_key"`           // refused without a key
	Delayed   int64 `json:"delayed"`          // allowed after a delay
	Warned    int64 `json:"warned"`           // allowed with a warning that the limit is near
	Exempt    int64 `json:"exempt"`           // allowed by allow
	Unlimited int64 `json:"unlimited"`        // allowed because no rule applies
	Answered  int64 `json:"log_answered_429"` // answered 429 according to the log
}

// Stopped returns how many requests did not reach their handler.
func (c *Counts) Stopped() int64 { return c.Refused + c.Banned + c.NoKey }

type client struct {
	requests, stopped int64
	first             int64            // when a request was first stopped
	by                map[string]int64 // stopped requests by what stopped them; nil without any
}

// RuleCounts are the decisions of a rule, or of the limit of one of its tiers.
type RuleCounts struct {
	Rule   string `json:"rule"`
	Tier   string `json:"tier,omitempty"`
	Limit  string `json:"limit"`
	Shadow bool   `json:"shadow,omitempty"` // the refusals are what it would have refused

	Asked   int64 `json:"asked"`
	Refused int64 `json:"refused"`
	Keys    int64 `json:"keys_refused"` // how many keys it refused at least once

	refusedKeys map[string]struct{}
}

// What stops requests that no rule refuses. No rule has these names, which end with a space.
const (
	byBan   = "ban "
	byNoKey = "no key "
)

// NewTally returns an empty Tally.
func NewTally(rules []middleware.RuleInfo) *Tally {
	t := &Tally{numbers: map[[2]string]int{}, clients: map[string]*client{}}
	for i := range rules {
		t.row(&rules[i])
	}
	return t
}

// Add counts a request and its decision.
func (t *Tally) Add(e *accesslog.Entry, at int64, d *Decision) {
	if t.Requests == 0 || at < t.began {
		t.began = at
	}
	t.last = max(t.last, at)
	t.Requests++
	if e.Status == http.StatusTooManyRequests {
		t.Answered++
	}
	c := t.clients[d.Client]
	if c == nil {
		c = &client{}
		t.clients[strings.Clone(d.Client)] = c
	}
	c.requests++
	for i := range d.Rules {
		t.addRule(&d.Rules[i])
	}
	by := ""
	switch {
	case d.Outcome == middleware.OutcomeRefused:
		t.Refused++
		by = d.Refusal.Rule
	case d.Outcome == middleware.OutcomeBanned:
		t.Banned++
		by = byBan
	case !d.Passed():
		t.NoKey++
		by = byNoKey
	case d.Outcome == middleware.OutcomeExempt:
		t.Exempt++
	case len(d.Rules) == 0:
		t.Unlimited++
	}
	if d.Soft {
		t.Warned++
	}
	if d.Passed() && d.Delay > 0 {
		t.Delayed++
	}
	if by == "" {
		return
	}
	if c.stopped == 0 {
		c.first, c.by = at, map[string]int64{}
	}
	c.stopped++
	c.by[by]++
}

// row returns the counts of a rule, which are new if it has none.
func (t *Tally) row(r *middleware.RuleInfo) *RuleCounts {
	name := [2]string{r.Name, r.Tier}
	number, ok := t.numbers[name]
	if !ok {
		number = len(t.rules)
		t.numbers[name] = number
		t.rules = append(t.rules, RuleCounts{
			Rule: r.Name, Tier: r.Tier, Limit: r.LimitText(), Shadow: r.Mode == middleware.Shadow, refusedKeys: map[string]struct{}{},
		})
	}
	return &t.rules[number]
}

func (t *Tally) addRule(d *middleware.RuleResult) {
	r := t.row(d.Rule)
	r.Asked++
	if d.Allowed {
		return
	}
	r.Refused++
	if _, ok := r.refusedKeys[d.Key]; !ok {
		r.refusedKeys[strings.Clone(d.Key)] = struct{}{}
		r.Keys++
	}
}

// A Summary is the result of a simulation.
type Summary struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Counts
	Clients        int64        `json:"clients"`
	ClientsStopped int64        `json:"clients_stopped"` // clients with a stopped request
	Rules          []RuleCounts `json:"rules"`
	Hit            []Hit        `json:"hit"` // the clients with the most stopped requests
}

// A Hit is a client with stopped requests.
type Hit struct {
	Client   string    `json:"client"`
	Requests int64     `json:"requests"`
	Stopped  int64     `json:"stopped"`
	By       string    `json:"by"` // what stopped it most often: a rule, "ban" or "no key"
	First    time.Time `json:"first"`
}

// Summary returns the counts so far, and the clients with the most stopped requests, as show writes them.
func (t *Tally) Summary(most int, shown func(client string) string) *Summary {
	s := &Summary{
		From: time.UnixMicro(t.began).UTC(), To: time.UnixMicro(t.last).UTC(), Counts: t.Counts,
		Clients: int64(len(t.clients)), Rules: t.rules, Hit: []Hit{},
	}
	for name, c := range t.clients {
		if c.stopped > 0 {
			s.ClientsStopped++
			s.Hit = append(s.Hit, Hit{name, c.requests, c.stopped, c.mostBy(), time.UnixMicro(c.first).UTC()})
		}
	}
	slices.SortFunc(s.Hit, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Stopped, a.Stopped), cmp.Compare(a.Client, b.Client))
	})
	s.Hit = s.Hit[:min(most, len(s.Hit))]
	for i := range s.Hit {
		s.Hit[i].Client = shown(s.Hit[i].Client)
	}
	return s
}

func (c *client) mostBy() string {
	names := slices.Sorted(maps.Keys(c.by))
	return strings.TrimSpace(slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(c.by[a], c.by[b]) }))
}

// Changes counts the requests that only the old or only the new rules stop.
type Changes struct {
	Newly    int64 `json:"requests_newly_stopped"`
	NoLonger int64 `json:"requests_no_longer_stopped"`
}

// Add counts a request that passed or not, before and after the change.
func (c *Changes) Add(before, after bool) {
	switch {
	case before && !after:
		c.Newly++
	case !before && after:
		c.NoLonger++
	}
}

// A Change is the effect of new rules on clients.
type Change struct {
	Old Summary `json:"old"`
	New Summary `json:"new"`
	Changes

	ClientsNewly    int64 `json:"clients_newly_stopped"`
	ClientsNoLonger int64 `json:"clients_no_longer_stopped"`

	Clients []ClientChange `json:"clients"` // the clients with the largest differences
}

// A ClientChange is how often the old and the new rules stopped a client.
type ClientChange struct {
	Client   string `json:"client"`
	Requests int64  `json:"requests"`
	Old      int64  `json:"old"`
	New      int64  `json:"new"`
}

// Compare returns the effect of new rules, with at most so many clients.
func Compare(before, after *Tally, changes Changes, most int, shown func(string) string) *Change {
	c := &Change{Old: *before.Summary(most, shown), New: *after.Summary(most, shown), Changes: changes, Clients: []ClientChange{}}
	for name, now := range after.clients {
		old := int64(0)
		if then := before.clients[name]; then != nil { // otherwise the new rules name clients differently
			old = then.stopped
		}
		if old == 0 && now.stopped > 0 {
			c.ClientsNewly++
		}
		if old > 0 && now.stopped == 0 {
			c.ClientsNoLonger++
		}
		if old != now.stopped {
			c.Clients = append(c.Clients, ClientChange{name, now.requests, old, now.stopped})
		}
	}
	off := func(c ClientChange) int64 { return max(c.Old-c.New, c.New-c.Old) }
	slices.SortFunc(c.Clients, func(a, b ClientChange) int {
		return cmp.Or(cmp.Compare(off(b), off(a)), cmp.Compare(a.Client, b.Client))
	})
	c.Clients = c.Clients[:min(most, len(c.Clients))]
	for i := range c.Clients {
		c.Clients[i].Client = shown(c.Clients[i].Client)
	}
	return c
}
