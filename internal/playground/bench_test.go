package main

import (
	"testing"

	"github.com/weirgo/weir/internal/browser"
)

// What the page's script takes of a frame while 1,000 requests are on the screen: as time goes
// by, and as they are drawn. The clock is the wall's, so this needs a machine at rest.
func BenchmarkFrame(b *testing.B) {
	for name, step := range map[string]string{
		"play": `{ const scrub = document.querySelector("#scrub"); scrub.value = step % 300 * 3; scrub.dispatchEvent(new Event("input")) }`,
		"draw": `point("pointermove", step)`,
	} {
		b.Run(name, func(b *testing.B) {
			w := browser.Start(b, 1280, 900, false)
			w.Call("Page.addScriptToEvaluateOnNewDocument", browser.Object{"source": timed}, nil)
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
				window.step = 0;
				took.clear()`)
			for b.Loop() {
				w.Run(step + `; step++; new Promise(frame)`)
			}
			const sorted = `[...took.values()].sort((a, b) => a - b)`
			b.ReportMetric(browser.Eval[float64](w, sorted+`[Math.floor(took.size / 2)]`), "ms/frame-p50")
			b.ReportMetric(browser.Eval[float64](w, sorted+`[Math.floor(took.size * 0.95)]`), "ms/frame-p95")
		})
	}
}

// timed notes how long the page's script runs in each frame.
const timed = `
	window.took = new Map();
	window.frame = requestAnimationFrame.bind(window);
	window.requestAnimationFrame = (work) => frame((at) => {
		const from = performance.now();
		work(at);
		took.set(at, (took.get(at) || 0) + performance.now() - from);
	});`
