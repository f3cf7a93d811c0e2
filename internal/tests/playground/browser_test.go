package playground_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/tests/browser"
	"github.com/weirgo/weir/limiter"
)

const patience = time.Minute // of a busy machine

// built is the page, made of the sources as they are.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weir-playground-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "playground.html")
	command := exec.Command("go", "run", "./internal/playground", path)
	command.Dir = "../../.." // the module's root
	if said, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := built(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func buildPage(t testing.TB) string {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	return path
}

// open opens the page from disk, with a link's part after the #.
func open(t testing.TB, link string) *browser.Browser {
	t.Helper()
	b := browser.Start(t, 1280, 900, false)
	b.Call("Emulation.setEmulatedMedia", browser.Object{"features": []browser.Object{{"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
	visit(b, link)
	return b
}

func visit(b *browser.Browser, link string) {
	path := buildPage(b.T())
	b.Visit("about:blank") // a page that differs after the # alone is not loaded anew
	b.Visit("file://" + path + link)
	b.Await(patience, settled)
}

// follow has a page that is open follow another link, and waits as visit does.
func follow(b *browser.Browser, link string) {
	b.Run(`if (location.hash !== ` + quoted(link) + `) new Promise((resolve) => {
		addEventListener("hashchange", resolve, { once: true }); // after the page's own listener
		location.hash = ` + quoted(link) + `;
	})`)
	b.Await(patience, settled)
}

// settled is true when all limits have decided about the traffic.
const settled = `document.querySelector("#board").getAttribute("aria-busy") === "false"`

// A told lane is what the page says of one.
type told struct{ Text, Name, Error, Figures, State string }

const lanesTold = `[...document.querySelectorAll(".lane")].map((lane) => {
	const text = (selector) => lane.querySelector(selector).textContent;
	return { text: lane.querySelector("input").value, name: text(".what b"), error: text(".error"), figures: text(".figures"), state: text(".state") };
})`

// figures are what the page has to say of a limit and of traffic in cells of half a second.
func figures(t *testing.T, text string, cells []int) (name, want string) {
	t.Helper()
	limit, err := limiter.Parse(text)
	require.NoError(t, err)
	quota, err := limiter.NewQuota("rule", "", limit)
	require.NoError(t, err)
	var s limiter.State
	var went []int64
	passed, held, total := 0, 0, 0
	for i, n := range cells {
		for k := range n {
			at := int64((float64(i) + float64(k)/float64(n)) * 500_000)
			total++
			var ok bool
			if s, ok = quota.Take(s, at, 1); !ok {
				continue
			}
			passed++
			d := quota.Describe(s, at, 1, true)
			if d.Delay > 0 {
				held++
			}
			went = append(went, at+d.Delay.Microseconds())
		}
	}
	most := 0
	for i, from := range went {
		n := 0
		for _, at := range went[i:] {
			if at < from+limit.Per.Microseconds() {
				n++
			}
		}
		most = max(most, n)
	}
	want = fmt.Sprintf("%d of %d pass", passed, total)
	if held > 0 {
		want += fmt.Sprintf(", %d wait up to …", held)
	}
	return quota.Algorithm().String(), fmt.Sprintf("%s; at most %d in …", want, most)
}

func TestThePageDecidesAsLimiterDoes(t *testing.T) {
	t.Parallel()
	b := open(t, "")
	var limits []string
	for _, lane := range browser.Eval[[]told](b, lanesTold) {
		limits = append(limits, lane.Text)
	}
	require.GreaterOrEqual(t, len(limits), 5, "one of each algorithm")
	limits = append(limits, "7/3s", "3/s burst 9", "2/s leaky-bucket burst 4", "1/7s fixed-window", "20/12s sliding-log")
	limits = limits[:min(len(limits), 10)]

	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		cells := make([]int, 80)
		text := make([]string, len(cells))
		for i := range cells {
			if random.IntN(3) == 0 {
				cells[i] = random.IntN(12)
			}
			text[i] = fmt.Sprint(cells[i])
		}
		link := "#" + url.Values{"traffic": {"drawn"}, "per": {"10"}, "cells": {strings.Join(text, ".")}, "limit": limits}.Encode()
		follow(b, link)
		got := browser.Eval[[]told](b, lanesTold)
		require.Len(t, got, len(limits))
		for i, lane := range got {
			name, want := figures(t, limits[i], cells)
			assert.Equal(t, strings.ReplaceAll(name, "-", " ")+".", strings.ToLower(lane.Name))
			assert.Regexp(t, "^"+strings.ReplaceAll(want, "…", ".*")+"$", lane.Figures, "%s, %s", limits[i], link)
		}
	}
}

// The page writes its own link a moment after a change. A link that is followed in that moment stays.
func TestThePageDoesNotReplaceALinkThatIsAboutToOpen(t *testing.T) {
	t.Parallel()
	b := open(t, "")
	b.Run(`const timer = setTimeout;
		setTimeout = (f, ms) => timer(ms === 300 ? () => { write = f; } : f, ms);
		var write;`)
	follow(b, "#limit=3/s")
	b.Await(patience, "write !== undefined")
	b.Run(`new Promise((resolve) => {
		addEventListener("hashchange", resolve, { once: true });
		location.hash = "#limit=4/s";
		write(); // the timer ends before the event
	})`)
	b.Await(patience, settled)
	require.Equal(t, "4/s", browser.Eval[[]told](b, lanesTold)[0].Text)
}

func TestThePageSaysWhatIsWrongWithALimit(t *testing.T) {
	t.Parallel()
	b := open(t, "")
	for _, text := range []string{"10/x", "", "10/10s sliding-log burst 3", "<img src=x>"} {
		_, err := limiter.Parse(text)
		require.Error(t, err)
		b.Run(`{ const input = document.querySelector(".lane input"); input.value = ` + quoted(text) + `; input.dispatchEvent(new Event("input")) }`)
		b.Await(patience, `document.querySelector(".lane .error").textContent === `+quoted(err.Error()))
		assert.True(t, browser.Eval[bool](b, `document.querySelector(".lane input").getAttribute("aria-invalid") === "true"`))
		assert.False(t, browser.Eval[bool](b, `document.querySelector(".lane .figures").checkVisibility()`), "it says nothing of a limit that there is not")
	}
	b.Run(`{ const input = document.querySelector(".lane input"); input.value = "3/s"; input.dispatchEvent(new Event("input")) }`)
	b.Await(patience, `document.querySelector(".lane .error").textContent === "" && document.querySelector(".lane .figures").innerText.endsWith("in 1\u00a0s")`)
}

func quoted(text string) string {
	json, _ := json.Marshal(text)
	return string(json)
}

func TestALinkHoldsTrafficAndLimits(t *testing.T) {
	t.Parallel()
	b := open(t, "")
	b.Run(`document.querySelector("#clear").click()`)
	b.Await(patience, settled+` && document.querySelector("#verdict-text").textContent === "Draw some requests."`)
	box := browser.Eval[map[string]float64](b, `(({left, top, width, height}) => ({left, top, width, height}))(document.querySelector("#grid").getBoundingClientRect())`)
	mouse := func(kind string, x, y float64) {
		b.Call("Input.dispatchMouseEvent", browser.Object{"type": kind, "x": box["left"] + x*box["width"], "y": box["top"] + y*box["height"], "button": "left", "buttons": 1, "clickCount": 1}, nil)
	}
	mouse("mousePressed", 0.2, 0.5)
	mouse("mouseMoved", 0.4, 0.5)
	mouse("mouseReleased", 0.4, 0.5)
	b.Await(patience, `document.querySelector("#total").textContent > 40`)
	b.Await(patience, `document.querySelector("#verdict-detail").textContent.startsWith("Your own traffic.")`)

	// From the keyboard: two more in the third cell.
	b.Run(`document.querySelector("#grid").focus()`)
	key := func(name string) {
		b.Call("Input.dispatchKeyEvent", browser.Object{"type": "keyDown", "key": name, "code": name}, nil)
		b.Call("Input.dispatchKeyEvent", browser.Object{"type": "keyUp", "key": name, "code": name}, nil)
	}
	for _, name := range []string{"Home", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowUp"} {
		key(name)
	}
	b.Await(patience, `document.querySelector("#grid").getAttribute("aria-valuetext") === "2 requests at 1 s"`)

	b.Run(`{ const input = document.querySelector(".lane input"); input.value = "12/10s"; input.dispatchEvent(new Event("input")) }`)
	b.Run(`document.querySelectorAll(".lane .remove")[1].click()`)
	b.Await(patience, `location.hash.includes("limit=12/10s")`)
	b.Await(patience, settled)
	before := browser.Eval[[]told](b, lanesTold)
	total := b.Text("#total")
	visit(b, browser.Eval[string](b, "location.hash"))
	assert.Equal(t, before, browser.Eval[[]told](b, lanesTold))
	assert.Equal(t, total, b.Text("#total"))

	for _, wrong := range []string{"#traffic=tide", "#traffic=drawn&cells=1.2.3", "#per=0", "#events=x", "#traffic=drawn&units=-1&cells=0x80", "#traffic=toString", "#" + strings.Repeat("limit=1/s&", 11)} {
		follow(b, wrong)
		assert.Contains(t, b.Text("#shared"), "The link", wrong)
	}
}

func TestTheReadersOwnLogIsReplayed(t *testing.T) {
	t.Parallel()
	b := open(t, "#limit=3/10s+sliding-log")
	logs := map[string]string{
		"combined": `192.0.2.%d - - [22/Nov/2026:07:00:0%d +0100] "GET / HTTP/1.1" 200 12 "-" "agent"`,
		"caddy":    `{"level":"info","ts":17953200%[2]d.25,"request":{"remote_ip":"192.0.2.%[1]d","uri":"/"},"status":200}`,
		"plain":    `2026-11-22T06:00:0%[2]d.125Z GET / from 192.0.2.%[1]d`,
		"iso":      `{"time":"2026-11-22 06:00:0%[2]d,5","client":"192.0.2.%[1]d"}`,
	}
	for name, line := range logs {
		var lines []string
		for i := range 8 {
			lines = append(lines, fmt.Sprintf(line, 1+i%2*i%3, i))
		}
		lines = append(lines, "what is no line")
		b.Run(`{ const data = new DataTransfer(); data.setData("text", ` + quoted(strings.Join(lines, "\n")) + `);
			document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true })) }`)
		b.Await(patience, `!document.querySelector("#log").hidden && !document.querySelector("#own").open`)
		assert.Contains(t, b.Text("#log-note"), "1 line could not be read, the first: what is no line", name)
		assert.Contains(t, b.Text("#client"), "192.0.2.1 · ", name)
		assert.Contains(t, b.Text("#client"), "(all together) · 8", name)
		b.Run(`{ const client = document.querySelector("#client"); client.value = "(all together)"; client.dispatchEvent(new Event("change")) }`)
		b.Await(patience, settled)
		assert.Contains(t, b.Text(".figures"), "3 of 8 pass; at most 3 in", name)
		b.Run(`document.querySelector("#presets button").click()`)
		b.Await(patience, `document.querySelector("#log").hidden`)
	}

	// A file that was packed, and one that is no log.
	b.Run(`(async () => {
		const packed = await new Response(new Blob(["1795320000 a\n1795320001 b\n"]).stream().pipeThrough(new CompressionStream("gzip"))).blob();
		const data = new DataTransfer();
		data.items.add(new File([packed], "access.log.gz"));
		document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
	})()`)
	b.Await(patience, `document.querySelector("#log-note").textContent.includes("2 lines of access.log.gz")`)
	b.Run(`{ document.querySelector("#own").showModal(); document.querySelector("#paste").value = "no\ntimes"; document.querySelector("#read").click() }`)
	b.Await(patience, `document.querySelector("#own-error").textContent === "None of 2 lines has a time that this page can read. The first is: no"`)
}

func TestThePageSaysWhereItCannotRun(t *testing.T) {
	t.Parallel()
	b := browser.Start(t, 800, 600, false)
	for lack, want := range map[string]string{
		"delete window.WebAssembly":                                            "does not run WebAssembly",
		"delete window.DecompressionStream":                                    "too old",
		"WebAssembly.instantiate = () => Promise.reject(new Error('no room'))": "does not run in this browser: no room",
	} {
		var script browser.Object
		b.Call("Page.addScriptToEvaluateOnNewDocument", browser.Object{"source": lack}, &script)
		b.Visit("file://" + buildPage(t))
		b.Call("Page.removeScriptToEvaluateOnNewDocument", script, nil)
		b.Await(patience, `document.querySelector("#verdict").dataset.level === "bad"`)
		assert.Contains(t, b.Text("#verdict"), want)
		assert.True(t, browser.Eval[bool](b, `document.querySelector("#board").hidden`))
	}
}

func TestThePageAsksForNothingElse(t *testing.T) {
	t.Parallel()
	b := open(t, "")
	b.Run(`for (const button of document.querySelectorAll("#presets button, #play, #share")) button.click()`)
	b.Run(`document.querySelector("#own").close()`)
	for _, address := range b.Requests() {
		assert.Regexp(t, "^(file:///.*/playground.html(#.*)?|data:.*|about:blank)$", address)
	}
	b.Run(`const s = document.createElement("script"); try { s.textContent = "window.hit = 1"; document.body.append(s) } catch {}`)
	assert.True(t, browser.Eval[bool](b, `window.hit === undefined`), "a script that got in after all does not run")
}

func TestTheHeadlineSaysHowManyOfABurstPassAndHowManyWait(t *testing.T) {
	t.Parallel()
	b := open(t, "#traffic=burst&events=10&per=10&limit=10/10s&limit=10/10s+leaky-bucket+burst+5")
	assert.Equal(t, "Of 15 requests at once, the sliding log passes 10, the leaky bucket 1 and makes 5 wait.", b.Text("#verdict-text"))
}

func TestThePageIsLegibleEverywhere(t *testing.T) {
	t.Parallel()
	b := open(t, "#traffic=boundary")
	b.Run(`{ const scrub = document.querySelector("#scrub"); scrub.value = 300; scrub.dispatchEvent(new Event("input")) }`)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 390, 820, 1280, 1920, 3840} {
			b.Look(width, 900, scheme == "dark")
			b.Await(patience, fmt.Sprintf("innerWidth === %d", width))
			assert.LessOrEqual(t, browser.Eval[int64](b, "document.documentElement.scrollWidth"), width, "nothing is beyond the edge")
			assert.Empty(t, browser.Eval[[]string](b, tooFaint), "%s at %d: text that is hard to read", scheme, width)
			charts := browser.Eval[[][]float64](b, `[...document.querySelectorAll(".chart canvas")].map((c) => [c.getBoundingClientRect().left, c.getBoundingClientRect().width])`)
			for _, chart := range charts {
				assert.Equal(t, charts[0], chart, "one time axis")
			}
			assert.True(t, browser.Eval[bool](b, `document.querySelector("#drawing").checkVisibility()`), "that one can draw is said")
			b.Picture(fmt.Sprintf("%s-%d", scheme, width))
		}
	}
}

// tooFaint are the texts with less contrast to what is behind them than WCAG asks for.
const tooFaint = `(() => {
	const rgb = (color) => color.match(/[\d.]+/g).map(Number);
	const luminance = ([r, g, b]) => { const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
	const ground = (node) => { for (; node; node = node.parentElement) { const c = rgb(getComputedStyle(node).backgroundColor); if ((c[3] ?? 1) > 0) return c; } return [255, 255, 255]; };
	const faint = [];
	for (const node of document.querySelectorAll("body *")) {
		if (!node.checkVisibility() || ![...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		const a = luminance(rgb(getComputedStyle(node).color)), b = luminance(ground(node));
		if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) faint.push(node.textContent.trim().slice(0, 40));
	}
	return faint;
})()`

// Assistive technology has a name for everything that can be used.
func TestEveryControlHasAName(t *testing.T) {
	t.Parallel()
	b := open(t, "")
	b.Run(`document.querySelector("#own").showModal()`)
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
			Properties []struct {
				Name  string
				Value struct{ Value any }
			}
		}
	}
	controls := 0
	for range 2 {
		b.Call("Accessibility.getFullAXTree", nil, &tree)
		for _, node := range tree.Nodes {
			for _, p := range node.Properties {
				if !node.Ignored && p.Name == "focusable" && p.Value.Value == true && node.Role.Value != "RootWebArea" {
					controls++
					assert.NotEmpty(t, node.Name.Value, "%v", node.Role.Value)
				}
			}
		}
		b.Run(`document.querySelector("#own").close()`)
	}
	assert.Greater(t, controls, 20)
}
