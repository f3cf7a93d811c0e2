package verdict

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/demand"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/limiter"
)

var (
	//go:embed page.html
	pageHTML string

	//go:embed style.css
	styleCSS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"number": Number, "share": Share, "clock": clock, "long": long,
	}).Parse(pageHTML))
)

// A Page is what a report shows. What is nil is not shown.
type Page struct {
	Title string // what it is of: names of files
	Words
	Notes []string

	Summary *simulate.Summary // of the rules, or of the new rules
	Change  *simulate.Change

	Recommended *Recommendation
}

// A Recommendation is what a page shows of one.
type Recommendation struct {
	*demand.Result
	Peaks  string
	Limits []Limit // the recommended one and those next to it
	Text   string  // for a rules file
}

// A Limit is a candidate for the recommendation.
type Limit struct {
	demand.Point
	Text   string // 60/1m
	Chosen bool
}

// TextOf is a period as in 60/1m.
func TextOf(per time.Duration) string {
	_, period, _ := strings.Cut(limiter.Limit{Events: 1, Per: per}.String(), "/")
	return period
}

// Write writes the page. It is whole in itself, and asks for nothing.
func (p *Page) Write(w io.Writer) error {
	return pageTemplate.Execute(w, struct {
		*Page
		Style  template.CSS
		Policy string
		Chart  *chart
	}{
		p, template.CSS(styleCSS),
		"default-src 'none'; img-src data:; style-src " + digestOf(styleCSS) + "; base-uri 'none'; form-action 'none'",
		p.chart(),
	})
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// long reports whether a table of so many rows may be higher than its place, where it scrolls.
func long(rows int) bool { return rows > 10 }

func clock(t time.Time) string { return t.Format("2 Jan 15:04:05") }

// A chart is requests over time.
type chart struct {
	Width     int // in bins
	All, None string
	MostAll   int64
	MostNone  int64 // refused in a bin
	TotalNone int64
	Labels    []string
	Bin, Says string
}

// Heights of the two parts of the drawing.
const (
	heightAll     = 40
	heightStopped = 100
)

func (p *Page) chart() *chart {
	if p.Summary == nil || len(p.Summary.Timeline.Passed) == 0 {
		return nil
	}
	t := p.Summary.Timeline
	n, width := len(t.Passed), time.Duration(t.Seconds)*time.Second
	c := &chart{Width: n, Bin: Length(width)}
	all, worst := make([]int64, n), 0
	for i, stopped := range t.Stopped {
		all[i] = t.Passed[i] + stopped
		c.TotalNone += stopped
		if stopped > t.Stopped[worst] {
			worst = i
		}
	}
	c.MostAll, c.MostNone = slices.Max(all), t.Stopped[worst]
	c.All, c.None = bars(all, c.MostAll, heightAll), bars(t.Stopped, c.MostNone, heightStopped)
	layout := "15:04:05"
	switch span := width * time.Duration(n); {
	case span > 20*24*time.Hour:
		layout = "2 Jan"
	case span > 24*time.Hour:
		layout = "2 Jan 15:04"
	case span > 10*time.Minute:
		layout = "15:04"
	}
	for i := range 5 {
		c.Labels = append(c.Labels, t.Begin.Add(width*time.Duration(i*n)/4).Format(layout))
	}
	c.Says = "Nothing is refused."
	if c.MostNone > 0 {
		c.Says = fmt.Sprintf("Most are refused at %s: %s in %s.", t.Begin.Add(width*time.Duration(worst)).Format("2 January 15:04:05"), Number(c.MostNone), c.Bin)
	}
	return c
}

// bars is the outline of columns.
func bars(heights []int64, most int64, height float64) string {
	var b strings.Builder
	for i, h := range heights {
		if h > 0 {
			fmt.Fprintf(&b, "M%d %.0fV%.2fH%dV%.0fz", i, height, height-height*float64(h)/float64(most), i+1, height)
		}
	}
	return b.String()
}
