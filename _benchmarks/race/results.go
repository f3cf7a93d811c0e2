package race

import (
	"encoding/json"
	"maps"
	"slices"
)

// A Metric is what a figure is a figure of, with its unit.
type Metric string

// What every slice is measured by; a Plan's meters come on top. Decisions are calls
// without an error, latencies are those of every call.
const (
	PerSecond Metric = "decisions/s"
	P50       Metric = "p50 µs"
	P99       Metric = "p99 µs"
	Errors    Metric = "errors"
	Refused   Metric = "refused"
)

// Figures are what was measured in one slice.
type Figures map[Metric]float64

// Results are the figures of a race.
type Results struct {
	contestants []Contestant
	cases       []Case
	metrics     []Metric
	rounds      map[place][]Figures
	complaints  map[string]error // by contestant, the first
}

type place struct {
	contestant string
	c          Case
}

func newResults(p *Plan) *Results {
	r := &Results{
		contestants: p.Contestants,
		cases:       p.Cases,
		metrics:     []Metric{PerSecond, P50, P99},
		rounds:      map[place][]Figures{},
		complaints:  map[string]error{},
	}
	if p.Measure != nil {
		r.metrics = p.Metrics
		return r
	}
	for _, m := range p.Meters {
		r.metrics = append(r.metrics, m.Metric)
	}
	r.metrics = append(r.metrics, Errors, Refused)
	return r
}

func (r *Results) add(contestant string, c Case, f Figures, complaint error) {
	at := place{contestant, c}
	r.rounds[at] = append(r.rounds[at], f)
	if complaint != nil && r.complaints[contestant] == nil {
		r.complaints[contestant] = complaint
	}
}

// Figure is the median over the rounds; of errors and refusals it is their sum. It is
// false for a contestant that did not run.
func (r *Results) Figure(contestant string, c Case, m Metric) (float64, bool) {
	var each []float64
	sum := 0.0
	for _, f := range r.rounds[place{contestant, c}] {
		each = append(each, f[m])
		sum += f[m]
	}
	if len(each) == 0 {
		return 0, false
	}
	if m == Errors || m == Refused {
		return sum, true
	}
	return median(each), true
}

// Lowest is the contestant with the least of a metric in a case, among those that count. It is false
// if none of them ran.
func (r *Results) Lowest(c Case, m Metric, counts func(contestant string) bool) (string, bool) {
	for _, name := range slices.Backward(r.ranking(c, m)) {
		if counts(name) {
			return name, true
		}
	}
	return "", false
}

// Include adds the results of another race, with cases of its own.
func (r *Results) Include(other *Results) {
	for _, contestant := range other.contestants {
		if !slices.ContainsFunc(r.contestants, func(c Contestant) bool { return c.Name == contestant.Name }) {
			r.contestants = append(r.contestants, contestant)
		}
	}
	for _, m := range other.metrics {
		if !slices.Contains(r.metrics, m) {
			r.metrics = append(r.metrics, m)
		}
	}
	r.cases = append(r.cases, other.cases...)
	if r.rounds == nil {
		r.rounds, r.complaints = map[place][]Figures{}, map[string]error{}
	}
	maps.Copy(r.rounds, other.rounds)
	maps.Copy(r.complaints, other.complaints)
}

// Complaint is the first error that a contestant returned, or nil.
func (r *Results) Complaint(contestant string) error { return r.complaints[contestant] }

// A Ratio is the median of the ratios of single rounds, with the lowest and the highest of
// them. Within a round both ran on a machine in much the same state; from one round to the
// next it may be in another.
type Ratio struct {
	Value, Low, High float64
}

// Ratio is one contestant's figure by another's. It is false if they did not both run.
func (r *Results) Ratio(of, to string, c Case, m Metric) (Ratio, bool) {
	var each []float64
	theirs := r.rounds[place{to, c}]
	for i, f := range r.rounds[place{of, c}] {
		if i < len(theirs) && theirs[i][m] != 0 {
			each = append(each, f[m]/theirs[i][m])
		}
	}
	if len(each) == 0 {
		return Ratio{}, false
	}
	return Ratio{median(each), slices.Min(each), slices.Max(each)}, true
}

func median(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// MarshalJSON writes the medians and each round's figures.
func (r *Results) MarshalJSON() ([]byte, error) {
	type result struct {
		Contestant string    `json:"contestant"`
		Case       Case      `json:"case"`
		Figures    Figures   `json:"figures"`
		Rounds     []Figures `json:"rounds"`
	}
	results := []result{}
	for _, c := range r.cases {
		for _, contestant := range r.contestants {
			rounds, ran := r.rounds[place{contestant.Name, c}]
			if !ran {
				continue
			}
			figures := Figures{}
			for m := range rounds[0] {
				figures[m], _ = r.Figure(contestant.Name, c, m)
			}
			results = append(results, result{contestant.Name, c, figures, rounds})
		}
	}
	return json.Marshal(results)
}
