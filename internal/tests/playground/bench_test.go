package playground_test

import (
	"slices"
	"testing"

	"github.com/weirgo/weir/internal/tests/browser"
)

// What the page's script takes of a frame while 1,000 requests are on the screen: as time goes
// by, and as they are drawn. It is the time that the page's thread ran, whatever else the machine
// does, with style and layout where the script waits for them.
func BenchmarkFrame(b *testing.B) {
	for name, step := range map[string]string{
		"play": `{ const scrub = document.querySelector("#scrub"); scrub.value = step % 300 * 3; scrub.dispatchEvent(new Event("input")) }`,
		"draw": `point("pointermove", step)`,
	} {
		b.Run(name, func(b *testing.B) {
			w := browser.Start(b, 1280, 800, false)
			visit(w, "#traffic=drawn&events=10&per=10&cells=13x40.12x40")
			w.Run(`
				document.querySelector("#play").click(); // stops
				window.grid = document.querySelector("#grid");
				window.box = grid.getBoundingClientRect();
				grid.setPointerCapture = () => {};
				grid.hasPointerCapture = () => true;
				window.point = (type, i) => grid.dispatchEvent(new PointerEvent(type, {
					buttons: 1, clientX: box.left + box.width * (i % 80 + 0.5) / 80, clientY: box.top + box.height * (0.15 + 0.05 * Math.sin(i)),
				}));
				point("pointerdown", 0);
				window.step = 0`)
			w.Call("Performance.enable", browser.Object{"timeDomain": "threadTicks"}, nil)
			took, before := []float64{}, scriptTime(w)
			for b.Loop() {
				w.Run(step + `; step++; new Promise(requestAnimationFrame)`)
				now := scriptTime(w)
				took, before = append(took, now-before), now
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "ms/frame-p50")
			b.ReportMetric(took[len(took)*95/100], "ms/frame-p95")
		})
	}
}

// scriptTime is how long the page's scripts have run, in milliseconds.
func scriptTime(w *browser.Browser) float64 {
	var of struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	w.Call("Performance.getMetrics", nil, &of)
	for _, m := range of.Metrics {
		if m.Name == "ScriptDuration" {
			return 1000 * m.Value
		}
	}
	w.T().Fatal("Chromium does not say how long scripts ran")
	return 0
}
