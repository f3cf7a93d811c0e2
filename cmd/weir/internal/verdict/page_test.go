package verdict_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/demand"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/cmd/weir/internal/verdict"
	"github.com/weirgo/weir/internal/browser"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

const patience = 20 * time.Second // of a busy machine

func shown(client string) string { return client }

// simulated is a page about rules on made up traffic.
func simulated(t *testing.T) *verdict.Page {
	t.Helper()
	o := rules.Options{}
	o.Config.Bans = simulate.NewBans()
	loaded, err := rules.Parse([]byte(`version: 1
endpoints:
  "GET /articles/{id}": {limit: 6/1m}
  "POST /login": {limit: 10/1m, escalate: {after: 20, within: 10m, ban: 1h}}
  "/static/*": {limit: 4/1s, mode: shadow}
  "POST /search": {limits: [5/1s, 20/1m, 300/1h]}
  "PUT /articles/{id}": {limit: 10/1m burst 200}
default: 5/1m
`), o)
	require.NoError(t, err)
	service, err := simulate.New(loaded.Config(), simulate.Options{Routes: loaded.Routes(), Client: loaded.IP()})
	require.NoError(t, err)
	tally := simulate.NewTally(service.Rules(), true)
	for _, e := range accesslog.Generate(1, 5_000) {
		tally.Add(&e, e.At, service.Do(&e, e.At))
	}
	s := tally.Summary(100, shown)
	page := &verdict.Page{Title: "limits.yaml, access.log", Words: verdict.Simulated(s), Summary: s}
	for i := range s.Curves {
		page.Curves = append(page.Curves, verdict.CurveOf(&s.Curves[i]))
	}
	page.Notes = verdict.Log(&accesslog.Stats{Entries: 10_000, Broken: 1, Whole: true, First: []accesslog.Broken{{Line: 7, Byte: 3, Why: "has no time"}}}, 12, verdict.Effect{Of: 10_000, Early: 7, Spread: 5})
	return page
}

// recommended is a page about a limit.
func recommended(t *testing.T) *verdict.Page {
	t.Helper()
	meter, err := demand.NewMeter(time.Minute, limiter.SlidingWindow)
	require.NoError(t, err)
	for _, e := range accesslog.Generate(1, 5_000) {
		meter.Add(e.Client, e.At, 1)
	}
	r, err := meter.Result(0.99)
	require.NoError(t, err)
	page := &verdict.Page{Title: "access.log", Words: verdict.Recommended(r, 0.99, "client address"), Peaks: verdict.Peaks(r)}
	for _, b := range r.Buckets {
		page.Buckets = append(page.Buckets, verdict.Bucket{Limit: fmt.Sprintf("%d/1m burst %d", b.Rate, b.Burst), Most: verdict.Number(b.Rate + b.Burst)})
	}
	page.Curves = []verdict.Curve{verdict.NewCurve(r, "client address", r.Chosen.Limit, func(limit int64) string { return fmt.Sprintf("default: {limit: %d/1m, key: ip}", limit) })}
	return page
}

// show opens a page as a file, as whoever was sent it does.
func show(t *testing.T, page *verdict.Page, width int64, dark bool) *browser.Browser {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, page.Write(file))
	require.NoError(t, file.Close())
	return browser.Open(t, (&url.URL{Scheme: "file", Path: path}).String(), width, 800, dark)
}

func TestTheAnswerIsInTheFirstViewportOnEveryScreen(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]*verdict.Page{"simulated": simulated(t), "recommended": recommended(t)} {
		b := show(t, page, 1280, false)
		assert.Equal(t, page.Verdict, b.Text("h1"))
		for dark, widths := range map[bool][]int64{false: {320, 390, 800, 1280, 3840}, true: {320, 1280}} { // which changes no layout
			for _, width := range widths {
				b.Look(width, 800, dark)
				assert.LessOrEqual(t, browser.Eval[int64](b, "document.documentElement.scrollWidth"), width, "%s at %d: nothing is beyond the edge", name, width)
				assert.LessOrEqual(t, browser.Eval[float64](b, `document.querySelector("#detail").getBoundingClientRect().bottom`), 800.0, "%s at %d", name, width)
				assert.Positive(t, browser.Eval[float64](b, `document.querySelector("#drawn").getBoundingClientRect().width`))
				b.Picture(fmt.Sprintf("%s-%d-%t", name, width, dark))
			}
		}
		assert.Len(t, b.Requests(), 1, "the page alone")
	}
}

