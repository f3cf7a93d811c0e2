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
	text             string // the limit, or the number of slots
	slots            bool
}

// A script is a trace as it is written.
type script struct {
	quotas  []declaration
	settles bool
	steps   []string
}

// traces has the cases in promises.
func traces() (cases []testCase) {
	for _, text := range strings.Split(promises, "\n== ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		c, s := testCase{name: name}, script{}
		for line := range strings.Lines(rest) {
			line = strings.TrimSpace(line)
			switch verb, rest, _ := strings.Cut(line, " "); verb {
			case "":
			case ">":
				c.why = rest
			case "limit", "slots":
				names, text, _ := strings.Cut(rest, " = ")
				name, rule, isOther := strings.Cut(names, " of ")
				if !isOther {
					rule = name
				}
				rule, tier, _ := strings.Cut(rule, "/")
				s.quotas = append(s.quotas, declaration{name, rule, tier, text, verb == "slots"})
			case "for":
				all, algorithms, _ := strings.Cut(rest, " in ")
				for _, l := range strings.Split(all, ", ") {
					for _, a := range strings.Split(algorithms, " ") {
						c.limits = append(c.limits, must(limiter.Parse(l+" "+a)))
					}
				}
			case "settles":
				s.settles = true
			case "steps":
				c.stepsBack = true
			default:
				s.steps = append(s.steps, line)
			}
		}
		if s.quotas == nil {
			s.quotas = []declaration{{name: "rule", rule: "rule"}}
		}
		if c.limits == nil && s.uses("", "each") {
			c.limits = samples
		}
		c.slots, c.run = s.quotas[0].slots, s.run
		cases = append(cases, c)
	}
	return cases
}

// uses reports whether a limit is one of these, slow or not.
func (s *script) uses(texts ...string) bool {
	return slices.ContainsFunc(s.quotas, func(d declaration) bool {
		text, _, _ := strings.Cut(d.text, " slow ")
		return slices.Contains(texts, text)
	})
}

func (s *script) run(t *trial) {
	others := samples[:1]
	if s.uses("other") {
		others = samples
	}
	for i, other := range others {
		tr := &trace{trial: t, quotas: map[string]*limiter.Quota{}, ids: map[string]limiter.Charge{}}
		for _, d := range s.quotas {
			d.rule += fmt.Sprint(" ", i) // each of others has rules of its own
			q := t.declared(d, other)
			q.Settles = s.settles
			tr.quotas[d.name] = q
		}
		tr.first = tr.quotas[s.quotas[0].name]
		for _, step := range s.steps {
			t.step = step
			tr.do(step)
		}
		t.step = ""
	}
}

func (t *trial) declared(d declaration, other limiter.Limit) *limiter.Quota {
	t.Helper()
	if d.slots {
		return t.concurrency(d.rule, d.tier, must(strconv.ParseInt(d.text, 10, 64)))
	}
	text, events, isSlow := strings.Cut(d.text, " slow ")
	l := t.limit
	switch text {
	case "", "each":
	case "other":
		l = other
	default:
		l = must(limiter.Parse(text))
	}
	if isSlow {
		l = slow(l, must(strconv.ParseInt(events, 10, 64)))
	}
	return t.named(d.rule, d.tier, l)
}

// must panics if promises are wrong.
func must[T any](value T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("limitertest: promises.txt: %v", err))
	}
	return value
}

// A trace is a running script.
type trace struct {
	*trial
	first  *limiter.Quota
	quotas map[string]*limiter.Quota // by name
	ids    map[string]limiter.Charge // with their decisions
}

