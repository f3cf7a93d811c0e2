package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/limiter"
)

// A report is what became of one measurement.
type report struct {
	measurement
	figures race.Figures
	hottest []float64 // units admitted of the first key, in each bin
	err     string    // the first
}

const (
	decided  race.Metric = "decisions"
	admitted race.Metric = "admitted"

	// above is of the key where it is most, over the whole time: units above burst + rate × time.
	above race.Metric = "above over the run"

	// peak is the same of the worst interval of any key.
	peak race.Metric = "worst interval above burst"

	// below is by how much less was admitted than an exact limiter would have, and worstKey
	// the same of the key where that is most.
	below    race.Metric = "% below exact"
	worstKey race.Metric = "% below, worst key"

	trips    race.Metric = "trips/decision"
	degraded race.Metric = "degraded"
)

var metrics = []race.Metric{trips, decided, admitted, above, peak, below, worstKey, race.P50, race.P99, race.Errors, degraded}

// bin is what the plot adds up.
const bin = 250 * time.Millisecond

// fewest is how many an exact limiter has to admit of a key for its share to say something.
const fewest = 50

func newReport(c measurement, records []record, o outcome, calls int) (*report, error) {
	quota, err := limiter.NewQuota("exact", "", limitOf(c.Limit))
	if err != nil {
		return nil, err
	}
	r := &report{measurement: c, err: o.Error, hottest: make([]float64, int(c.Duration/bin)+1)}

	// The exact limiter takes requests in the order in which they came.
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.At, b.At) })
	began := time.Hour.Microseconds() // any time will do
	states := make([]limiter.State, c.Keys)
	could, did := make([]int, c.Keys), make([]int, c.Keys)
	latencies := &race.Histogram{}
	exactly, passed := 0, 0
	for i := range records {
		rec := &records[i]
		latencies.Add(time.Duration(rec.Took))
		var ok bool
		if states[rec.Key], ok = quota.Take(states[rec.Key], began+rec.At/1000, 1); ok {
			could[rec.Key]++
			exactly++
		}
		if rec.Allowed == 1 {
			did[rec.Key]++
			passed++
		}
	}

	// What was admitted counts from when it was known. A bucket without a limit tells by how
	// much the worst interval exceeds the rate.
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.At+a.Took, b.At+b.Took) })
	level, last := make([]float64, c.Keys), make([]int64, c.Keys)
	rate, burst := float64(c.Limit), float64(quota.Capacity())
	end, highest := int64(0), 0.0
	for i := range records {
		rec := &records[i]
		if rec.Allowed == 0 {
			continue
		}
		at, k := rec.At+rec.Took, rec.Key
		level[k] = max(0, level[k]-rate*float64(at-last[k])/1e9) + 1
		last[k], end = at, max(end, at)
		highest = max(highest, level[k]-burst)
		if k == 0 {
			if n := int(at / int64(bin)); n < len(r.hottest) {
				r.hottest[n]++
			}
		}
	}
	over, worst := 0.0, 0.0
	for k := range did {
		over = max(over, float64(did[k])-burst-rate*float64(end)/1e9)
		if could[k] >= fewest {
			worst = max(worst, 1-float64(did[k])/float64(could[k]))
		}
	}
	micros := func(part float64) float64 { return float64(latencies.Quantile(part)) / 1e3 }
	r.figures = race.Figures{
		decided: float64(len(records)), admitted: float64(passed), above: over, peak: highest,
		below: 100 * (1 - float64(passed)/float64(exactly)), worstKey: 100 * worst,
		trips:    float64(calls) / float64(len(records)),
		race.P50: micros(0.5), race.P99: micros(0.99),
		race.Errors: float64(o.Errors), degraded: float64(o.Degraded),
	}
	return r, nil
}

// aheadPart is leasestore's default Ahead.
const aheadPart = 0.25

// goals are what the modes are meant to reach under a limit.
func goals(c race.Case, limit float64) (goals []race.Goal) {
	atMost := func(m race.Metric, mode string, bound float64) {
		goals = append(goals, race.Goal{Metric: m, Case: c, Of: mode, Bound: race.AtMost(bound)})
	}
	atMost(above, leased, 0)
	atMost(peak, leased, aheadPart*limit)
	atMost(peak, synchronized, float64(len(shares))*limit)
	atMost(below, leased, 0.5)
	atMost(below, synchronized, 1)
	atMost(worstKey, leased, 3)
	if limit >= 100 {
		atMost(trips, leased, 0.1)
	} else {
		atMost(trips, leased, 0.25)
	}
	atMost(trips, synchronized, 0.01)
	atMost(race.P50, leased, 1)
	atMost(race.P99, leased, 700)
	atMost(race.P50, synchronized, 1)
	atMost(race.P99, synchronized, 2)
	return goals
}
