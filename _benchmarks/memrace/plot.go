package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/weirgo/weir/benchmarks/race"
)

// Of the plot, in pixels.
const (
	labelWidth = 118
	panelWidth = 250
	barWidth   = 190 // the longest, so that its figure has room beside it
	rowHeight  = 30
	headHeight = 70
)

const style = `.weir { font-weight: 600 }
.one { fill: #8c959f } .all { fill: #c4cad1 }
.weir-one { fill: #0969da } .weir-all { fill: #80b7f0 }
.floor-one { fill: #b08800 } .floor-all { fill: #e0c060 }`

const dark = `.one { fill: #9198a1 } .all { fill: #565d66 }
.weir-one { fill: #4493f8 } .weir-all { fill: #1f5aa8 }
.floor-one { fill: #d4a72c } .floor-all { fill: #7d641f }`

// plot is the ns that an allowed decision takes, as bars: beside each other one hot key and
// many, and in each row a contestant alone and on all cores. Each panel has its own linear
// scale, which ends at four times the fastest peer's figure, so that a bar which goes beyond
// it does not make specks of the others; that one has an arrow.
func (m *benchmark) plot() string {
	var keys []int
	for _, c := range m.cases {
		if c.Name == allowed && !slices.Contains(keys, c.Keys) {
			keys = append(keys, c.Keys)
		}
	}
	cores := runtime.GOMAXPROCS(0)
	var names []string
	for _, e := range contestants {
		if _, ran := m.results.Figure(e.name, race.Case{Name: allowed, Goroutines: 1, Keys: 1}, perOp); ran && (e.module != weirModule || e.name == weir) {
			names = append(names, e.name)
		}
	}
	width, height := labelWidth+panelWidth*len(keys), headHeight+rowHeight*len(names)+10
	svg := race.NewSVG(width, height, "Nanoseconds per decision", style, dark)
	svg.Text(4, 18, "title", "Nanoseconds per allowed decision, less is better")
	svg.Text(4, 36, "small", fmt.Sprintf("upper bar: one goroutine; lower bar: %d goroutines on %d cores, time by decisions", cores, cores))
	for row, name := range names {
		class := ""
		if name == weir {
			class = weir
		}
		svg.Text(4, headHeight+row*rowHeight+15, class, name)
	}
	for panel, n := range keys {
		x := labelWidth + panel*panelWidth
		head := "one hot key"
		if n > 1 {
			head = strings.TrimPrefix(race.Case{Goroutines: 1, Keys: n}.String(), "1 goroutine, ")
		}
		svg.Text(x, headHeight-12, "head", head)
		of := func(goroutines int) race.Case { return race.Case{Name: allowed, Goroutines: goroutines, Keys: n} }
		end := 1.0
		for _, goroutines := range []int{1, cores} {
			fastest, _ := m.results.Figure(m.fastestPeer(of(goroutines)), of(goroutines), perOp)
			end = max(end, 4*fastest)
		}
		for row, name := range names {
			for i, goroutines := range []int{1, cores} {
				ns, ran := m.results.Figure(name, of(goroutines), perOp)
				if !ran {
					continue
				}
				y := headHeight + row*rowHeight + 12*i + 2
				class := []string{"one", "all"}[i]
				if name == weir || name == floor {
					class = name + "-" + class
				}
				figure := race.Number(ns)
				if ns > end {
					figure = "→ " + figure
				}
				length := max(1, int(barWidth*min(ns, end)/end))
				fmt.Fprintf(svg, `<rect x="%d" y="%d" width="%d" height="10" rx="1" class="%s"/>`+"\n", x, y, length, class)
				svg.Text(x+length+4, y+9, "small", figure)
			}
		}
	}
	return svg.End()
}
