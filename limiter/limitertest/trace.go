package limitertest

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // as every store must know the time zones of limits

	"github.com/weirgo/weir/limiter"
)

// promises has the traces, in the language that the file describes.
//
//go:embed promises.txt
var promises string

// traces has the cases in promises.
func traces() (cases []testCase) {
	for _, text := range strings.Split(promises, "\n== ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		c, steps, others, isEach := testCase{name: name}, []string{}, samples[:1], false
		for line := range strings.Lines(rest) {
			line = strings.TrimSpace(line)
			switch verb, rest, _ := strings.Cut(line, " "); verb {
			case "":
			case ">":
				c.why = rest
			case "for":
				all, algorithms, _ := strings.Cut(rest, " in ")
				for _, l := range strings.Split(all, ", ") {
					for _, a := range strings.Split(algorithms, " ") {
						c.limits = append(c.limits, must(limiter.Parse(l+" "+a)))
					}
				}
			case "steps":
				c.stepsBack = true
			case "limit", "slots":
				_, limit, _ := strings.Cut(rest, " = ")
				c.slots, isEach = c.slots || verb == "slots", isEach || limit == "" || strings.HasPrefix(limit, "each")
				if strings.HasPrefix(limit, "other") {
					others = samples
				}
				fallthrough
			default:
				steps = append(steps, line)
			}
		}
		if !strings.HasPrefix(steps[0], "limit ") && !strings.HasPrefix(steps[0], "slots ") {
			steps, isEach = slices.Insert(steps, 0, "limit rule"), true
		}
		if c.limits == nil && isEach {
			c.limits = samples
		}
		c.run = func(t *trial) {
			for i, other := range others {
				tr := &trace{trial: t, other: other, nth: fmt.Sprint(" ", i), quotas: map[string]*limiter.Quota{}, ids: map[string]limiter.Charge{}}
				for _, t.step = range steps {
					tr.do(t.step)
				}
				t.step = ""
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// declare adds a quota: "NAME [of RULE[/TIER]] [= LIMIT]".
func (t *trace) declare(text string, isSlots bool) {
	names, text, _ := strings.Cut(text, " = ")
	name, rule, isOther := strings.Cut(names, " of ")
	if !isOther {
		rule = name
	}
	rule, tier, _ := strings.Cut(rule, "/")
	var q *limiter.Quota
	if isSlots {
		q = must(limiter.NewConcurrency(rule+t.nth, tier, must(strconv.ParseInt(text, 10, 64))))
	} else {
		q = must(limiter.NewQuota(rule+t.nth, tier, t.limitOf(text)))
	}
	t.quotas[name], t.first = q, cmp.Or(t.first, q)
}

func (t *trace) limitOf(text string) limiter.Limit {
	text, events, isSlow := strings.Cut(text, " slow ")
	l := t.limit
	switch text {
	case "", "each":
	case "other":
		l = t.other
	default:
		l = must(limiter.Parse(text))
	}
	if isSlow {
		l = scaled(l, must(strconv.ParseInt(events, 10, 64)))
		l.Per = 300 * 24 * time.Hour
	}
	return l
}

// scaled returns l with another number of events, and with an equal burst if l has one.
func scaled(l limiter.Limit, events int64) limiter.Limit {
	l.Events = events
	if l.Burst != 0 {
		l.Burst = events
	}
	return l
}

// must panics if the suite is wrong.
func must[T any](value T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("limitertest: %v", err))
	}
	return value
}

// A trace is a running script.
type trace struct {
	*trial
	other  limiter.Limit // one of the samples
	nth    string        // a part of the rules' names: each other has rules of its own
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
			for step := range strings.SplitSeq(rest, "; ") {
				t.do(step)
			}
		}
		return
	}
	switch verb {
	case "limit", "slots":
		t.declare(rest, verb == "slots")
		return
	case "settles":
		for _, q := range t.quotas {
			q.Settles = true
		}
		return
	case "sleep":
		t.sleep(must(time.ParseDuration(rest)))
		return
	}
	charges, fields, first, more := t.charges(verb, rest)
	switch verb {
	case "ended":
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := t.store.Decide(ctx, charges); errors.Is(err, context.Canceled) {
			t.take(first)
		} else {
			t.sound("Decide with an ended context", err)
		}
	case "take":
		t.note(first, t.take(first), more)
	case "refuse":
		t.note(first, t.refuse(first), more)
	case "left":
		t.left(first, first.Cost)
	case "look":
		t.note(first, t.look(first), more)
	case "same":
		d, want := t.look(first), t.ids[more[0]].Decision
		t.want(d == want, first, d, "want %+v", want)
	case "longer":
		other := t.charge(more[0])
		other.Cost = t.number(more[1], other)
		first.Cost = other.Cost
		long, short := t.refuse(first), t.refuse(other)
		t.want(long.RetryAfter > short.RetryAfter, first, long, "want a longer RetryAfter than %v", short.RetryAfter)
	case "batch":
		t.batch(charges, fields)
	case "wrong":
		t.wrong(charges)
	case "owe":
		t.settle(settlements(charges, true))
	case "refund":
		t.settle(settlements(charges, false))
	case "settle":
		owed := make([]limiter.Settlement, len(fields))
		for i, of := range fields {
			owed[i].Charge = t.ids[of[0]]
			owed[i].Actual = t.number(of[1], owed[i].Charge)
		}
		t.settle(owed)
	case "reset":
		t.reset(charges...)
	case "begin":
		t.begin(first.Quota, must(time.ParseDuration(more[0])))
	case "drain":
		for n := t.look(first).Limit; n > 0; n-- {
			first.Cost = 1
			d := t.take(first)
			t.want(d.Limit == first.Quota.Capacity() && d.Remaining == n-1, first, d, "want %d remaining", n-1)
		}
	case "retry":
		t.retry(first)
	case "fill":
		t.fill(first)
	case "empty":
		t.empty(first)
	default:
		t.Fatalf("limitertest: there is no step %q", verb)
	}
}

