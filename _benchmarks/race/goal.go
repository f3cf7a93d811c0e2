package race

import "fmt"

// A Goal is what a figure, or the ratio of two, is meant to be.
type Goal struct {
	Metric Metric
	Case   Case
	Of     string // a contestant
	To     string // the one to compare with; empty: the figure itself counts
	Bound  Bound
}

// A Bound is a number and the side of it to be on.
type Bound struct {
	least bool
	value float64
}

// AtLeast is a bound from below.
func AtLeast(value float64) Bound { return Bound{true, value} }

// AtMost is a bound from above.
func AtMost(value float64) Bound { return Bound{false, value} }

func (b Bound) holds(value float64) bool {
	if b.least {
		return value >= b.value
	}
	return value <= b.value
}

func (b Bound) String() string {
	if b.least {
		return fmt.Sprintf("≥ %g", b.value)
	}
	return fmt.Sprintf("≤ %g", b.value)
}

func (g Goal) String() string {
	what := fmt.Sprintf("%s of %s", g.Metric, g.Of)
	if g.To != "" {
		what += " / " + g.To
	}
	return what + ", " + g.Case.String()
}

// reached is what came of a goal.
func (g Goal) reached(r *Results) (value string, holds, measured bool) {
	if g.To == "" {
		figure, ran := r.Figure(g.Of, g.Case, g.Metric)
		return Number(figure), g.Bound.holds(figure), ran
	}
	ratio, ran := r.Ratio(g.Of, g.To, g.Case, g.Metric)
	return fmt.Sprintf("%.2f (%.2f to %.2f)", ratio.Value, ratio.Low, ratio.High), g.Bound.holds(ratio.Value), ran
}
