package race

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteTables writes a table for each case, those that decide most at the top. The last
// column compares decisions per second with baseline's, if it ran.
func (r *Results) WriteTables(w io.Writer, baseline string) {
	for _, c := range r.cases {
		fmt.Fprintf(w, "\n### %v\n\n", c)
		r.writeCase(w, r.ranking(c, PerSecond), c, r.metrics, []Comparison{{"× " + baseline, baseline}})
	}
	r.writeComplaints(w)
}

// ranking is the contestants that ran in a case, those with the most of a metric at the top.
func (r *Results) ranking(c Case, by Metric) []string {
	var names []string
	figures := map[string]float64{}
	for _, contestant := range r.contestants {
		if figure, ran := r.Figure(contestant.Name, c, by); ran {
			names = append(names, contestant.Name)
			figures[contestant.Name] = figure
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(figures[b], figures[a]) })
	return names
}

// A Comparison is a column of ratios to one contestant.
type Comparison struct {
	Title string
	To    string
}

// WriteCase writes the table of one case, in Markdown, with these metrics. Those that have
// least of the first are at the top, and it is what comparisons are of.
func (r *Results) WriteCase(w io.Writer, c Case, metrics []Metric, comparisons []Comparison) {
	names := r.ranking(c, metrics[0])
	slices.Reverse(names)
	r.writeCase(w, names, c, metrics, comparisons)
}

func (r *Results) writeCase(w io.Writer, names []string, c Case, metrics []Metric, comparisons []Comparison) {
	header := []string{"contestant"}
	for _, m := range metrics {
		header = append(header, string(m))
	}
	for _, comparison := range comparisons {
		header = append(header, comparison.Title)
	}
	var rows [][]string
	for _, name := range names {
		row := []string{name}
		for _, m := range metrics {
			figure, _ := r.Figure(name, c, m)
			row = append(row, Number(figure))
		}
		for _, comparison := range comparisons {
			cell := ""
			if ratio, ok := r.Ratio(name, comparison.To, c, metrics[0]); ok {
				cell = fmt.Sprintf("%.2f", ratio.Value)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	WriteTable(w, header, rows)
}

func (r *Results) writeComplaints(w io.Writer) {
	if len(r.complaints) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### The first error of each that had any\n\n")
	for _, contestant := range r.contestants {
		if err := r.Complaint(contestant.Name); err != nil {
			fmt.Fprintf(w, "- %s: %v\n", contestant.Name, err)
		}
	}
}

// WriteGoals writes what came of goals, as a table in Markdown. Behind each ratio are the
// lowest and the highest of a single round.
func (r *Results) WriteGoals(w io.Writer, goals []Goal) {
	var rows [][]string
	for _, g := range goals {
		reached, holds, measured := g.reached(r)
		verdict := "missed"
		switch {
		case !measured:
			reached, verdict = "", "not measured"
		case holds:
			verdict = "yes"
		}
		rows = append(rows, []string{g.String(), g.Bound.String(), reached, verdict})
	}
	fmt.Fprintln(w)
	WriteTable(w, []string{"goal", "target", "reached", ""}, rows)
}

// Number is a figure as readers want it: three digits, or all those before the point.
func Number(f float64) string {
	switch {
	case f == float64(int64(f)) || f >= 100:
		return thousands(fmt.Sprintf("%.0f", f))
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	case f > 0 && f < 0.1:
		return fmt.Sprintf("%.2g", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// WriteTable writes a table in Markdown, with its columns aligned for readers of the
// source.
func WriteTable(w io.Writer, header []string, rows [][]string) {
	width := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	line := func(row []string) {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i == 0 {
				fmt.Fprintf(w, "| %s%s |", cell, pad)
			} else {
				fmt.Fprintf(w, " %s%s |", pad, cell)
			}
		}
		fmt.Fprintln(w)
	}
	line(header)
	for i := range header {
		if i == 0 {
			fmt.Fprintf(w, "| %s |", strings.Repeat("-", width[i]))
		} else {
			fmt.Fprintf(w, " %s: |", strings.Repeat("-", max(width[i]-1, 1)))
		}
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		line(row)
	}
}