// charges reads charges, and the fields of each behind its cost. The first of them stand alone too.
func (t *trace) charges(verb, text string) (charges []limiter.Charge, fields [][]string, first limiter.Charge, more []string) {
	for part := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(part)
		switch {
		case len(words) == 0:
			return nil, nil, first, nil
		case verb == "settle":
			charges, fields = append(charges, first), append(fields, words)
			continue
		}
		c := t.charge(words[0])
		words = words[1:]
		if len(words) > 0 && !slices.Contains([]string{"look", "same", "longer", "begin"}, verb) {
			c.Cost, words = t.number(words[0], c), words[1:]
		}
		if len(words) > 0 {
			if within, ok := strings.CutPrefix(words[0], "within="); ok {
				c.Within, words = must(time.ParseDuration(within)), words[1:]
			}
		}
		if len(words) == 2 && words[0] == "of" {
			c.Decision = t.ids[words[1]].Decision
		}
		charges, fields = append(charges, c), append(fields, words)
	}
	return charges, fields, charges[0], fields[0]
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
		n = t.look(c).Remaining
	case "max":
		n = math.MaxInt64
	default:
		n = must(strconv.ParseInt(text, 10, 64))
	}
	if less != "" {
		return n - t.number(less, c)
	}
	if more != "" {
		return n + t.number(more, c)
	}
	return n
}

// note stores a decision for "as ID", and checks "FIELD=TIME" and "FIELD=TIME..TIME".
func (t *trace) note(c limiter.Charge, d limiter.Decision, fields []string) {
	t.Helper()
	times := map[string]time.Duration{
		"RetryAfter": d.RetryAfter, "NextAfter": d.NextAfter, "ResetAfter": d.ResetAfter, "Delay": d.Delay,
	}
	for i, field := range fields {
		name, value, isTime := strings.Cut(field, "=")
		least, most, isRange := strings.Cut(value, "..")
		switch {
		case field == "as":
			c.Decision = d
			t.ids[fields[i+1]] = c
		case isTime && !isRange:
			most = least
			fallthrough
		case isTime:
			got, isLong := times[name], must(time.ParseDuration(least))
			t.want(got >= isLong && got <= must(time.ParseDuration(most)), c, d, "%s is %v, want %s", name, got, value)
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
		t.want(d.Allowed == strings.HasPrefix(fields[i][0], "yes"), c, d, "want %s for charge %d of a batch", fields[i][0], i+1)
		if d.Allowed {
			c.Cost = 0
		}
		alone := t.decide(c)[0]
		alone.Receipt.By = d.Receipt.By // one of them may be remembered
		t.want(!refused && d.Allowed || d == alone, c, d, "charge %d of a batch that was not taken: want %+v, as alone", i+1, alone)
		t.note(charges[i], d, fields[i])
	}
	if len(charges) == 0 {
		t.settle(nil)
		t.reset()
	}
}

// wrong requires that each method refuses the charges, or more than MaxCharges if there are none.
func (t *trace) wrong(charges []limiter.Charge) {
	t.Helper()
	if charges == nil {
		charges = keysOf(t.first, limiter.MaxCharges+1)
	}
	for method, err := range map[string]error{
		"Decide":            t.store.Decide(t.Context(), slices.Clone(charges)),
		"Settle of debts":   t.store.Settle(t.Context(), settlements(charges, true)),
		"Settle of refunds": t.store.Settle(t.Context(), settlements(charges, false)),
		"Reset":             t.store.Reset(t.Context(), charges),
	} {
		if !errors.Is(err, limiter.ErrCharges) {
			t.broken("%s returned %v, want an error that wraps limiter.ErrCharges", method, err)
		}
	}
}
