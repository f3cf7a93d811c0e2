// Package verdict says what a simulation or a recommendation comes to: in words, and as one
// page of HTML that needs nothing beside it.
package verdict

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/demand"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
)

// Words are what a reader has to know first, and what else.
type Words struct {
	Verdict, Detail string
}

// Simulated is what rules would have done.
func Simulated(s *simulate.Summary) Words {
	if s.Stopped() == 0 {
		return Words{
			Verdict: fmt.Sprintf("These rules would have let all %s requests pass.", Number(s.Requests)),
			Detail:  sentences(span(s), gentle(s), shadowed(s)),
		}
	}
	return Words{
		Verdict: fmt.Sprintf("These rules would have refused %s of %s requests (%s), of %s.",
			Number(s.Stopped()), Number(s.Requests), Share(s.Stopped(), s.Requests), some(s.ClientsStopped, s.Clients)),
		Detail: sentences(by(s), gentle(s), shadowed(s), span(s)),
	}
}

// by is what refused.
func by(s *simulate.Summary) string {
	return listed("", []amount{{s.Refused, "is over a limit", "are over a limit"}, {s.Banned, "is refused for a ban", "are refused for a ban"},
		{s.NoKey, "is refused for want of a key", "are refused for want of a key"}})
}

// gentle is what else happens to requests that pass.
func gentle(s *simulate.Summary) string {
	return listed("Of those that pass, ", []amount{{s.Delayed, "waits for its turn", "wait for their turn"},
		{s.Warned, "carries a warning that the limit is near", "carry a warning that the limit is near"},
		{s.Exempt, "is never limited", "are never limited"}, {s.Unlimited, "meets no rule", "meet no rule"}})
}

type amount struct {
	n         int64
	one, many string
}

