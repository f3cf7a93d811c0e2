package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/internal/tests/browser"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/redis/redisstore"
)

// every has something done twenty times a second, until the test is over.
func every(t *testing.T, do func(i int)) {
	ctx, done := context.WithCancel(t.Context())
	t.Cleanup(done)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				do(i)
			}
		}
	}()
}

// look is at a page on all screens: nothing is beyond the edge, no heading is empty and, where
// WEIR_AXE names axe.min.js, axe has no findings. Pictures are taken where WEIR_PICTURES says.
func look(b *browser.Browser, name string) {
	t := b.T()
	t.Helper()
	widths := []int64{320, 1280}
	if os.Getenv("WEIR_PICTURES") != "" {
		widths = []int64{320, 390, 1280, 1920}
	}
	for _, dark := range []bool{false, true} {
		for _, width := range widths {
			b.Look(width, 900, dark)
			assert.LessOrEqual(t, browser.Eval[int64](b, "document.documentElement.scrollWidth"), width, "%s at %d", name, width)
			assert.Empty(t, browser.Eval[[]string](b, `[...document.querySelectorAll("button, h2, h3, summary")].filter((e) => e.checkVisibility() && !e.innerText.trim()).map((e) => e.outerHTML)`), name)
			assert.Empty(t, b.Axe(), "%s at %d, dark: %v", name, width, dark)
			if width > 320 {
				b.Picture(fmt.Sprintf("%s-%d-%v", name, width, map[bool]string{true: "dark", false: "light"}[dark]))
			}
		}
	}
	b.Look(1280, 900, false)
}

func TestAFindingSaysWhatMayBeDoneAndDoesIt(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{ShowKeys: true})
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#live").dataset.is === "live"`)
	look(b, "idle")
	every(t, func(i int) {
		s.good(i)
		for n := range 3 {
			s.send("GET", "/export", "203.0.113.9", fmt.Sprint("evil-", n))
		}
	})
	// Any client can send a tenant, so the page offers to ban the address instead.
	b.Await(patience, `document.querySelectorAll("#findings .grave").length === 1 && document.querySelector("#findings .grave").innerText === "Ban the address behind them for an hour"`)
	assert.Contains(t, b.Text("#findings"), "the ban locks out its owner")
	b.Click("#findings .grave")
	b.Await(patience, `document.querySelector(".plan .sure") !== null`)
	plan := b.Text(".plan")
	for _, part := range []string{"Ban this client for an hour?", "203.0.113.9", "It lasts until", "refuse all their requests, under any rule", "in this process only", "Unban lifts the ban"} {
		assert.Contains(t, plan, part)
	}
	assert.True(t, s.bans.Empty(), "it is only said")
	look(b, "plan")
	b.Click(".plan .buttons button:last-child")
	b.Await(patience, `document.querySelector(".plan") === null`)
	assert.True(t, s.bans.Empty(), "Cancel")
	b.Click("#findings .grave")
	b.Await(patience, `document.querySelector(".plan .sure") !== null`)
	b.Run(`document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }))`)
	b.Await(patience, `document.querySelector(".plan") === null`)
	assert.True(t, s.bans.Empty(), "Escape")

	// Here no limiter looks tenants up, which a look says from some seconds on.
	for n := range 3 {
		require.NoError(t, s.bans.Ban(t.Context(), fmt.Sprint("header:X-Tenant:evil-", n), time.Hour))
	}
	b.Await(patience, `document.querySelector("#findings .actions").innerText.includes("They are banned.")`)
	b.Click("#findings .actions button")
	b.Await(patience, `document.querySelector("#client-key").innerText.startsWith("header:X-Tenant:evil-")`)
	b.Await(patience, `(Date.now() - (window.looked ?? 0) > 1000 && (window.looked = Date.now(), document.querySelector("#findings .actions button").click()),
		document.querySelector("#client-ban").innerText.includes("its requests still pass: no limiter looks this key up"))`)
	look(b, "attacked")
	for n := range 3 {
		_, err := s.bans.Unban(t.Context(), fmt.Sprint("header:X-Tenant:evil-", n))
		require.NoError(t, err)
	}

	b.Await(patience, `document.querySelector("#findings .grave") !== null`)
	b.Click("#findings .grave")
	b.Await(patience, `document.querySelector(".plan .sure") !== null`)
	b.Run(`document.querySelector(".plan input").value = ""`)
	b.Write(".plan input", "scrapes <b>prices</b>")
	b.Click(".plan .sure")
	b.Await(patience, `document.querySelector("#done").innerText === "The client is banned for 1h."`)
	b.Await(patience, `document.querySelectorAll("#banned li").length === 1`)
	assert.Contains(t, b.Text("#banned"), "by hand: scrapes <b>prices</b>")
	assert.Contains(t, b.Text("#banned"), "since ")
	ban, ok := s.bans.Find("203.0.113.9")
	require.True(t, ok)
	assert.Equal(t, "scrapes <b>prices</b>", ban.Reason)
}

func TestAFindingCanBeLeftAlone(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{ShowKeys: true})
	every(t, func(i int) { s.good(i); s.noisy() })
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#findings .actions button:last-child")?.innerText.startsWith("Dismiss") === true`)
	b.Click("#findings .actions button:last-child")
	b.Await(patience, `document.querySelector("#done").innerText.includes("keeps refusing requests above 60/1m")`)
	assert.Empty(t, b.Text("#findings .actions"))
}

