package main

import (
	"testing"
	"time"

	"github.com/weirgo/weir/internal/browser"
)

// What the page's script takes of a frame while 1,000 requests are on the screen: as they are
// played, and as more of them are drawn.
func BenchmarkFrame(b *testing.B) {
	path := buildPage(b)
	for name, script := range map[string]string{
		"play": `document.querySelector("#play").click(); document.querySelector("#play").click(); await pause(10000)`,
		"draw": `
			const grid = document.querySelector("#grid"), box = grid.getBoundingClientRect();
			grid.setPointerCapture = () => {};
			grid.hasPointerCapture = () => true;
			const point = (type, i) => grid.dispatchEvent(new PointerEvent(type, {
				buttons: 1, clientX: box.left + box.width * (i % 80 + 0.5) / 80, clientY: box.top + box.height * (0.5 + 0.1 * Math.sin(i)),
			}));
			point("pointerdown", 0);
			for (let i = 0; i < 300; i++) { point("pointermove", i); await new Promise(requestAnimationFrame); }`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := browser.Start(b, 1280, 900, false)
				w.Call("Page.addScriptToEvaluateOnNewDocument", browser.Object{"source": timed}, nil)
				w.Visit("file://" + path + "#traffic=drawn&events=10&per=10&cells=13x40.12x40")
				w.Await(time.Minute, `document.querySelectorAll(".lane canvas").length > 0`)
				w.Run(`(async () => { const pause = (ms) => new Promise((done) => setTimeout(done, ms)); await pause(1000); took.length = 0; ` + script + ` })()`)
				b.ReportMetric(browser.Eval[float64](w, `took.sort((a, b) => a - b)[Math.floor(took.length * 0.95)]`), "ms/frame-p95")
				b.ReportMetric(browser.Eval[float64](w, `took[Math.floor(took.length / 2)]`), "ms/frame-p50")
				b.ReportMetric(browser.Eval[float64](w, `took.length`), "frames")
			}
		})
	}
}

// timed notes how long what runs in a frame takes.
const timed = `
	window.took = [];
	const later = window.requestAnimationFrame;
	window.requestAnimationFrame = (f) => later.call(window, (at) => {
		const from = performance.now();
		f(at);
		took.push(performance.now() - from);
	});`
