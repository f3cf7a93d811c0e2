package limitertest

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/limiter"
)

// promises has the traces, in the language that the file describes.
//
//go:embed promises.txt
var promises string

// A declaration names a quota of a trace.
type declaration struct {
	name, rule, tier string
	text             string // the limit; empty: each of the samples
	slots            bool
}

// traces has the cases in promises.
func traces() (cases []testCase) {
	for _, text := range strings.Split(promises, "\n== ")[1:] {
		c := testCase{}
		name, rest, _ := strings.Cut(text, "\n")
		c.name = name
		var quotas []declaration
		var steps, limits []string
		settles, back := false, false
		for line := range strings.Lines(rest) {
			line = strings.TrimSpace(line)
			switch verb, rest, _ := strings.Cut(line, " "); verb {
			case "":
			case ">":
				c.why = rest
			case "limit", "slots":
				names, text, _ := strings.Cut(rest, " = ")
				d := declaration{text: text, slots: verb == "slots"}
				d.name, d.rule, _ = strings.Cut(names, " of ")
				if d.rule == "" {
					d.rule = d.name
				}
				d.rule, d.tier, _ = strings.Cut(d.rule, "/")
				quotas = append(quotas, d)
			case "for":
				all, algorithms, _ := strings.Cut(rest, " in ")
				for _, l := range strings.Split(all, ", ") {
					for _, a := range strings.Split(algorithms, " ") {
						limits = append(limits, l+" "+a)
					}
				}
			case "settles":
				settles = true
			case "steps":
				back = true
			default:
				steps = append(steps, line)
			}
		}
		if quotas == nil {
			quotas = []declaration{{name: "rule", rule: "rule"}}
		}
		others := slices.ContainsFunc(quotas, func(d declaration) bool { return strings.HasPrefix(d.text, "other") })
		run := func(t *trial, each limiter.Limit) {
			if back && !t.stepsBack {
				return
			}
			if quotas[0].slots && !t.countsSlots() {
				return
			}
			for _, other := range samples {
				t.runs++ // each has rules of its own
				tr := &trace{trial: t, ids: map[string]decided{}}
				for _, d := range quotas {
					d.rule += fmt.Sprint(" ", t.runs)
					q := t.declared(d, each, other)
					q.Settles = settles
					tr.quotas = append(tr.quotas, named{d.name, q})
				}
				for _, step := range steps {
					t.step = step
					tr.do(step)
				}
				t.step = ""
				if !others {
					break
				}
			}
		}
		switch {
		case limits != nil:
			c.run = func(t *trial) {
				for _, text := range limits {
					run(t, t.parsed(text))
				}
			}
		case slices.ContainsFunc(quotas, func(d declaration) bool { return d.text == "" || strings.HasPrefix(d.text, "each") }):
			c.each = run
		default:
			c.run = func(t *trial) { run(t, limiter.Limit{}) }
		}
		cases = append(cases, c)
	}
	return cases
}

func (t *trial) parsed(text string) limiter.Limit {
	t.Helper()
	l, err := limiter.Parse(text)
	if err != nil {
		t.Fatalf("limitertest: %v", err)
	}
	return l
}

func (t *trial) declared(d declaration, each, other limiter.Limit) *limiter.Quota {
	t.Helper()
	text, events, isSlow := strings.Cut(d.text, " slow ")
	n, _ := strconv.ParseInt(events, 10, 64)
	l := each
	switch {
	case d.slots:
		n, _ = strconv.ParseInt(d.text, 10, 64)
		return t.concurrency(d.rule, d.tier, n)
	case text == "other":
		l = other
	case text != "" && text != "each":
		l = t.parsed(text)
	}
	if isSlow {
		l = slow(l, n)
	}
	return t.named(d.rule, d.tier, l)
}

// A trace is a running case of promises.
type trace struct {
	*trial
	quotas []named
	ids    map[string]decided
}

type named struct {
	name  string
	quota *limiter.Quota
}

// decided is a charge with its decision.
type decided struct {
	limiter.Charge
	limiter.Decision
}

