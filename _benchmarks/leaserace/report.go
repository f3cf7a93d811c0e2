package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/limiter"
)

// A report is what became of one course.
type report struct {
	course
	outcome
	decisions int
	admitted  int
	exact     int // what an exact limiter would have admitted

	above    float64 // of the key where it is most, over the whole time: units above burst + rate x time
	peak     float64 // the same of the worst interval of any key
	worstKey float64 // part by which the key furthest below the exact limiter is below
	trips    float64 // per decision
	p50, p99 time.Duration

	hottest []float64 // units admitted of the first key, in each bin
}

// bin is what the plot adds up.
const bin = 250 * time.Millisecond

// fewest is how many an exact limiter has to admit of a key for its share to say something.
const fewest = 50

func newReport(c course, records []record, o outcome, trips int) (*report, error) {
	quota, err := limiter.NewQuota("exact", "", limitOf(c.Limit))
	if err != nil {
		return nil, err
	}
	r := &report{course: c, outcome: o, decisions: len(records), trips: float64(trips) / float64(len(records))}
	r.hottest = make([]float64, int(c.Duration/bin)+1)

	// The exact limiter takes requests in the order in which they came.
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.At, b.At) })
	began := time.Hour.Microseconds() // any time will do
	states := make([]limiter.State, c.Keys)
	could, did := make([]int, c.Keys), make([]int, c.Keys)
	latencies := &race.Histogram{}
	for i := range records {
		rec := &records[i]
		latencies.Add(time.Duration(rec.Took))
		var ok bool
		if states[rec.Key], ok = quota.Take(states[rec.Key], began+rec.At/1000, 1); ok {
			could[rec.Key]++
			r.exact++
		}
		if rec.Allowed == 1 {
			did[rec.Key]++
			r.admitted++
		}
	}
	r.p50, r.p99 = latencies.Quantile(0.5), latencies.Quantile(0.99)

	// What was admitted counts from when it was known. A bucket without a limit tells by how
	// much the worst interval exceeds the rate.
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.At+a.Took, b.At+b.Took) })
	level, last := make([]float64, c.Keys), make([]int64, c.Keys)
	rate, burst := float64(c.Limit), float64(quota.Capacity())
	end := int64(0)
	for i := range records {
		rec := &records[i]
		if rec.Allowed == 0 {
			continue
		}
		at, k := rec.At+rec.Took, rec.Key
		level[k] = max(0, level[k]-rate*float64(at-last[k])/1e9) + 1
		last[k], end = at, max(end, at)
		r.peak = max(r.peak, level[k]-burst)
		if k == 0 {
			if n := int(at / int64(bin)); n < len(r.hottest) {
				r.hottest[n]++
			}
		}
	}
	r.above = math.Inf(-1)
	for k := range did {
		r.above = max(r.above, float64(did[k])-burst-rate*float64(end)/1e9)
		if could[k] >= fewest {
			r.worstKey = min(r.worstKey, float64(did[k]-could[k])/float64(could[k]))
		}
	}
	r.above = max(0, r.above)
	return r, nil
}

// below is the part by which less was admitted than an exact limiter would have.
func (r *report) below() float64 { return 1 - float64(r.admitted)/float64(r.exact) }

func percent(part float64) string { return fmt.Sprintf("%.2f%%", 100*part) }

func writeTables(w io.Writer, reports []*report) {
	header := []string{"limit, traffic", "mode", "decisions", "admitted", "above over the run", "worst interval above burst", "total below exact", "worst key", "trips/decision", "p50", "p99", "errors, degraded"}
	var rows [][]string
	for _, r := range reports {
		rows = append(rows, []string{
			fmt.Sprintf("%d/s, %s", r.Limit, r.Traffic), r.Mode, race.Number(float64(r.decisions)), race.Number(float64(r.admitted)),
			fmt.Sprintf("%.1f", r.above), fmt.Sprintf("%.1f (%.0f%%)", max(0, r.peak), 100*max(0, r.peak)/float64(r.Limit)),
			percent(r.below()), percent(r.worstKey), fmt.Sprintf("%.4f", r.trips),
			r.p50.String(), r.p99.String(), fmt.Sprintf("%d, %d", r.Errors, r.Degraded),
		})
	}
	fmt.Fprintln(w)
	race.WriteTable(w, header, rows)
	for _, r := range reports {
		if r.Error != "" {
			fmt.Fprintf(w, "\nThe first error of %v: %s\n", r.course, r.Error)
		}
	}
}

// A goal is what a figure of a mode is meant to be, at most.
type goal struct {
	name  string
	mode  string
	most  func(r *report) float64
	value func(r *report) float64
	show  func(float64) string
}

// aheadPart is leasestore's default Ahead.
const aheadPart = 0.25

func goals() []goal {
	constant := func(f float64) func(*report) float64 { return func(*report) float64 { return f } }
	units := func(f float64) string { return fmt.Sprintf("%.1f", f) }
	plain := func(f float64) string { return fmt.Sprintf("%.4f", f) }
	duration := func(f float64) string { return time.Duration(f).String() }
	tripsOf := func(r *report) float64 { return r.trips }
	peakOf := func(r *report) float64 { return r.peak }
	return []goal{
		{"above burst + rate x time over the run, units", leased, constant(0), func(r *report) float64 { return r.above }, units},
		{"worst interval above the burst, units", leased, func(r *report) float64 { return aheadPart * float64(r.Limit) }, peakOf, units},
		{"worst interval above the burst, units", synchronized, func(r *report) float64 { return float64(len(shares)) * float64(r.Limit) }, peakOf, units},
		{"total below the exact limiter's", leased, constant(0.005), (*report).below, percent},
		{"total below the exact limiter's", synchronized, constant(0.01), (*report).below, percent},
		{"worst single key below", leased, constant(0.03), func(r *report) float64 { return -r.worstKey }, percent},
		{"round trips per decision", leased, func(r *report) float64 {
			if r.Limit >= 100 {
				return 0.1
			}
			return 0.25
		}, tripsOf, plain},
		{"round trips per decision", synchronized, constant(0.01), tripsOf, plain},
		{"p50", leased, constant(float64(time.Microsecond)), func(r *report) float64 { return float64(r.p50) }, duration},
		{"p99", leased, constant(float64(700 * time.Microsecond)), func(r *report) float64 { return float64(r.p99) }, duration},
		{"p50", synchronized, constant(float64(time.Microsecond)), func(r *report) float64 { return float64(r.p50) }, duration},
		{"p99", synchronized, constant(float64(2 * time.Microsecond)), func(r *report) float64 { return float64(r.p99) }, duration},
	}
}

// writeGoals writes what came of goals.
func writeGoals(w io.Writer, reports []*report) {
	var rows [][]string
	for _, g := range goals() {
		for _, r := range reports {
			if r.Mode != g.mode {
				continue
			}
			most, value := g.most(r), g.value(r)
			verdict := "yes"
			if value > most {
				verdict = "missed"
			}
			rows = append(rows, []string{g.name, r.course.String(), "≤ " + g.show(most), g.show(value), verdict})
		}
	}
	fmt.Fprintf(w, "\n## Goals\n\n")
	race.WriteTable(w, []string{"goal", "case", "target", "reached", ""}, rows)
}
