package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/offenders"
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
	Rule  string       `json:"rule"`
	Text  string       `json:"text"`
	Known []clientView `json:"known,omitempty"` // if they are few enough for an operator to ban
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
	if err := d.refusedRules(); err != nil {
		const text = "The rules as they are written now are refused: older rules are in force."
		if v.Level == idle || v.Level == good {
			v = verdict{Level: warning, Text: text, Detail: v.Text, Findings: v.Findings}
		} else {
			v.Detail = strings.TrimSpace(v.Detail + " " + text)
		}
		v.Detail += fmt.Sprintf(" %.2000s", err)
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
	c.mu.Unlock()
	rules := d.refusals()

	seconds := min(judged, s.Second)
	rate := fmt.Sprintf("%s requests a second in the last %d s", perSecond(all, seconds), seconds)
	if s.Store.Bad {
		v := storeVerdict(s, rate, all, became)
		v.Findings = d.findings(rules)
		return v
	}
	if all == 0 {
		return verdict{Level: idle, Text: fmt.Sprintf("No requests in the last %d s.", judged)}
	}
	troubles := troublesOf(all, became, rules)
	if len(troubles) == 0 {
		text := fmt.Sprintf("All is well: %s, %s refused", rate, noneOr(became[middleware.OutcomeRefused], all))
		passed := became[middleware.OutcomeAllowed] + became[middleware.OutcomeExempt]
		if others := all - passed - became[middleware.OutcomeRefused]; others > 0 {
			text += fmt.Sprintf(", %s did not pass for other reasons", operate.Share(others, all))
		}
		return verdict{Level: good, Text: text + "."}
	}
	v := verdict{Level: warning}
	for i, t := range troubles {
		if i == 0 {
			v.Text = fmt.Sprintf("%s of %s %s.", operate.Share(t.n, all), rate, t.text)
		} else {
			v.Text += fmt.Sprintf(" %s %s.", operate.Share(t.n, all), t.text)
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
		v.Detail = operate.Share(undecided, all) + " of requests are answered with 503. "
	case s.Store.degraded > 0:
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
func troublesOf(all uint64, became [outcomes]uint64, rules []offenders.Rule) (troubles []trouble) {
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
func by(rules []offenders.Rule) string {
	if len(rules) == 0 {
		return ""
	}
	switch first, sum := rules[0], sumOf(rules); {
	case first.Refused*10 >= sum*9:
		return ", nearly all by " + first.Name
	case first.Refused*2 >= sum:
		return ", most by " + first.Name
	}
	return ""
}

func sumOf(rules []offenders.Rule) (sum uint64) {
	for _, r := range rules {
		sum += r.Refused
	}
	return sum
}

const (
	maxFindings = 3
	fewRefusals = 16 // too few to say anything about clients
	maxFew      = 8  // clients: more are many
	maxNamed    = 3
)

// findings returns the findings about the worst rules.
func (d *Dashboard) findings(rules []offenders.Rule) (found []finding) {
	for _, r := range rules[:min(len(rules), maxFindings)] {
		if f := d.clients(r.Name, r.Refused); f.Text != "" && r.Refused*20 >= sumOf(rules) {
			found = append(found, f)
		}
	}
	return found
}

// clients says which clients a rule refused in the last seconds: one, a few, or many.
func (d *Dashboard) clients(rule string, refusals uint64) finding {
	f := finding{Rule: rule}
	keys, more := d.spread(rule)
	if refusals < fewRefusals || len(keys) == 0 {
		return f
	}
	begin, crowd := "", "the limit is too low, or an attacker rotates keys"
	if d.isShared(rule) {
		begin, crowd = "One counter for everybody, and ", "a crowd, or an attacker who rotates keys"
	}
	most := keys[0].Refused.AtLeast()
	noisy, theirs, first := 0, uint64(0), uint64(0) // keys that come near the first, their refusals, and those of the first keys
	for i, k := range keys {
		n := k.Refused.AtLeast()
		if i == noisy && 4*n >= most {
			noisy, theirs = noisy+1, theirs+n
		}
		if i < maxFew {
			first += n
		}
	}
	switch {
	case noisy > 1 && noisy <= maxFew && 4*theirs >= 3*refusals && theirs >= 4*uint64(noisy):
		f.Known = d.known(keys[:noisy])
		f.Text = fmt.Sprintf("%d clients cause %s of its refusals: %s.", noisy, allOr(theirs, refusals), f.names())
	case 2*most >= refusals:
		f.Known = d.known(keys[:1])
		f.Text = fmt.Sprintf("1 client causes %s of its refusals: %s.", allOr(most, refusals), f.names())
		switch f.Known[0].class {
		case keyfunc.InDoubt:
			f.Text = fmt.Sprintf("1 key causes %s of its refusals: %s, which belongs to a proxy that does not name its clients: they share it.", allOr(most, refusals), f.names())
		case keyfunc.Network:
			f.Text = fmt.Sprintf("1 network causes %s of its refusals: %s.", allOr(most, refusals), f.names())
		}
	default:
		f.Text = number(uint64(len(keys))) + " clients"
		if more {
			f.Text += " or more"
		}
		f.Text += " cause its refusals"
		if 2*uint64(len(keys)) >= refusals || 4*first < refusals { // most have a refusal or two, or the first have few of all
			f.Text += ": " + crowd
		}
		f.Text += "."
	}
	f.Text = begin + f.Text
	return f
}

// known returns the clients of these keys.
func (d *Dashboard) known(keys []offenders.Offender) (known []clientView) {
	for _, k := range keys {
		v := d.viewOf(k.Key)
		if len(d.hour.Find(k.Key)) == 0 { // all of its rules are beyond offenders.Options.MaxRules
			v.Shared, v.Note = true, "It is not known whether other clients have this key too."
		}
		known = append(known, v)
	}
	slices.SortFunc(known, func(a, b clientView) int { return cmp.Compare(a.Key, b.Key) }) // so that the order is stable
	return known
}

// names names the first clients.
func (f *finding) names() string {
	var names []string
	for _, k := range f.Known[:min(len(f.Known), maxNamed)] {
		names = append(names, k.Key)
	}
	if more := len(f.Known) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
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
	return operate.Number(int64(rate + 0.5))
}

func noneOr(n, of uint64) string {
	if n == 0 {
		return "none"
	}
	return operate.Share(n, of)
}

// noteOf says what a ban of a key would do to others, or "".
func noteOf(v *clientView) string {
	switch {
	case v.Claimed && len(v.Senders) > 0:
		return operate.ClaimedNote + " To stop that client, ban its address: " + strings.Join(v.Senders, ", ") + "."
	case v.Claimed:
		return operate.ClaimedNote
	case v.Shared:
		return "Several unrelated clients have this key: a ban refuses all of them."
	}
	return ""
}

func allOr(n, of uint64) string {
	if n >= of {
		return "all"
	}
	return operate.Share(n, of)
}

func number(n uint64) string { return operate.Number(int64(n)) }

// waitText returns "" if there is nothing to wait for.
func waitText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return operate.Duration(d)
}

// escalated says what a rule bans for.
func escalated(rule *middleware.RuleInfo) string {
	e := rule.Escalate
	times := fmt.Sprintf("%d times within %s", e.After, operate.Duration(e.Within))
	if e.Outcomes {
		return fmt.Sprintf("answered %v %s", rule.Counts, times)
	}
	return "refused " + times
}

// inOutage is what a rule does while its store gives no answer.
func inOutage(health failover.Stats, rule *middleware.RuleInfo) string {
	switch {
	case rule.Mode == middleware.Deny:
		return "refuses all, as always"
	case rule.Mode == middleware.Shadow:
		return "refuses nothing, as always"
	case rule.OnOutage == limiter.FailOpen:
		return "allows all requests, uncounted"
	case rule.OnOutage == limiter.FailClosed:
		return "answers all requests with 503"
	case health.Replicas <= 1 || rule.Limit == nil:
		return "counts by itself: each process allows " + rule.LimitText()
	}
	limits, atOnce, _ := limiter.Split(rule.Limit)
	for i, l := range limits {
		limits[i] = health.Share(l)
	}
	if atOnce.Max > 0 {
		atOnce.Max = health.ShareSlots(atOnce.Max)
	}
	return "counts by itself: this process allows " + limiter.Join(limits, atOnce).String()
}