// listed is a sentence about what there is.
func listed(begin string, all []amount) string {
	var parts []string
	for _, a := range all {
		if a.n > 0 {
			parts = append(parts, count(a.n, a.one, a.many))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return begin + strings.Join(parts, ", ") + "."
}

func shadowed(s *simulate.Summary) string {
	var parts []string
	for _, r := range s.Rules {
		if r.Shadow && r.Refused > 0 {
			parts = append(parts, fmt.Sprintf("%s would have refused %s of %s", named(r.Rule, r.Tier), Number(r.Refused), Number(r.Asked)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "In shadow, " + strings.Join(parts, ", ") + "."
}

func span(s *simulate.Summary) string {
	return fmt.Sprintf("The log is of %s, from %s.", Length(s.To.Sub(s.From)), s.From.Format("2 January 2006, 15:04 MST"))
}

// Changed is what new rules change.
func Changed(c *simulate.Change) Words {
	before, after := c.Old.Stopped(), c.New.Stopped()
	w := Words{Verdict: fmt.Sprintf("The new rules would refuse %s requests where the old refuse %s: %s in place of %s.",
		Number(after), Number(before), count(c.New.ClientsStopped, "client", "clients"), Number(c.Old.ClientsStopped))}
	if c.Newly == 0 && c.NoLonger == 0 {
		w.Verdict = fmt.Sprintf("The new rules would refuse the same %s of %s requests as the old.", Number(after), Number(c.New.Requests))
	}
	w.Detail = sentences(
		fmt.Sprintf("%s refused that were not, and %s that were are not.", count(c.Newly, "request is", "requests are"), Number(c.NoLonger)),
		fmt.Sprintf("%s refused for the first time, and %s no longer.", count(c.ClientsNewly, "client is", "clients are"), Number(c.ClientsNoLonger)),
		by(&c.New), span(&c.New))
	return w
}

// Recommended is a limit for a key, which a reader calls that.
func Recommended(r *demand.Result, spare float64, key string) Words {
	w := Words{Verdict: fmt.Sprintf("%s for each %s spares %s of %s.", PerPeriod(r.Chosen.Limit, r.Per), key, Share(r.Keys-r.Chosen.Keys, r.Keys), count(r.Keys, "client", "clients"))}
	refuses := fmt.Sprintf("It would have refused %s of %s requests (%s), of %s.",
		Number(r.Chosen.Requests), Number(r.Requests), Share(r.Chosen.Requests, r.Requests), count(r.Chosen.Keys, "client", "clients"))
	if r.Chosen.Requests == 0 {
		refuses = fmt.Sprintf("It would have refused none of %s requests.", Number(r.Requests))
	}
	few := ""
	if float64(r.Keys)*(1-spare) < 1 {
		few = fmt.Sprintf("With %s, %s is all of them.", count(r.Keys, "client", "clients"), Percent(spare))
	}
	w.Detail = sentences(refuses, setApart(r), few)
	return w
}

// setApart is about the clients that the choice leaves out.
func setApart(r *demand.Result) string {
	if r.Apart == 0 {
		return ""
	}
	with := "no limit that is tried here would spare them"
	if r.With > 0 {
		with = "with them the limit would be " + PerPeriod(r.With, r.Per)
	}
	c := r.Refused[0]
	return fmt.Sprintf("%s set apart, which %s for far more than all others: %s for %s in one %s until %s, and no other for more than %s. Look whether they are attackers: %s.",
		count(int64(r.Apart), "client is", "clients are"), plural(int64(r.Apart), "asks", "ask"),
		c.Client, Number(c.Most), Period(r.Per), c.At.Format("2 January 2006, 15:04:05 MST"), Number(r.Next), with)
}

// Peaks is what clients ask for, in words.
func Peaks(r *demand.Result) string {
	p := r.Peaks
	text := fmt.Sprintf("The most that a client asked for in any %s: half of them %s, nine in ten at most %s, 99%% at most %s, 99.9%% at most %s, and one %s.",
		Period(r.Per), Number(p.P50), Number(p.P90), Number(p.P99), Number(p.P999), Number(p.Most))
	if slices.ContainsFunc(r.Curve, func(at demand.Point) bool { return at.Limit > p.Most && at.Keys > 0 }) {
		text += " Limits above that still refuse something: a sliding window counts what came in the window before as if it had come evenly. A sliding log counts exactly."
	}
	return text
}

// Log says what of a log was not read as it stands.
func Log(s *accesslog.Stats, answered int64) (notes []string) {
	if s.Broken > 0 {
		text := fmt.Sprintf("%s could not be read, of %s:", count(s.Broken, "line", "lines"), Number(s.Broken+s.Entries))
		for _, broken := range s.First {
			text += fmt.Sprintf(" line %d at byte %d %s;", broken.Line, broken.Byte, broken.Why)
		}
		if text = strings.TrimSuffix(text, ";") + "."; s.Broken > int64(len(s.First)) {
			text = strings.TrimSuffix(text, ".") + "; and so on."
		}
		notes = append(notes, text)
	}
	if answered > 0 {
		notes = append(notes, fmt.Sprintf("%s of the log %s answered 429: what those clients would have asked for without that limit is not in the log.",
			count(answered, "request", "requests"), plural(answered, "was", "were")))
	}
	if s.Whole {
		notes = append(notes, "The log has whole seconds: requests of one second are spread evenly over it.")
	}
	if s.Took {
		notes = append(notes, "The log has the time of answers: how long each took is subtracted.")
	}
	if s.Long > 0 {
		notes = append(notes, fmt.Sprintf("%s took so long that too many came in between: %s taken to have come later.", count(s.Long, "request", "requests"), plural(s.Long, "it is", "they are")))
	}
	return notes
}

func named(rule, tier string) string {
	if tier != "" {
		return fmt.Sprintf("%q for tier %q", rule, tier)
	}
	return fmt.Sprintf("%q", rule)
}

func sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), " ")
}

// some is 3 of 40 clients.
func some(n, of int64) string {
	return fmt.Sprintf("%s of %s", Number(n), count(of, "client", "clients"))
}

func count(n int64, one, many string) string { return Number(n) + " " + plural(n, one, many) }

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Number is 1,234,567.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Share is n of all as a percentage.
func Share(n, all int64) string { return Percent(float64(n) / float64(max(1, all))) }

// Percent never says 0% or 100% of what is a little more or less.
func Percent(share float64) string {
	p := 100 * share
	switch {
	case p == 0 || p == 100:
		return strconv.FormatFloat(p, 'f', 0, 64) + "%"
	case p < 0.01:
		return "<0.01%"
	case p > 99.99:
		return ">99.99%"
	case p < 1 || p > 99:
		return trimmed(math.Round(p*100)/100) + "%"
	}
	return trimmed(math.Round(p*10)/10) + "%"
}

func trimmed(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// PerPeriod is a limit as people say it: 60 per minute.
func PerPeriod(n int64, per time.Duration) string { return Number(n) + " per " + Period(per) }

// Period is minute, or 10 minutes.
func Period(per time.Duration) string {
	for _, unit := range units {
		if n := per / unit.length; per%unit.length == 0 {
			if n == 1 {
				return unit.name
			}
			return count(int64(n), unit.name, unit.name+"s")
		}
	}
	return per.String()
}

var units = []struct {
	length time.Duration
	name   string
}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}, {time.Millisecond, "millisecond"}}

// Length is a length of time in its largest two units.
func Length(d time.Duration) string {
	for i, unit := range units[:3] {
		if n := d / unit.length; n > 0 {
			text := count(int64(n), unit.name, unit.name+"s")
			next := units[i+1]
			if rest := d % unit.length / next.length; rest > 0 {
				text += " and " + count(int64(rest), next.name, next.name+"s")
			}
			return text
		}
	}
	seconds := int64(d.Seconds())
	return count(seconds, "second", "seconds")
}