func TestAViewerThatMayOnlyLookSeesNoButtonsThatAct(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{ShowKeys: true, Authorize: func(r *http.Request) bool { return r.Method == http.MethodGet }})
	require.NoError(t, s.bans.Ban(t.Context(), "198.51.100.200", time.Hour))
	every(t, func(int) { s.noisy() })
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#findings .actions button")?.innerText.startsWith("Dismiss") === true`)
	assert.False(t, browser.Eval[bool](b, `document.querySelector("#hand").checkVisibility()`), "clients are for those who may act")
	assert.False(t, browser.Eval[bool](b, `[...document.querySelectorAll("button")].some((e) => e.checkVisibility() && /ban|reset|look/i.test(e.innerText))`))
	b.Click("#keys button")
	b.Await(patience, `document.querySelector("#rows [aria-pressed=true]").innerText.startsWith("tenant")`)
	b.Run(`location.hash = "` + keyfunc.NewDigester(nil).Digest("header:X-Tenant:acme").String() + `"`)
	b.Await(patience, `document.querySelector("#done").innerText === "Only viewers who may act can look up a client."`)
	look(b, "read-only")
}

func TestTheDigestOfALogLineOpensTheClientAndItsRule(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{})
	for range 20 {
		s.send("GET", "/export", "203.0.113.9", "acme")
	}
	digest := keyfunc.NewDigester(nil).Digest("header:X-Tenant:acme").String()
	b := browser.Open(t, s.serve()+"#"+digest, 1280, 900, false)
	b.Await(patience, `document.querySelector("#client-last").innerText.startsWith("Refused by tenant at")`)
	assert.Equal(t, digest, b.Text("#client-key"))
	assert.NotContains(t, b.Text("body"), "acme")
	assert.Equal(t, "tenant", browser.Eval[string](b, `document.querySelector("#rule").value`))
	assert.Contains(t, b.Text("#rows [aria-pressed=true]"), "tenant")
	assert.Contains(t, b.Text("#answer"), "of 10 left")

	unknown := keyfunc.NewDigester(nil).Digest("nobody").String()
	b.Run(`location.hash = "` + unknown + `"`)
	b.Await(patience, `document.querySelector("#answer").innerText.includes("this process knows no key with this digest")`)
	assert.True(t, browser.Eval[bool](b, `document.querySelector("#client").hidden`))
}

func TestInAnOutageItIsSaidWhatEachRuleDoesAndSinceWhen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	s := start(t, dashboard.Options{ShowKeys: true, Store: redisstore.New(rdb, redisstore.Options{Failover: failover.Options{Replicas: 4}})})
	b := browser.Open(t, s.serve(), 1280, 900, false)
	every(t, func(i int) { s.good(i); s.attack() })
	b.Await(patience, `document.querySelector("#store-state").innerText === "answers"`)
	server.Kill() // on a busy machine it may have been slow before, which is an outage too
	b.Await(patience, `document.querySelector("#store").dataset.bad === "true" && document.querySelector("#store-servers").innerText.includes("connection refused")`)
	assert.Contains(t, b.Text("#store-servers"), server.Addr)
	b.Await(patience, `["Now: counts by itself: this process allows 150/1m", "Now: refuses nothing, as always", "Now: answers all requests with 503"].every(
		(text) => document.querySelector("#rows").innerText.includes(text))`)
	b.Await(patience, `document.querySelector("#chart-marks").innerText.includes("store down ")`)
	assert.Equal(t, "bad", browser.Eval[string](b, `document.querySelector("#verdict").dataset.level`))
	look(b, "outage")
	server.Restart()
	// The chart says "store back" a quiet minute later.
	b.Await(patience, `!document.querySelector("#rows").innerText.includes("Now:") && document.querySelector("#store").dataset.bad === "false" && document.querySelector("#store-servers").innerText === ""`)
}

func TestTheHeadlineSaysWhyRulesAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("version: 1\ndefault: {limit: 100/1m, key: ip}\n")
	page, err := dashboard.New(dashboard.Options{Authorize: anybody})
	require.NoError(t, err)
	w, err := rules.Watch(t.Context(), path, rules.Options{
		Poll: 100 * time.Millisecond, OnReload: func(rules.Reload) {}, Config: middleware.Config{Observer: page},
	})
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	page.Add(w.RateLimit)
	page.FollowRules(w)
	b := browser.Open(t, (&service{t: t, page: page, mux: http.StripPrefix("/ops", page)}).serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#rows").innerText.includes("100/1m")`)

	write("version: 1\ndefault: {limit: <b>many</b>, key: ip}\n")
	b.Await(patience, `document.querySelector("#verdict-detail").innerText.includes("<b>many</b>")`)
	assert.Contains(t, b.Text("#verdict-text"), "older rules are in force")
	look(b, "refused-rules")

	write("version: 1\ndefault: {limit: 60/1m, key: ip}\n")
	b.Await(patience, `document.querySelector("#rows").innerText.includes("60/1m") && !document.querySelector("#verdict").innerText.includes("many")`)
}
