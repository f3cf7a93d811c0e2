package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/middleware"
)

// A verdict sums the figures up in words.
type verdict struct {
	Level  level  `json:"level"`
	Text   string `json:"text"`
	Detail string `json:"detail,omitempty"`

	Findings []finding `json:"findings,omitempty"` // the worst first
}

// A finding says which clients one rule refuses.
type finding struct {
	Rule string `json:"rule"`
	Text string `json:"text"`

	Clients int          `json:"clients,omitempty"` // if they are few enough for an operator to ban
	Known   []clientView `json:"known,omitempty"`   // the clients whose key or digest is known
}

type level string

const (
	idle    level = "idle"
	good    level = "good"
	warning level = "warning"
	bad     level = "bad"
)

const judged = 10 // seconds

// judge sums up the last ten seconds, and says whether the rules as they are written are in force.
// d.latest is locked.
func (d *Dashboard) judge(s *state) verdict {
	v := d.judgeTraffic(s)
	if slices.ContainsFunc(s.Written, func(w writtenView) bool { return w.Error != "" }) {
		const text = "The rules as they are written now are refused: older rules are in force."
		if v.Level == idle || v.Level == good {
			return verdict{Level: warning, Text: text, Detail: v.Text, Findings: v.Findings}
		}
		v.Detail = strings.TrimSpace(v.Detail + " " + text)
	}
	return v
}

func (d *Dashboard) judgeTraffic(s *state) verdict {
	c := &d.counts
	c.mu.Lock()
	var all uint64
	var became [outcomes]uint64
	for i := range c.outcome {
		became[i] = c.outcome[i].sum(s.Second, judged)
		all += became[i]
	}
	rules := refusals(s)
	c.mu.Unlock()

	rate := perSecond(all, min(judged, s.Second)) + " requests a second"
	if s.Store.Bad {
		v := storeVerdict(s, rate, all, became)
		v.Findings = d.findings(rules)
		return v
	}
	if all == 0 {
		return verdict{Level: idle, Text: "No requests in the last ten seconds."}
	}
	troubles := troublesOf(all, became, rules)
	if len(troubles) == 0 {
		text := fmt.Sprintf("All is well: %s, %s refused", rate, noneOr(became[middleware.OutcomeRefused], all))
		passed := became[middleware.OutcomeAllowed] + became[middleware.OutcomeExempt]
		if others := all - passed - became[middleware.OutcomeRefused]; others > 0 {
			text += fmt.Sprintf(", %s did not pass for other reasons", percent(others, all))
		}
		return verdict{Level: good, Text: text + "."}
	}
	v := verdict{Level: warning}
	for i, t := range troubles {
		if i == 0 {
			v.Text = fmt.Sprintf("%s of %s %s.", percent(t.n, all), rate, t.text)
		} else {
			v.Text += fmt.Sprintf(" %s %s.", percent(t.n, all), t.text)
		}
		if t.limits {
			v.Findings = d.findings(rules)
		}
	}
	return v
}

// storeVerdict is the verdict while the store does not answer.
func storeVerdict(s *state, rate string, all uint64, became [outcomes]uint64) verdict {
	v := verdict{Level: bad, Text: "The store " + s.Store.Text + "."}
	switch undecided := became[middleware.OutcomeUndecided]; {
	case undecided > 0:
		v.Detail = percent(undecided, all) + " of requests are answered with 503. "
	case s.Store.Degraded > 0:
		v.Detail = "Each rule's outage policy decides. "
	}
	v.Detail += fmt.Sprintf("%s, %s refused.", rate, noneOr(became[middleware.OutcomeRefused], all))
	return v
}

// A trouble is a reason why many requests do not pass.
type trouble struct {
	n      uint64
	text   string
	limits bool // rules refuse them
}

// troublesOf returns the troubles, the worst first.
func troublesOf(all uint64, became [outcomes]uint64, rules []refusing) (troubles []trouble) {
	add := func(o middleware.Outcome, least uint64, text string, limits bool) {
		if n := became[o]; n > 0 && n*100 >= least*all {
			troubles = append(troubles, trouble{n, text, limits})
		}
	}
	add(middleware.OutcomeRefused, 1, "are refused"+by(rules), true)
	add(middleware.OutcomeShed, 1, "are shed, as the service is overloaded", false)
	add(middleware.OutcomeUndecided, 1, "are answered with 503, as they would wait too long", false)
	add(middleware.OutcomeBanned, 5, "come from banned clients", false)
	add(middleware.OutcomeNoKey, 5, "do not pass, as they have no key", false)
	slices.SortStableFunc(troubles, func(a, b trouble) int { return cmp.Compare(b.n, a.n) })
	return troubles
}

// by names the rule that refuses most, if it refuses more than half.
func by(rules []refusing) string {
	if len(rules) == 0 {
		return ""
	}
	switch first, sum := rules[0], sumOf(rules); {
	case first.refused*10 >= sum*9:
		return ", nearly all by " + first.rule
	case first.refused*2 >= sum:
		return ", most by " + first.rule
	}
	return ""
}

func sumOf(rules []refusing) (sum uint64) {
	for _, r := range rules {
		sum += r.refused
	}
	return sum
}

// findings returns the findings about the worst rules.
func (d *Dashboard) findings(rules []refusing) (found []finding) {
	for _, r := range rules[:min(len(rules), maxFindings)] {
		if f := d.clients(r); f.Text != "" && r.refused*20 >= sumOf(rules) {
			found = append(found, f)
		}
	}
	return found
}

