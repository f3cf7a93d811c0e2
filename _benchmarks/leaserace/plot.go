package main

import (
	"fmt"
	"strings"

	"github.com/weirgo/weir/benchmarks/race"
)

// Of the plot, in pixels.
const (
	panelWidth  = 400
	panelHeight = 150
	marginLeft  = 52
	marginTop   = 64
	rowGap      = 56
)

const style = `.axis { stroke: #c4cad1; fill: none }
.limit { stroke: #d1242f; stroke-dasharray: 4 3; fill: none }
.exact, .leased, .synchronized { fill: none; stroke-width: 1.6 }
.exact { stroke: #8c959f } .leased { stroke: #0969da } .synchronized { stroke: #b08800 }`

const dark = `.axis { stroke: #565d66 }
.exact { stroke: #9198a1 } .leased { stroke: #4493f8 } .synchronized { stroke: #d4a72c }`

// plot is how much was admitted of the hottest key in each quarter of a second, as a rate,
// beside what its limit lets through in the long run. There is a row for each limit and a
// column for each traffic.
func plot(s settings, reports []*report) string {
	width := len(s.traffics)*(marginLeft+panelWidth) + 16
	height := marginTop + len(s.limits)*(panelHeight+rowGap)
	svg := race.NewSVG(width, height, "Admitted per second against the limit, by mode", style, dark)
	svg.Text(4, 18, "title", "Admitted per second of the hottest key, three instances")
	x := 4
	for _, name := range append([]string{"limit"}, modes...) {
		fmt.Fprintf(svg, `<line x1="%d" y1="34" x2="%d" y2="34" class="%s"/>`+"\n", x, x+22, name)
		svg.Text(x+28, 38, "", name)
		x += 44 + 8*len(name)
	}
	for row, limit := range s.limits {
		for column, traffic := range s.traffics {
			left, top := column*(marginLeft+panelWidth)+marginLeft, marginTop+row*(panelHeight+rowGap)+16
			panel(svg, left, top, int64(limit), traffic, reports)
		}
	}
	return svg.End()
}

// panel draws one limit under one traffic. A point is in the middle of its bin.
func panel(svg *race.SVG, left, top int, limit int64, traffic string, reports []*report) {
	perSecond := 1 / bin.Seconds()
	most, bins := 1.2*float64(limit), 0
	for _, r := range reports {
		if r.Limit == limit && r.Traffic == traffic {
			bins = max(bins, len(r.hottest)-1)
			for _, n := range r.hottest {
				most = max(most, n*perSecond)
			}
		}
	}
	height := func(rate float64) float64 { return float64(top) + float64(panelHeight)*(1-rate/most) }
	svg.Text(left, top-8, "head", fmt.Sprintf("%d/s, %s", limit, traffic))
	fmt.Fprintf(svg, `<path d="M%d %dV%dH%d" class="axis"/>`+"\n", left, top, top+panelHeight, left+panelWidth)
	svg.Text(left-44, top+8, "small", fmt.Sprintf("%.0f/s", most))
	svg.Text(left-44, int(height(float64(limit)))+4, "small", fmt.Sprintf("%d/s", limit))
	svg.Text(left+panelWidth-40, top+panelHeight+14, "small", fmt.Sprintf("%.0f s", float64(bins)*bin.Seconds()))
	fmt.Fprintf(svg, `<path d="M%d %.1fH%d" class="limit"/>`+"\n", left, height(float64(limit)), left+panelWidth)
	for _, r := range reports {
		if r.Limit != limit || r.Traffic != traffic {
			continue
		}
		var points []string
		for i, n := range r.hottest[:len(r.hottest)-1] {
			points = append(points, fmt.Sprintf("%.1f,%.1f", float64(left)+(float64(i)+0.5)/float64(bins)*panelWidth, height(n*perSecond)))
		}
		fmt.Fprintf(svg, `<polyline points="%s" class="%s"/>`+"\n", strings.Join(points, " "), r.Mode)
	}
}