// do runs one step.
func (t *trace) do(step string) {
	t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	if times, ok := strings.CutSuffix(verb, "x"); ok {
		for range must(strconv.Atoi(times)) {
			t.do(rest)
		}
		return
	}
	if verb == "sleep" {
		t.sleep(must(time.ParseDuration(rest)))
		return
	}
	var charges []limiter.Charge
	var settlements []limiter.Settlement
	var fields [][]string // of each charge, behind its cost
	for part := range strings.SplitSeq(rest, ", ") {
		words := strings.Fields(part)
		if verb == "settle" {
			c := t.ids[words[0]]
			settlements = append(settlements, limiter.Settlement{Charge: c, Actual: t.number(words[1], c)})
			continue
		}
		c, more := t.charge(words[0]), words[1:]
		if len(more) > 0 && !slices.Contains([]string{"look", "same", "longer"}, verb) {
			c.Cost, more = t.number(more[0], c), more[1:]
		}
		if len(more) > 0 {
			if within, ok := strings.CutPrefix(more[0], "within="); ok {
				c.Within, more = must(time.ParseDuration(within)), more[1:]
			}
		}
		if len(more) == 2 && more[0] == "of" {
			c.Decision = t.ids[more[1]].Decision
		}
		charges, fields = append(charges, c), append(fields, more)
	}
	if verb == "settle" {
		t.settle(settlements...)
		return
	}
	c, more := charges[0], fields[0]
	switch verb {
	case "take":
		t.note(c, t.taken(c), more)
	case "refuse":
		t.note(c, t.refused(c), more)
	case "left":
		t.remaining(c.Quota, c.Key, c.Cost, "then")
	case "look":
		t.note(c, t.look(c.Quota, c.Key), more)
	case "same":
		if d, want := t.look(c.Quota, c.Key), t.ids[more[0]].Decision; d != want {
			t.broken("under %v a look says %+v, want %+v", c.Quota.Limit(), d, want)
		}
	case "longer":
		other := t.charge(more[0])
		n := t.number(more[1], c)
		long, short := t.refuse(c.Quota, c.Key, n).RetryAfter, t.refuse(other.Quota, other.Key, n).RetryAfter
		if long <= short {
			t.broken("under %v, %d units are free after %v, and under another key after %v, want later",
				c.Quota.Limit(), n, long, short)
		}
	case "batch":
		t.batch(charges, fields)
	case "owe":
		t.settle(owing(charges...)...)
	case "refund":
		t.settle(returning(charges...)...)
	case "reset":
		t.reset(charges...)
	case "begin":
		t.begin(c.Quota, float64(c.Cost))
	case "drain":
		for n := t.look(c.Quota, c.Key).Limit; n > 0; n-- {
			if d := t.take(c.Quota, c.Key, 1); d.Limit != c.Quota.Capacity() || d.Remaining != n-1 {
				t.broken("after an admitted event %d of %d remain, want %d of %d",
					d.Remaining, d.Limit, n-1, c.Quota.Capacity())
			}
		}
	case "retry":
		t.retry(c)
	case "fill":
		t.fill(c.Quota, c.Key)
	case "empty":
		t.empty(c.Quota, c.Key)
	default:
		t.Fatalf("limitertest: there is no step %q", verb)
	}
}

// charge reads "key" or "limit:key".
func (t *trace) charge(text string) limiter.Charge {
	if name, key, ok := strings.Cut(text, ":"); ok {
		return limiter.Charge{Quota: t.quotas[name], Key: key}
	}
	return limiter.Charge{Quota: t.first, Key: text}
}

func (t *trace) number(text string, c limiter.Charge) (n int64) {
	t.Helper()
	text, less, _ := strings.Cut(text, "-")
	text, more, _ := strings.Cut(text, "+")
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
		n = must(strconv.ParseInt(text, 10, 64))
	}
	if less != "" {
		n -= t.number(less, c)
	}
	if more != "" {
		n += t.number(more, c)
	}
	return n
}

// note stores a decision for "as ID", and checks "FIELD=TIME".
func (t *trace) note(c limiter.Charge, d limiter.Decision, fields []string) {
	t.Helper()
	times := map[string]time.Duration{
		"RetryAfter": d.RetryAfter, "NextAfter": d.NextAfter, "ResetAfter": d.ResetAfter, "Delay": d.Delay,
	}
	for i, field := range fields {
		name, value, isTime := strings.Cut(field, "=")
		switch {
		case field == "as":
			c.Decision = d
			t.ids[fields[i+1]] = c
		case isTime:
			if got, want := times[name], must(time.ParseDuration(value)); got != want {
				t.broken("under %v %s is %v, want %v: %+v", c.Quota.Limit(), name, got, want, d)
			}
		}
	}
}

// batch decides about charges together. The first field of each charge is "yes" or "no", with a "?" if the charge
// is optional. If another one is no, nothing must be taken. Then each decision must be the one for the charge alone,
// or for a look if it is yes.
func (t *trace) batch(charges []limiter.Charge, fields [][]string) {
	t.Helper()
	refused := false
	for i := range charges {
		charges[i].Optional = strings.HasSuffix(fields[i][0], "?")
		refused = refused || fields[i][0] == "no"
	}
	for i, d := range t.decide(charges...) {
		c := charges[i]
		if want := strings.HasPrefix(fields[i][0], "yes"); d.Allowed != want {
			t.broken("charge %d of a batch: the decision is %+v, want Allowed %v", i+1, d, want)
		}
		if d.Allowed {
			c.Cost = 0
		}
		if alone := t.decide(c)[0]; (refused || !d.Allowed) && d != alone {
			t.broken("charge %d of a batch that was not taken, under %v: the decision is %+v, and alone %+v",
				i+1, c.Quota.Limit(), d, alone)
		}
		t.note(charges[i], d, fields[i])
	}
}
