package main

import (
	"slices"
	"testing"

	"github.com/weirgo/weir/internal/browser"
)

// What the page's script takes of a frame while 1,000 requests are on the screen, in CPU time:
// as they are played, and as they are drawn.
func BenchmarkFrame(b *testing.B) {
	for name, step := range map[string]string{
		"play": `{ const scrub = document.querySelector("#scrub"); scrub.value = frame % 300 * 3; scrub.dispatchEvent(new Event("input")) }`,
		"draw": `point("pointermove", frame)`,
	} {
		b.Run(name, func(b *testing.B) {
			w := browser.Start(b, 1280, 900, false)
			w.Call("Performance.setTimeDomain", browser.Object{"timeDomain": "threadTicks"}, nil)
			w.Call("Performance.enable", nil, nil)
			visit(w, "#traffic=drawn&events=10&per=10&cells=13x40.12x40")
			w.Run(`
				window.grid = document.querySelector("#grid");
				window.box = grid.getBoundingClientRect();
				grid.setPointerCapture = () => {};
				grid.hasPointerCapture = () => true;
				window.point = (type, i) => grid.dispatchEvent(new PointerEvent(type, {
					buttons: 1, clientX: box.left + box.width * (i % 80 + 0.5) / 80, clientY: box.top + box.height * (0.5 + 0.1 * Math.sin(i)),
				}));
				point("pointerdown", 0);
				window.frame = 0`)
			var took []float64
			before := scriptTime(w)
			for b.Loop() {
				w.Run(step + `; frame++; new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`)
				after := scriptTime(w)
				took = append(took, 1000*(after-before))
				before = after
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "ms-p50")
			b.ReportMetric(took[len(took)*95/100], "ms-p95")
		})
	}
}

// scriptTime is how many seconds of CPU time scripts have taken.
func scriptTime(w *browser.Browser) float64 {
	var answer struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	w.Call("Performance.getMetrics", nil, &answer)
	for _, m := range answer.Metrics {
		if m.Name == "ScriptDuration" {
			return m.Value
		}
	}
	w.T().Fatal("Chromium does not tell ScriptDuration")
	return 0
}
