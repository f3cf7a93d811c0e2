package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/middleware"
)

// A Fleet is where the processes of a service tell each other of themselves, such as the Board
// of package redisfleet.
type Fleet interface {
	// Tell keeps what a process says until it says something else, leaves, or has said nothing
	// for some minutes.
	Tell(ctx context.Context, process string, text []byte) error

	// Each calls f with what each process said, and how long ago.
	Each(ctx context.Context, f func(process string, text []byte, ago time.Duration)) error

	// Leave forgets what a process said.
	Leave(ctx context.Context, process string) error
}

const (
	tellEvery = 5 * time.Second
	lateAfter = 3 * tellEvery
	fleetWait = 2 * time.Second // for an answer

	reported    = 60  // seconds that a process tells of
	mostTold    = 100 // rules that it tells of
	mostProcess = 50  // that are shown
	mostSums    = 12  // rules of which the sums are shown
)

// reportFormat is the version of what is told. A process that tells in another one is in no sum.
const reportFormat = 1

// A report is what a process tells of itself.
type report struct {
	Format   int               `json:"format"`
	Weir     string            `json:"weir"` // version
	Name     string            `json:"name"`
	Seconds  int64             `json:"seconds"` // that the counts are of
	Outcomes map[string]uint64 `json:"outcomes"`
	Rules    []reportedRule    `json:"rules"` // those that were asked, the busiest in front
	More     int               `json:"more"`  // of these that it does not tell of
	InForce  string            `json:"inForce"`
	Store    string            `json:"store"`
	Bad      bool              `json:"bad"`
}

type reportedRule struct {
	Rule    string `json:"rule"`
	Tier    string `json:"tier,omitempty"`
	Limit   string `json:"limit"`
	Shadow  bool   `json:"shadow,omitempty"`
	Asked   uint64 `json:"asked"`
	Refused uint64 `json:"refused"`
}

// fleet tells of this process, and reads what others tell while a page is in view.
type fleet struct {
	board   Fleet
	process string       // a name that no other has
	watched atomic.Int64 // the second in which a page was last in view; 0: never
	nudges  chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	heard  []heard
	at     time.Time // when it was; zero: never
	failed error     // why not since
	silent error     // why this process could not tell
}

// A heard is what a process told.
type heard struct {
	report
	process string
	ago     time.Duration
	broken  bool // it cannot be read
}

func (f *fleet) start(d *Dashboard) {
	f.process = rand.Text()
	f.nudges, f.ended = make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(f.ended)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { // a call under way ends with the Dashboard
			select {
			case <-d.closed:
				cancel()
			case <-ctx.Done():
			}
		}()
		f.run(ctx, d)
	}()
}

func (f *fleet) run(ctx context.Context, d *Dashboard) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.Background(), fleetWait)
			defer cancel()
			_ = f.board.Leave(leaving, f.process) // else it is late for some minutes
			return
		case <-timer.C:
			f.tell(ctx, d.report())
			timer.Reset(tellEvery)
		case <-f.nudges:
		}
		if w := f.watched.Load(); w > 0 && d.now() < w+int64(lateAfter/time.Second) {
			f.read(ctx)
		}
	}
}

func (f *fleet) tell(ctx context.Context, r report) {
	ctx, cancel := context.WithTimeout(ctx, fleetWait)
	defer cancel()
	err := f.board.Tell(ctx, f.process, mustMarshal(r))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = err
}

func (f *fleet) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fleetWait)
	defer cancel()
	var all []heard
	err := f.board.Each(ctx, func(process string, text []byte, ago time.Duration) {
		h := heard{process: process, ago: ago}
		h.broken = json.Unmarshal(text, &h.report) != nil || h.Format != reportFormat || h.Seconds < 0
		h.bound()
		all = append(all, h)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
	if err == nil {
		f.heard, f.at = all, time.Now()
	}
}

// bound cuts what is shown of what another process told, as its texts are sent to every page.
func (r *report) bound() {
	r.Name, r.Weir, r.Store = cut(r.Name), cut(r.Weir), cut(r.Store)
	r.Rules = r.Rules[:min(len(r.Rules), mostTold)]
	for i := range r.Rules {
		rule := &r.Rules[i]
		rule.Rule, rule.Tier, rule.Limit = cut(rule.Rule), cut(rule.Tier), cut(rule.Limit)
	}
}

// watch notes that a page is in view at that second, so that there is something to see.
func (f *fleet) watch(now int64) {
	if before := f.watched.Swap(max(now, 1)); before == 0 || now >= before+int64(tellEvery/time.Second) {
		select {
		case f.nudges <- struct{}{}:
		default:
		}
	}
}

// processName is how operators know a process.
var processName = func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%.100s, process %d", host, os.Getpid())
}()