const (
	maxFindings = 3
	fewRefusals = 16 // too few to say anything about clients
)

// A refusing is a rule that refused requests.
type refusing struct {
	rule    string
	refused uint64
	latest  spread // of the tier that refused most
	most    uint64 // in that tier
}

// refusals returns the rules that refused, the worst first. The counts are locked.
func refusals(s *state) []refusing {
	var all []refusing
	for i, series := range s.series {
		if series == nil || s.Rows[i].Shadow {
			continue
		}
		n := series.refused.sum(s.Second, judged)
		if n == 0 {
			continue
		}
		at := slices.IndexFunc(all, func(r refusing) bool { return r.rule == series.rule })
		if at < 0 {
			at, all = len(all), append(all, refusing{rule: series.rule})
		}
		r := &all[at]
		if r.refused += n; n > r.most {
			r.most, r.latest = n, series.latest.spread()
		}
	}
	slices.SortStableFunc(all, func(a, b refusing) int { return cmp.Compare(b.refused, a.refused) })
	return all
}

// clients says which clients a rule refuses: a noisy one, a few, or many.
func (d *Dashboard) clients(r refusing) finding {
	l := r.latest
	f := finding{Rule: r.rule}
	if l.refusals < fewRefusals {
		return f
	}
	begin, its, of := "", "Its", ""
	one, crowd := "one noisy client, no reason to raise the limit", "many clients at once. Either the limit is too low, or an attacker rotates keys"
	if l.by != r.rule {
		begin, its, of = "One counter for everybody, and ", "its", " of "+l.by
		one, crowd = "one noisy client", "a crowd, or an attacker who rotates keys"
	}
	latest := fmt.Sprintf("latest %d refusals", l.refusals)
	part := func(n int) string { return percent(uint64(n), uint64(l.refusals)) + " of its " + latest }
	all := its + " " + latest

	most := l.keys[0].refusals
	noisy, theirs := l.noisy()
	alone := 2*most >= l.refusals
	few := len(noisy) > 1 && len(noisy) <= maxFew && 4*theirs >= 3*l.refusals && theirs >= 4*len(noisy)
	switch {
	case alone && l.keys[0].shared:
		f.Clients, f.Known = 1, d.known(noisy[:1])
		f.Text = begin + fmt.Sprintf("%s are of one key%s%s, which belongs to a proxy that does not name its clients: they share it.", part(most), of, f.named())
	case few:
		if theirs < l.refusals {
			all = part(theirs)
		}
		f.Clients, f.Known = len(noisy), d.known(noisy)
		f.Text = begin + fmt.Sprintf("%s are of %d keys%s%s: a few noisy clients.", all, len(noisy), of, f.named())
		if slices.ContainsFunc(noisy, func(k share) bool { return k.shared }) {
			f.Text += " Some of these keys belong to proxies that do not name their clients, who share them."
		}
	case alone:
		f.Clients, f.Known = 1, d.known(noisy[:1])
		f.Text = begin + fmt.Sprintf("%s are of one key%s%s: %s.", part(most), of, f.named(), one)
	case 2*len(l.keys) >= l.refusals:
		f.Text = begin + fmt.Sprintf("%s are of %d keys%s: %s.", all, len(l.keys), of, crowd)
	default:
		f.Text = begin + fmt.Sprintf("%s are of %d keys%s.", all, len(l.keys), of)
	}
	return f
}

const (
	maxFew   = 8 // keys: more are many
	maxNamed = 3
)

// known returns the clients of these keys that are followed.
func (d *Dashboard) known(keys []share) (known []clientView) {
	for _, k := range keys {
		if client, ok := d.followed.find(k.key); ok {
			v := d.viewOf(client.key)
			v.Shared = v.Shared || k.shared
			known = append(known, v)
		}
	}
	slices.SortFunc(known, func(a, b clientView) int { return cmp.Compare(a.Key, b.Key) }) // so that the order is stable
	return known
}

// named names the first known clients, in words.
func (f *finding) named() string {
	if len(f.Known) == 0 {
		return ""
	}
	var names []string
	for _, k := range f.Known[:min(len(f.Known), maxNamed)] {
		names = append(names, k.Key)
	}
	if len(names) < f.Clients {
		return ", among them " + and(names)
	}
	return ", " + and(names)
}

// and joins names in words.
func and(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func perSecond(n uint64, seconds int64) string {
	rate := float64(n) / float64(max(1, seconds))
	if rate < 10 {
		return strconv.FormatFloat(rate, 'g', 2, 64)
	}
	return grouped(strconv.FormatInt(int64(rate+0.5), 10))
}

func noneOr(n, of uint64) string {
	if n == 0 {
		return "none"
	}
	return percent(n, of)
}

func percent(n, of uint64) string {
	if of == 0 {
		return "0%"
	}
	return percentOf(float64(n) / float64(of))
}

// percentOf rounds a share, but never to 0% or 100% if it is more or less.
func percentOf(share float64) string {
	p := min(max(share, 0), 1) * 100
	switch {
	case p == 0:
		return "0%"
	case p < 1:
		return "less than 1%"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	case p < 100 && p > 99:
		return "over 99%"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + "%"
}

// grouped puts a comma between thousands.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
