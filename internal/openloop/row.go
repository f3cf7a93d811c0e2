package openloop

import (
	"fmt"
	"strconv"
	"strings"
)

// A Row has one figure for each of [Loads].
type Row [len(Loads)]float64

// ReadRow reads the table row that begins with name from a page. It reads 50% as 0.5.
func ReadRow(page, name string) (r Row, err error) {
	_, cells, ok := strings.Cut(page, "| "+name+" |")
	cells, _, _ = strings.Cut(cells, "\n")
	texts := strings.Split(strings.TrimSuffix(cells, "|"), "|")
	if !ok || len(texts) != len(r) {
		return r, fmt.Errorf("openloop: the page has no row %q with %d figures", name, len(r))
	}
	for i, text := range texts {
		number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
		if r[i], err = strconv.ParseFloat(number, 64); err != nil {
			return r, fmt.Errorf("openloop: row %q: %w", name, err)
		}
		if percent {
			r[i] /= 100
		}
	}
	return r, nil
}

// Figures runs the service at each of [Loads] for so many seconds. A fifth of the requests is
// of the high tier. It returns good answers as a share of the capacity, good answers as a share
// of the high tier, and refusals as a share of all requests.
func (w World) Figures(seconds int, run func(*World) *Run) (goodput, high, refused Row) {
	for i, load := range Loads {
		w := w.With(0.2, load)
		r := run(w).Sum(0, seconds)
		goodput[i] = float64(r.Good()) / (float64(seconds) * w.Capacity())
		high[i] = float64(r[0].Good) / float64(r[0].Came)
		refused[i] = float64(r.Refused()) / float64(r[0].Came+r[1].Came)
	}
	return goodput, high, refused
}
