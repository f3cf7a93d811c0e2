package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/demand"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/internal/operate"
)

// simulated describes the result of a simulation: the verdict first, then details.
func simulated(s *simulate.Summary) (verdict, detail string) {
	passing := listed("Of those that pass, ", []amount{{s.Delayed, "waits for its turn", "wait for their turn"},
		{s.Warned, "carries a warning that the limit is near", "carry a warning that the limit is near"},
		{s.Exempt, "is never limited", "are never limited"}, {s.Unlimited, "meets no rule", "meet no rule"}})
	if s.Stopped() == 0 {
		return fmt.Sprintf("These rules would have let all %s requests pass.", operate.Number(s.Requests)), sentences(span(s), passing)
	}
	return fmt.Sprintf("These rules would have refused %s of %s requests (%s), of %s of %s.", operate.Number(s.Stopped()), operate.Number(s.Requests),
		operate.Share(s.Stopped(), s.Requests), operate.Number(s.ClientsStopped), operate.Count(s.Clients, "client", "clients")), sentences(reasons(s), passing, span(s))
}

// reasons returns a sentence on why requests were refused.
func reasons(s *simulate.Summary) string {
	return listed("", []amount{{s.Refused, "is over a limit", "are over a limit"}, {s.Banned, "is refused for a ban", "are refused for a ban"},
		{s.NoKey, "is refused for a missing key", "are refused for a missing key"}})
}

type amount struct {
	n         int64
	one, many string
}

// listed returns a sentence with the amounts above 0, or "".
func listed(begin string, all []amount) string {
	var parts []string
	for _, a := range all {
		if a.n > 0 {
			parts = append(parts, operate.Count(a.n, a.one, a.many))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return begin + strings.Join(parts, ", ") + "."
}

func span(s *simulate.Summary) string {
	return fmt.Sprintf("The log is from %s to %s UTC.", s.From.Format(time.DateTime), s.To.Format(time.DateTime))
}

// changed describes what new rules change.
func changed(c *simulate.Change) (verdict, detail string) {
	before, after := c.Old.Stopped(), c.New.Stopped()
	verdict = fmt.Sprintf("The new rules would refuse %s requests where the old refuse %s: %s in place of %s.",
		operate.Number(after), operate.Number(before), operate.Count(c.New.ClientsStopped, "client", "clients"), operate.Number(c.Old.ClientsStopped))
	if c.Newly == 0 && c.NoLonger == 0 {
		verdict = fmt.Sprintf("The new rules would refuse the same %s of %s requests as the old.", operate.Number(after), operate.Number(c.New.Requests))
	}
	return verdict, sentences(
		fmt.Sprintf("%s refused that were not, and %s no longer.", operate.Count(c.Newly, "request is", "requests are"), operate.Number(c.NoLonger)),
		fmt.Sprintf("%s refused for the first time, and %s no longer.", operate.Count(c.ClientsNewly, "client is", "clients are"), operate.Number(c.ClientsNoLonger)),
		reasons(&c.New), span(&c.New))
}

// recommended describes how many clients a limit spares and refuses.
func recommended(r *demand.Result, spare float64, key string) (verdict, detail string) {
	verdict = fmt.Sprintf("%s for each %s spares %s of %s.", perPeriod(r.Chosen.Limit, r.Per), key, operate.Share(r.Keys-r.Chosen.Keys, r.Keys), operate.Count(r.Keys, "client", "clients"))
	refuses := fmt.Sprintf("It would have refused requests of %s.", operate.Count(r.Chosen.Keys, "client", "clients"))
	if r.Chosen.Keys == 0 {
		refuses = fmt.Sprintf("It would have refused none of %s requests.", operate.Number(r.Requests))
	}
	few := ""
	if float64(r.Keys)*(1-spare) < 1 {
		few = fmt.Sprintf("With %s, %s is all of them: one that asks for far more than the others decides, so choose a lower --spare to leave it out.", operate.Count(r.Keys, "client", "clients"), operate.Percent(spare))
	}
	return verdict, sentences(refuses, few)
}

// peaks describes how much clients ask for.
func peaks(r *demand.Result) string {
	p := r.Peaks
	text := fmt.Sprintf("The most that a client asked for in any %s: half of them %s, nine in ten at most %s, 99%% at most %s, 99.9%% at most %s, and one %s.",
		period(r.Per), operate.Number(p.P50), operate.Number(p.P90), operate.Number(p.P99), operate.Number(p.P999), operate.Number(p.Most))
	if slices.ContainsFunc(r.Curve, func(at demand.Point) bool { return at.Limit > p.Most && at.Keys > 0 }) {
		text += " Limits above that still refuse something: a sliding window counts what came in the window before as if it had come evenly. A sliding log counts exactly."
	}
	return text
}

// readings returns notes on how the log was read.
func readings(s *accesslog.Stats, answered int64) (notes []string) {
	if s.Broken > 0 {
		text := fmt.Sprintf("%s could not be read, of %s:", operate.Count(s.Broken, "line", "lines"), operate.Number(s.Broken+s.Entries))
		shown := map[string]bool{}
		for _, broken := range s.First {
			if !shown[broken.Why] {
				text += fmt.Sprintf(" line %d at byte %d %s;", broken.Line, broken.Byte, broken.Why)
			}
			shown[broken.Why] = true
		}
		if s.Broken > int64(len(shown)) {
			text += " and so on;"
		}
		notes = append(notes, strings.TrimSuffix(text, ";")+".")
	}
	if answered > 0 {
		notes = append(notes, fmt.Sprintf("%s answered 429: what those clients would have asked for without that limit is not in the log.",
			operate.Count(answered, "request of the log was", "requests of the log were")))
	}
	if s.Whole {
		notes = append(notes, "The log has whole seconds: requests of one second are spread evenly over it.")
	}
	if s.Took {
		notes = append(notes, "The log has the times of answers: the time that each request took is subtracted.")
	}
	if s.Long > 0 {
		notes = append(notes, operate.Count(s.Long, "request took so long that too many came in between: it is", "requests took so long that too many came in between: they are")+" taken to have come later.")
	}
	return notes
}

func sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), " ")
}

// perPeriod formats a limit for people: 60 per minute.
func perPeriod(n int64, per time.Duration) string { return operate.Number(n) + " per " + period(per) }

// period formats a period like minute, or 10 minutes.
func period(per time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := int64(per / unit.length); {
		case per == unit.length:
			return unit.name
		case per%unit.length == 0:
			return operate.Number(n) + " " + unit.name + "s"
		}
	}
	return per.String()
}