func TestTheSliderTellsWhatAnotherLimitRefuses(t *testing.T) {
	t.Parallel()
	page := recommended(t)
	b := show(t, page, 1280, false)
	curve := page.Curves[0]
	is := func(i int) {
		t.Helper()
		point := curve.Points[i]
		assert.Equal(t, point.Limit+" "+point.Says, b.Text("#point"))
		assert.Equal(t, point.Text, b.Text("#text"))
		assert.Equal(t, point.Limit+" "+point.Says, browser.Eval[string](b, `document.querySelector("#limit").getAttribute("aria-valuetext")`))
	}
	is(curve.Begin)
	press := func(key string, code int) {
		for _, kind := range []string{"keyDown", "keyUp"} {
			b.Call("Input.dispatchKeyEvent", browser.Object{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
		}
	}
	b.Run(`document.querySelector("#limit").focus()`)
	press("ArrowLeft", 37)
	is(curve.Begin - 1)
	press("Home", 36)
	is(0)
	press("End", 35)
	is(len(curve.Points) - 1)
	b.Click("#copy")
	b.Await(patience, `["Copied", "Selected"].includes(document.querySelector("#copy").textContent)`)
	assert.Equal(t, curve.Points[len(curve.Points)-1].Text, browser.Eval[string](b, `getSelection().toString()`))

	many := simulated(t)
	b = show(t, many, 1280, false)
	b.Run(`const which = document.querySelector("#which"); which.value = "1"; which.dispatchEvent(new Event("change"))`)
	assert.Contains(t, b.Text("#said"), "It now has")
	assert.Contains(t, b.Text("#curve"), "Not here: POST /search. Only a rule with one limit")
	second := many.Curves[1]
	assert.Equal(t, second.Points[second.Begin].Limit, b.Text("#point b"))
}

func TestWhatALogSaysIsTextAndNothingElse(t *testing.T) {
	t.Parallel()
	const hostile = `</script><img src=x onerror=window.hit=1>`
	page := simulated(t)
	page.Title, page.Verdict = hostile, hostile
	page.Notes = append(page.Notes, hostile)
	page.Summary.Hit[0].Client, page.Summary.Hit[0].By = hostile, hostile
	page.Summary.Timeline.Stopped[hostile] = make([]int64, len(page.Summary.Timeline.Passed))
	page.Curves[0].Name, page.Curves[0].Points[0].Says = hostile, hostile
	b := show(t, page, 1280, false)
	assert.Contains(t, b.Text("h1"), "</script><img")
	assert.Contains(t, b.Text("#clients"), "</script><img")
	b.Run(`document.querySelector("#limit").value = 0; document.querySelector("#limit").dispatchEvent(new Event("input"))`)
	assert.Contains(t, b.Text("#point"), "</script><img")
	b.Run(`const s = document.createElement("script"); try { s.textContent = "window.hit = 1"; document.body.append(s) } catch {}`)
	assert.True(t, browser.Eval[bool](b, `window.hit === undefined && document.images.length === 0`))
}

// A sliding window may refuse clients that keep to its limit, and then it is said why.
func TestALimitAboveWhatAnyClientAsksForIsExplainedIfItRefuses(t *testing.T) {
	for algorithm, explained := range map[limiter.Algorithm]bool{limiter.SlidingWindow: true, limiter.SlidingLog: false} {
		m, err := demand.NewMeter(time.Minute, algorithm)
		require.NoError(t, err)
		for minute := range int64(2) { // 30 at the beginning of each: never more in any minute
			for i := range int64(30) {
				m.Add("192.0.2.1", (16_666_666+minute)*60_000_000+i, 1)
			}
		}
		r, err := m.Result(1)
		require.NoError(t, err)
		require.EqualValues(t, 30, r.Peaks.Most)
		assert.Equal(t, explained, strings.Contains(verdict.Peaks(r), "Limits above that still refuse something"), "%v: %+v", algorithm, r.Curve)
	}
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		assert.Equal(t, want, verdict.Number(n))
	}
	for share, want := range map[float64]string{0: "0%", 1: "100%", 0.00001: "<0.01%", 0.99999: ">99.99%", 0.0012: "0.12%", 0.9988: "99.88%", 0.123456: "12.3%", 0.5: "50%"} {
		assert.Equal(t, want, verdict.Percent(share))
	}
	for d, want := range map[time.Duration]string{time.Minute: "minute", 10 * time.Second: "10 seconds", 90 * time.Second: "90 seconds", 36 * time.Hour: "36 hours", 24 * time.Hour: "day"} {
		assert.Equal(t, want, verdict.Period(d))
	}
	for d, want := range map[time.Duration]string{0: "0 seconds", time.Second: "1 second", 61 * time.Second: "1 minute and 1 second", 83 * time.Hour: "3 days and 11 hours", 48 * time.Hour: "2 days"} {
		assert.Equal(t, want, verdict.Length(d))
	}
}