// do runs one step.
func (t *trace) do(step string) {
	t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	if times, ok := strings.CutSuffix(verb, "x"); ok {
		for range t.number(times, limiter.Charge{}) {
			t.do(rest)
		}
		return
	}
	if verb == "sleep" {
		t.sleep(t.duration(rest))
		return
	}
	var all []limiter.Charge
	var settlements []limiter.Settlement
	var last []string    // fields of the last charge behind its cost
	var lasts [][]string // and of all
	for part := range strings.SplitSeq(rest, ", ") {
		fields := strings.Fields(part)
		if verb == "settle" {
			d := t.ids[fields[0]]
			d.Charge.Decision = d.Decision
			settlements = append(settlements, limiter.Settlement{Charge: d.Charge, Actual: t.number(fields[1], d.Charge)})
			continue
		}
		c := t.charge(fields[0])
		last = fields[1:]
		if len(last) > 0 && !slices.Contains([]string{"look", "same", "longer"}, verb) {
			c.Cost = t.number(last[0], c)
			last = last[1:]
		}
		if len(last) == 2 && last[0] == "of" {
			c.Decision = t.ids[last[1]].Decision
		}
		all, lasts = append(all, c), append(lasts, last)
	}
	if verb == "settle" {
		t.settle(settlements...)
		return
	}
	c := all[0]
	switch verb {
	case "take":
		t.note(c, t.take(c.Quota, c.Key, c.Cost), last)
	case "refuse":
		t.note(c, t.refuse(c.Quota, c.Key, c.Cost), last)
	case "never":
		if d := t.refuse(c.Quota, c.Key, c.Cost); d.RetryAfter != limiter.Never {
			t.broken("cost %d under %v: RetryAfter is %v, want Never", c.Cost, c.Quota.Limit(), d.RetryAfter)
		}
	case "left":
		t.remaining(c.Quota, c.Key, c.Cost, "then")
	case "look":
		t.note(c, t.look(c.Quota, c.Key), last)
	case "same":
		if d, want := t.look(c.Quota, c.Key), t.ids[last[0]].Decision; d != want {
			t.broken("under %v a look says %+v, want %+v", c.Quota.Limit(), d, want)
		}
	case "longer":
		other := t.charge(last[0])
		n := t.number(last[1], c)
		long, short := t.refuse(c.Quota, c.Key, n).RetryAfter, t.refuse(other.Quota, other.Key, n).RetryAfter
		if long <= short {
			t.broken("under %v, %d units are free after %v, and under another key after %v, want later", c.Quota.Limit(), n, long, short)
		}
	case "batch":
		t.batch(all, lasts)
	case "owe":
		t.settle(owing(all...)...)
	case "refund":
		t.settle(returning(all...)...)
	case "reset":
		t.reset(all...)
	case "begin":
		t.begin(c.Quota, float64(c.Cost))
	case "drain":
		for n := t.look(c.Quota, c.Key).Limit; n > 0; n-- {
			if d := t.take(c.Quota, c.Key, 1); d.Limit != c.Quota.Capacity() || d.Remaining != n-1 {
				t.broken("after an admitted event %d of %d remain, want %d of %d", d.Remaining, d.Limit, n-1, c.Quota.Capacity())
			}
		}
	case "retry":
		t.retry(c.Quota, c.Key, c.Cost)
	case "fill":
		t.fill(c.Quota, c.Key)
	case "empty":
		t.empty(c.Quota, c.Key)
	default:
		t.Fatalf("limitertest: there is no step %q", verb)
	}
}

// charge parses "key" or "limit:key".
func (t *trace) charge(text string) limiter.Charge {
	for _, n := range t.quotas {
		if key, ok := strings.CutPrefix(text, n.name+":"); ok {
			return limiter.Charge{Quota: n.quota, Key: key}
		}
	}
	return limiter.Charge{Quota: t.quotas[0].quota, Key: text}
}

func (t *trace) number(text string, c limiter.Charge) int64 {
	t.Helper()
	text, less, _ := strings.Cut(text, "-")
	text, more, _ := strings.Cut(text, "+")
	n, err := int64(0), error(nil)
	switch text {
	case "all":
		n = c.Quota.Capacity()
	case "half":
		n = c.Quota.Capacity() / 2
	case "rest":
		n = t.look(c.Quota, c.Key).Remaining
	case "max":
		n = math.MaxInt64
	default:
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		t.Fatalf("limitertest: %v", err)
	}
	if less != "" {
		n -= t.number(less, c)
	}
	if more != "" {
		n += t.number(more, c)
	}
	return n
}

func (t *trace) duration(text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("limitertest: %v", err)
	}
	return d
}

// note stores a decision for "as ID", and checks "FIELD=TIME".
func (t *trace) note(c limiter.Charge, d limiter.Decision, fields []string) {
	t.Helper()
	for i, field := range fields {
		name, value, is := strings.Cut(field, "=")
		switch {
		case field == "as":
			t.ids[fields[i+1]] = decided{c, d}
		case is:
			got := map[string]time.Duration{"RetryAfter": d.RetryAfter, "NextAfter": d.NextAfter, "ResetAfter": d.ResetAfter, "Delay": d.Delay}[name]
			if want := t.duration(value); got != want {
				t.broken("under %v %s is %v, want %v: %+v", c.Quota.Limit(), name, got, want, d)
			}
		}
	}
}

// batch decides about charges together. A field of each charge is "yes" or "no". If one is no, nothing
// must be taken, and each decision must be the one for the charge alone, or for a look if it is yes.
func (t *trace) batch(charges []limiter.Charge, fields [][]string) {
	t.Helper()
	decisions := t.decide(charges...)
	refused := slices.ContainsFunc(decisions, func(d limiter.Decision) bool { return !d.Allowed })
	for i, d := range decisions {
		c := charges[i]
		if want := fields[i][0] == "yes"; d.Allowed != want {
			t.broken("charge %d of a batch: the decision is %+v, want Allowed %v", i+1, d, want)
		}
		if d.Allowed {
			c.Cost = 0
		}
		if alone := t.decide(c)[0]; refused && d != alone {
			t.broken("charge %d of a refused batch, under %v: the decision is %+v, and alone %+v", i+1, c.Quota.Limit(), d, alone)
		}
		t.note(charges[i], d, fields[i])
	}
}
