// Package race lets implementations of one thing run against each other on one machine.
//
// A machine that is slow is slow for a while, so every contestant gets a short slice of
// time in every round, in a random order, and what counts is the median over the rounds:
// of figures, and of the ratios of two contestants in the same round. Nothing in here
// knows what is decided, or where.
package race

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// A Call makes one decision. It is called by one goroutine.
type Call func(ctx context.Context, key string) (allowed bool, err error)

// A Contestant is what runs.
type Contestant struct {
	Name  string
	About string // a line for readers of the figures

	// Caller makes a Call for one goroutine, with what it need not share with others.
	// It is called again for every slice.
	Caller func() Call
}

// A Case is what contestants are put to: so many goroutines, each of which asks again as
// soon as it has an answer, about random ones of so many keys.
type Case struct {
	Goroutines int    `json:"goroutines"`
	Keys       int    `json:"keys"`
	Name       string `json:"name,omitempty"` // of what else is special about it
}

func (c Case) String() string {
	text := plural(c.Goroutines, "goroutine") + ", " + plural(c.Keys, "key")
	if c.Name != "" {
		return c.Name + ": " + text
	}
	return text
}

// A Meter is something that is used up while deciding: CPU time, say.
type Meter struct {
	Metric Metric // of what is used for one decision

	// Read is how much has been used since some time in the past.
	Read func() (float64, error)
}

// A Plan is a race before it is run.
type Plan struct {
	Contestants []Contestant
	Cases       []Case
	Rounds      int
	Slice       time.Duration // how long each contestant runs in each case and round
	Meters      []Meter

	// Reset makes what earlier slices left forgotten. It is called before each. May be nil.
	Reset func(context.Context) error

	// Progress hears of each slice before it begins, and of the end. May be nil.
	Progress func(done, of int, what string)

	// Measure is how one contestant is measured in one case, if that is not by what it
	// decides in a Slice. It returns no Figures for one that could not take part.
	Measure func(context.Context, Contestant, Case) (Figures, error)

	// Metrics are what Measure returns. Without Measure they follow from the Meters.
	Metrics []Metric
}

// Run runs the race. When ctx ends, so does the race, with an error.
func (p *Plan) Run(ctx context.Context) (*Results, error) {
	results := newResults(p)
	done, of := 0, p.Rounds*len(p.Cases)*len(p.Contestants)
	progress := p.Progress
	if progress == nil {
		progress = func(int, int, string) {}
	}
	defer func() { progress(of, of, "") }()
	for range p.Rounds {
		// Those that are compared, in one case, run next to each other.
		for _, c := range shuffled(p.Cases) {
			for _, contestant := range shuffled(p.Contestants) {
				progress(done, of, contestant.Name+": "+c.String())
				figures, complaint, err := p.measure(ctx, contestant, c)
				if ended := ctx.Err(); ended != nil {
					return nil, ended
				}
				if err != nil {
					return nil, fmt.Errorf("race: %s, %v: %w", contestant.Name, c, err)
				}
				if figures != nil {
					results.add(contestant.Name, c, figures, complaint)
				}
				done++
			}
		}
	}
	return results, nil
}

func (p *Plan) measure(ctx context.Context, contestant Contestant, c Case) (figures Figures, complaint, err error) {
	if p.Measure == nil {
		return p.slice(ctx, contestant, c)
	}
	figures, err = p.Measure(ctx, contestant, c)
	return figures, nil, err
}

func shuffled[T any](of []T) []T {
	order := append([]T(nil), of...)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// Keys are n keys as clients have them: addresses.
func Keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = Key(i)
	}
	return keys
}

// Key is one of them. The first 2^24 differ.
func Key(i int) string {
	return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
}

// plural is "1 key" or "10,000 keys".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(strconv.Itoa(n)) + " " + noun + "s"
}

// thousands puts commas into digits.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
