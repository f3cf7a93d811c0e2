package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/tests/browser"
	"github.com/weirgo/weir/observe/dashboard"
)

const patience = 20 * time.Second // of a busy machine

func TestThePageShowsWhoIsWho(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{ShowKeys: true})
	require.NoError(t, s.bans.Ban(t.Context(), "198.51.100.200", time.Hour))
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#live").dataset.is === "live"`)
	s.mixed()
	b.Await(patience, `["a crowd, or an attacker who rotates keys", "1 client causes all of its refusals: header:X-Tenant:acme."].every(
		(text) => document.querySelector("#findings").innerText.includes(text))`)
	assert.Contains(t, b.Text("#verdict-text"), "most by login")
	assert.Contains(t, b.Text("#bans"), "198.51.100.200")

	// The operator follows the tenant.
	b.Click(`#rows li:nth-child(3) button`)
	assert.Contains(t, b.Text("#traffic-title"), "tenant")
	b.Await(patience, `document.querySelector("#top-title").innerText === "Clients, under tenant"`)
	b.Click(`#keys li:first-child button`)
	b.Await(patience, `document.querySelector("#answer").innerText.includes("of 10 left")`)
	assert.Equal(t, "header:X-Tenant:acme", browser.Eval[string](b, `document.querySelector("#key").value`))

	// And bans the key, having read what that will do, and lifts the ban.
	b.Click(`#form button.grave`)
	b.Await(patience, `document.querySelector("#answer .plan")?.innerText.includes("header:X-Tenant:acme") === true`)
	assert.Equal(t, "Ban this client for an hour", b.Text("#answer .plan .sure"))
	_, banned := s.bans.Find("header:X-Tenant:acme")
	assert.False(t, banned)
	b.Click(`#answer .plan .sure`)
	b.Await(patience, `document.querySelector("#banned").innerText.includes("acme")`)
	_, banned = s.bans.Find("header:X-Tenant:acme")
	assert.True(t, banned)
	b.Picture("light")
	b.Click(`#banned button[aria-label$="acme"]`)
	b.Await(patience, `!document.querySelector("#banned").innerText.includes("acme")`)
	b.Await(patience, `document.querySelector("#answer").innerText.includes("The ban is lifted.")`)
	_, banned = s.bans.Find("header:X-Tenant:acme")
	assert.False(t, banned)

	look(b, "mixed")
	b.Look(390, 844, false)
	assert.True(t, browser.Eval[bool](b, `document.querySelector("#rules").getBoundingClientRect().top < document.querySelector("#hand").getBoundingClientRect().top`))
	b.Look(1280, 844, true)
	ground := browser.Eval[string](b, `getComputedStyle(document.body).backgroundColor`)
	b.Look(1280, 844, false)
	assert.NotEqual(t, ground, browser.Eval[string](b, `getComputedStyle(document.body).backgroundColor`))
}

func TestWhatClientsSendIsTextAndNothingElse(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{ShowKeys: true})
	const hostile = `</script><img src=x onerror=window.hit=1>`
	for range 30 {
		s.send("GET", "/", "198.51.100.1", hostile)
	}
	require.NoError(t, s.bans.Ban(t.Context(), hostile, 0))
	require.NoError(t, s.bans.Ban(t.Context(), "\u202e\x00\xff'\"`${window.hit=1}", 0))
	time.Sleep(time.Second) // for it to be in the figures
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#keys").innerText.includes("</script><img")`)
	b.Await(patience, `document.querySelector("#banned").innerText.includes("\\u202e")`) // as it is written in Go
	b.Click(`#keys li:first-child button`)
	b.Await(patience, `document.querySelector("#client-key").innerText.includes("</script><img")`)
	assert.True(t, browser.Eval[bool](b, `window.hit === undefined && document.images.length === 0`))

	// A script that got in after all would not run.
	b.Run(`const s = document.createElement("script"); try { s.textContent = "window.hit = 1"; document.body.append(s) } catch {}`)
	assert.True(t, browser.Eval[bool](b, `window.hit === undefined`))
}

