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

	//go:embed script.js
	scriptJS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"number": Number, "share": Share, "percent": Percent, "clock": clock, "long": long,
	}).Parse(pageHTML))
)

// A Page is what a report shows. What is nil is not shown.
type Page struct {
	Title string // what it is of: names of files
	Words
	Notes []string

	Summary *simulate.Summary // of the rules, or of the new rules
	Change  *simulate.Change
	Curves  []Curve

	// Peaks, Buckets and Refused are of a recommendation.
	Peaks   string
	Buckets []Bucket
	Refused []demand.Client
}

// A Curve is what limits other than one would have refused.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
	Begin  int     `json:"begin"` // the point to begin with
	Said   string  `json:"said"`  // about the curve
}

// A Point is what a limit comes to.
type Point struct {
	Limit    string  `json:"limit"`    // 60 per minute
	Number   string  `json:"number"`   // 60
	Says     string  `json:"says"`     // what it would have refused
	Text     string  `json:"text"`     // for a rules file
	Keys     float64 `json:"keys"`     // the share of them that are refused something
	Requests float64 `json:"requests"` // that are refused
}

// A Bucket is a limit with a burst.
type Bucket struct{ Limit, Most string }

// CurveOf is the curve of a rule of a simulation.
func CurveOf(c *simulate.Curve) Curve {
	curve := Curve{Name: nameOf(c.Rule, c.Tier), Said: fmt.Sprintf("It now has %v. Limits are tried one by one: what other rules and bans refuse counts here too.", c.Limit)}
	for i, tried := range c.Tried {
		text := tried.Limit.String()
		curve.Points = append(curve.Points, newPoint(text, tried.Limit.Events, "limit: "+text, tried.Keys, c.Keys, tried.Requests, c.Requests))
		if tried.Limit.Events <= c.Limit.Events {
			curve.Begin = i
		}
	}
	return curve
}

// NewCurve is the curve of a result, which begins at a limit. A limit is written into a rules
// file as text says.
func NewCurve(r *demand.Result, name string, limit int64, text func(limit int64) string) Curve {
	curve := Curve{Name: name}
	for i, p := range r.Curve {
		curve.Points = append(curve.Points, newPoint(PerPeriod(p.Limit, r.Per), p.Limit, text(p.Limit), p.Keys, r.Keys, p.Requests, r.Requests))
		if p.Limit <= limit {
			curve.Begin = i
		}
	}
	return curve
}

// newPoint is a limit that refused something to refusedKeys of keys, and refused of requests.
func newPoint(limit string, events int64, text string, refusedKeys, keys, refused, requests int64) Point {
	says := fmt.Sprintf("would have refused %s of %s (%s)", Number(refused), count(requests, "request", "requests"), Share(refused, requests))
	if keys > 1 {
		says = fmt.Sprintf("would have refused %s of %s clients (%s) and %s of %s requests (%s)", Number(refusedKeys), Number(keys), Share(refusedKeys, keys),
			Number(refused), Number(requests), Share(refused, requests))
	}
	return Point{
		Limit: limit, Number: Number(events), Says: says, Text: text,
		Keys: float64(refusedKeys) / float64(keys), Requests: float64(refused) / float64(requests),
	}
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
		Script template.JS
		Policy string
		Chart  *chart
	}{
		p, template.CSS(styleCSS), template.JS(scriptJS),
		"default-src 'none'; img-src data:; style-src " + digestOf(styleCSS) + "; script-src " + digestOf(scriptJS) +
			"; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
		p.chart(),
	})
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// long reports whether a table of so many rows may be higher than its place, where it scrolls.
func long(rows int) bool { return rows > 10 }

// Uncurved says which rules have no curve, though they decided about requests.
func (p *Page) Uncurved() string {
	if p.Summary == nil {
		return ""
	}
	var names []string
	for _, rule := range p.Summary.Rules {
		hasCurve := slices.ContainsFunc(p.Curves, func(c Curve) bool { return c.Name == nameOf(rule.Rule, rule.Tier) })
		if name := nameOf(rule.Rule, rule.Tier); rule.Asked > 0 && !hasCurve {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("Not here: %s. Only a rule with one limit that counts requests can be moved by itself.", strings.Join(names, "; "))
}

func nameOf(rule, tier string) string {
	if tier == "" {
		return rule
	}
	return rule + ", tier " + tier
}

func clock(t time.Time) string { return t.Format("2 Jan 15:04:05") }

// A chart is requests over time.
type chart struct {
	Width    int // in bins
	All      string
	MostAll  int64
	Layers   []layer
	MostNone int64 // refused in a bin
	Labels   []string
	Bin      string
	Says     string
}

// A layer is what one thing refused, on top of those before it.
type layer struct {
	Class, Name, Path string
	Total             int64
}

// Heights of the two parts of the drawing.
const (
	heightAll     = 40
	heightStopped = 100
)

// mostLayers is how many have a color of their own.
const mostLayers = 4

func (p *Page) chart() *chart {
	if p.Summary == nil || len(p.Summary.Timeline.Passed) == 0 {
		return nil
	}
	t := p.Summary.Timeline
	n := len(t.Passed)
	c := &chart{Width: n, Bin: oneOf(time.Duration(t.Seconds) * time.Second)}

	names := make([]string, 0, len(t.Stopped))
	totals := map[string]int64{}
	for name, counts := range t.Stopped {
		names = append(names, name)
		for _, k := range counts {
			totals[name] += k
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if totals[a] != totals[b] {
			return int(totals[b] - totals[a])
		}
		return strings.Compare(a, b)
	})
	var heights [][]int64 // of layers
	rules := 0
	for _, name := range names {
		l := layer{Name: name, Total: totals[name]}
		switch {
		case name == "ban":
			l.Class = "ban"
		case name == "no key":
			l.Class = "shadow"
		case rules < mostLayers:
			l.Class = fmt.Sprintf("r%d", rules)
			rules++
		default:
			l.Class, l.Name = "rest", "other rules"
			if rest := slices.IndexFunc(c.Layers, func(l layer) bool { return l.Class == "rest" }); rest >= 0 {
				c.Layers[rest].Total += l.Total
				for i, k := range t.Stopped[name] {
					heights[rest][i] += k
				}
				continue
			}
		}
		c.Layers = append(c.Layers, l)
		heights = append(heights, slices.Clone(t.Stopped[name]))
	}

	all, stopped, worst := make([]int64, n), make([]int64, n), 0
	for i := range n {
		for _, h := range heights {
			stopped[i] += h[i]
		}
		all[i] = t.Passed[i] + stopped[i]
		if stopped[i] > stopped[worst] {
			worst = i
		}
	}
	c.MostAll, c.MostNone = slices.Max(all), stopped[worst]
	c.All = bars(make([]int64, n), all, c.MostAll, heightAll)
	base := make([]int64, n)
	for i := range c.Layers {
		c.Layers[i].Path = bars(base, heights[i], c.MostNone, heightStopped)
		for j := range base {
			base[j] += heights[i][j]
		}
	}
	width := time.Duration(t.Seconds) * time.Second
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

// bars is the outline of columns that stand on others.
func bars(base, heights []int64, most int64, height float64) string {
	var b strings.Builder
	y := func(n int64) float64 { return height - height*float64(n)/float64(max(1, most)) }
	for i, h := range heights {
		if h > 0 {
			fmt.Fprintf(&b, "M%d %.2fV%.2fH%dV%.2fz", i, y(base[i]), y(base[i]+h), i+1, y(base[i]))
		}
	}
	return b.String()
}