var version = func() string {
	const module = "github.com/weirgo/weir"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return cmp.Or(m.Version, "unknown")
		}
	}
	return "unknown"
}()

// others is how many processes were heard of beside this one.
func (f *fleet) others() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.heard {
		if f.heard[i].process != f.process {
			n++
		}
	}
	return n
}

// report is what this process tells.
func (d *Dashboard) report() report {
	health := d.health()
	rows, _ := d.rows(health)
	c := &d.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	now := d.now()
	c.fold(now)
	store := d.lookAtStore(now, health)
	r := report{
		Format: reportFormat, Weir: version, Name: processName, Seconds: min(now, reported),
		Outcomes: map[string]uint64{}, InForce: digestOfRows(rows), Store: store.Text, Bad: store.Bad,
	}
	for _, o := range middleware.Outcomes() {
		r.Outcomes[o.String()] = c.outcome[o].sum(now, reported)
	}
	known := map[seriesName]bool{}
	for _, row := range rows {
		name := seriesName{row.Rule, row.Tier}
		s := c.byName[name]
		if s == nil || known[name] {
			continue
		}
		known[name] = true
		if asked := s.asked.sum(now, reported); asked > 0 {
			r.Rules = append(r.Rules, reportedRule{row.Rule, row.Tier, row.Limit, row.Shadow, asked, s.refused.sum(now, reported)})
		}
	}
	slices.SortStableFunc(r.Rules, func(a, b reportedRule) int {
		return cmp.Or(inShadow(a.Shadow, b.Shadow), cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Asked, a.Asked))
	})
	if len(r.Rules) > mostTold {
		r.More = len(r.Rules) - mostTold
		r.Rules = r.Rules[:mostTold]
	}
	return r
}