func TestOfManyRulesTheWorstAreInFrontAndTheOthersAreFound(t *testing.T) {
	t.Parallel()
	page, limits := manyRules(t)
	ask(limits, 33, 5)
	time.Sleep(time.Second) // for it to be in the figures
	b := browser.Open(t, (&service{t: t, page: page, mux: http.StripPrefix("/ops", page)}).serve(), 1280, 900, false)
	b.Await(patience, `document.querySelectorAll(".row").length === 111`)
	assert.Contains(t, b.Text("#rows li:nth-child(2)"), "thing 33")
	const shown = `[...document.querySelectorAll("#rows li")].filter((item) => !item.hidden).length`
	assert.Equal(t, 12, browser.Eval[int](b, shown))
	b.Write("#find", "thing 7")
	b.Await(patience, shown+` === 12`)
	b.Click("#rows li:not([hidden]):nth-child(n+2) button")
	assert.Contains(t, b.Text("#traffic-title"), "thing 7")
	assert.Equal(t, "thing 7", browser.Eval[string](b, `document.querySelector("#rule").value`))
	b.Run(`const find = document.querySelector("#find"); find.value = ""; find.dispatchEvent(new Event("input"))`)
	b.Click("#rows-all")
	assert.Equal(t, 111, browser.Eval[int](b, shown))
}

func TestThePageSaysOfWhichRulesItKnowsNoKeys(t *testing.T) {
	t.Parallel()
	page, limits := manyRules(t)
	for i := range things {
		ask(limits, i, 1+39/(i+1)) // most of thing 0
	}
	time.Sleep(time.Second) // for it to be in the figures
	b := browser.Open(t, (&service{t: t, page: page, mux: http.StripPrefix("/ops", page)}).serve(), 1280, 900, false)
	b.Await(patience, `document.querySelectorAll(".row").length === 111`)
	const beyond = "Keys of further rules are not counted: "
	look := func(rule, note string) {
		b.Run(`{ const find = document.querySelector("#find"); find.value = "` + rule + `"; find.dispatchEvent(new Event("input")) }`)
		b.Run("[...document.querySelectorAll('#rows button')].find((row) => row.querySelector('.name').firstChild.data === `" + rule + "`).click()")
		b.Await(patience, `document.querySelector("#top-title").innerText === "Clients, under `+rule+`"`)
		text := b.Text("#top-note")
		assert.Contains(t, text, note, rule)
		assert.Contains(t, text, beyond, rule)
	}
	look("thing 0", "Of 38 refusals")
	look("thing 20", "No request was refused in the last hour.")
	look("thing 29", "Only the 24 busiest rules have a list of keys.")
	look("thing 109", "Only the 24 busiest rules have a list of keys.")
}

func TestClientsOfARuleInShadowComeLastAndAreMarked(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{ShowKeys: true})
	for range 20 {
		s.send("GET", "/", "198.51.100.1", "")
	}
	time.Sleep(time.Second) // for it to be in the figures
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#top-title").innerText === "Clients, under strict (in shadow)"`)
	for range 12 {
		s.send("GET", "/", "198.51.100.1", "acme")
	}
	b.Await(patience, `document.querySelector("#top-title").innerText === "Clients, under tenant"`)
}

func TestThePageKeepsTheQueryThatLetItIn(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{Authorize: func(r *http.Request) bool { return r.URL.Query().Get("token") == "s3cret" }})
	b := browser.Open(t, s.serve()+"?token=s3cret", 800, 600, false)
	b.Await(patience, `document.querySelector("#live").dataset.is === "live"`)
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequest("GET", "/ops/limits", nil))
	assert.Equal(t, http.StatusForbidden, w.Code)
}

func TestAPageWhoseServiceIsGoneSaysSoAndComesBack(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{})
	var gone atomic.Bool
	mux := s.mux
	s.mux = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gone.Load() {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	})
	b := browser.Open(t, s.serve(), 800, 600, false)
	b.Await(patience, `document.querySelector("#live").dataset.is === "live"`)
	gone.Store(true)
	b.Await(patience, `document.querySelector("#live").dataset.is === "lost"`)
	gone.Store(false)
	b.Await(patience, `document.querySelector("#live").dataset.is === "live"`)
}

func TestTheChartBeginsWithTheProcess(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{})
	b := browser.Open(t, s.serve(), 800, 600, false)
	b.Await(patience, `document.querySelector("#chart-time").innerText.startsWith("started at")`)
	assert.Less(t, browser.Eval[float64](b, `document.querySelector("#chart").viewBox.baseVal.width`), 100.0)
	assert.NotContains(t, b.Text("#traffic"), "5 min ago")
}