// inShadow puts rules in shadow behind others, as they refuse nothing.
func inShadow(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// digestOfRows is the same of processes with the same rules.
func digestOfRows(rows []row) string {
	sum := sha256.Sum256(mustMarshal(rows))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

type fleetView struct {
	Known     bool          `json:"known"` // else of what is below only what was heard before
	Text      string        `json:"text"`
	Bad       bool          `json:"bad"`
	Notes     []string      `json:"notes"`
	Processes int           `json:"processes"`
	List      []processView `json:"list"` // those to be looked at in front

	// The sums, of the processes that answer, in requests a second over the last minute.
	Asked   float64   `json:"asked"`
	Refused float64   `json:"refused"`
	Rules   []sumView `json:"rules"`
	More    int       `json:"more"` // rules that are not shown
}

type processView struct {
	Name    string  `json:"name"`
	Self    bool    `json:"self,omitempty"`
	State   string  `json:"state"`           // answers, late, unreadable or unknown
	Ago     int64   `json:"ago"`             // seconds
	About   string  `json:"about,omitempty"` // how it differs from this one
	Store   string  `json:"store,omitempty"`
	Bad     bool    `json:"bad,omitempty"`
	Asked   float64 `json:"asked"`
	Refused float64 `json:"refused"`
}

// A sumView is what a rule does in all processes that answer.
type sumView struct {
	Rule      string  `json:"rule"`
	Tier      string  `json:"tier,omitempty"`
	Limit     string  `json:"limit"` // empty: processes have several
	Shadow    bool    `json:"shadow,omitempty"`
	Asked     float64 `json:"asked"`
	Refused   float64 `json:"refused"`
	Processes int     `json:"processes"`
}

// lookAtFleet is nil where there is none to look at.
func (d *Dashboard) lookAtFleet(now int64, rows []row) *fleetView {
	f := &d.fleet
	if f.board == nil {
		return nil
	}
	f.watch(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &fleetView{Known: !f.at.IsZero() && f.failed == nil, Processes: len(f.heard), Notes: []string{}, List: []processView{}}
	since := time.Since(f.at)
	answer := 0
	weirs, sums, mine := map[string]int{}, map[seriesName]*sumView{}, digestOfRows(rows)
	others, partly, bad := 0, 0, 0
	for i := range f.heard {
		h := &f.heard[i]
		p := processView{Name: h.Name, Self: h.process == f.process, Ago: int64((h.ago + since) / time.Second)}
		switch {
		case h.broken:
			p.State = "unreadable"
			p.Name = cmp.Or(p.Name, "a process")
			p.About = strings.TrimSpace("tells in a form that this version does not read " + h.Weir)
		case !v.Known:
			p.State = "unknown"
		case h.ago+since > lateAfter:
			p.State = "late"
		default:
			p.State, answer = "answers", answer+1
			weirs[h.Weir]++
			p.Store, p.Bad = h.Store, h.Bad
			p.Asked, p.Refused = h.rates()
			v.Asked, v.Refused, v.Bad = v.Asked+p.Asked, v.Refused+p.Refused, v.Bad || p.Bad
			if p.Bad {
				bad++
			}
			if h.InForce != mine {
				others++
				p.About = "has other rules"
			}
			partly += min(h.More, 1)
			h.sum(sums)
		}
		v.List = append(v.List, p)
	}
	v.sort(sums)
	v.say(f, answer)
	note := func(format string, args ...any) { v.Notes = append(v.Notes, fmt.Sprintf(format, args...)) }
	if bad > 0 {
		note("The store of %d of them is in trouble.", bad)
	}
	if len(weirs) > 1 {
		var names []string
		for name, n := range weirs {
			names = append(names, fmt.Sprintf("%s in %d", name, n))
		}
		slices.Sort(names)
		note("The processes have several versions of Weir: %.300s.", strings.Join(names, ", "))
	}
	if others > 0 {
		note("%s other rules than this process, as while new ones are rolled out.", countedHave(others))
	}
	if partly > 0 {
		note("Of processes with more than %d rules only the busiest are in the sums by rule.", mostTold)
	}
	if f.silent != nil {
		note("Others do not hear of this process: %.300s", f.silent)
	}
	return v
}

// say is the view in words.
func (v *fleetView) say(f *fleet, answer int) {
	switch n := len(f.heard); {
	case f.at.IsZero() && f.failed == nil:
		v.Text = "is being asked"
	case f.failed != nil:
		v.Bad, v.Text = true, "not known"
		v.Notes = append(v.Notes, fmt.Sprintf("%.300s", f.failed.Error()))
	case answer < n:
		v.Bad, v.Text = true, fmt.Sprintf("%d of %d processes answer", answer, n)
		v.Notes = append(v.Notes, "The sums are of those that answer. The others ended without leaving, stand still, or cannot tell of themselves; after ten minutes they are forgotten.")
	case n == 1:
		v.Text = "1 process, which answers"
	default:
		v.Text = fmt.Sprintf("all %d processes answer", n)
	}
}

func countedHave(n int) string {
	if n == 1 {
		return "1 process has"
	}
	return fmt.Sprintf("%d processes have", n)
}

// sort puts those in front that are to be looked at, and bounds the lists.
func (v *fleetView) sort(sums map[seriesName]*sumView) {
	order := map[string]int{"unreadable": 0, "late": 1, "unknown": 2, "answers": 3}
	worry := func(p processView) int {
		if p.Bad {
			return 2
		}
		return order[p.State]
	}
	slices.SortFunc(v.List, func(a, b processView) int {
		return cmp.Or(cmp.Compare(worry(a), worry(b)), cmp.Compare(a.Name, b.Name))
	})
	v.List = v.List[:min(len(v.List), mostProcess)]
	v.Rules = []sumView{}
	for _, sum := range sums {
		v.Rules = append(v.Rules, *sum)
	}
	slices.SortFunc(v.Rules, func(a, b sumView) int {
		return cmp.Or(inShadow(a.Shadow, b.Shadow), cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Asked, a.Asked),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Tier, b.Tier))
	})
	if len(v.Rules) > mostSums {
		v.More = len(v.Rules) - mostSums
		v.Rules = v.Rules[:mostSums]
	}
}

// rates are what a process was asked a second, and did not let pass.
func (r *report) rates() (asked, refused float64) {
	for outcome, n := range r.Outcomes {
		asked += r.rate(n)
		switch outcome {
		case middleware.OutcomeAllowed.String(), middleware.OutcomeOverdrawn.String(), middleware.OutcomeExempt.String():
		default:
			refused += r.rate(n)
		}
	}
	return asked, refused
}

func (r *report) rate(n uint64) float64 { return float64(n) / float64(max(1, r.Seconds)) }

// sum adds what a process tells of its rules.
func (r *report) sum(sums map[seriesName]*sumView) {
	for _, told := range r.Rules {
		name := seriesName{told.Rule, told.Tier}
		sum := sums[name]
		if sum == nil {
			sum = &sumView{Rule: told.Rule, Tier: told.Tier, Limit: told.Limit, Shadow: told.Shadow}
			sums[name] = sum
		}
		if sum.Limit != told.Limit || sum.Shadow != told.Shadow {
			sum.Limit = ""
		}
		sum.Asked += r.rate(told.Asked)
		sum.Refused += r.rate(told.Refused)
		sum.Processes++
	}
}
