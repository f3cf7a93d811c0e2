package dashboard_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/browser"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/dashboard"
)

type whatIfAnswer struct {
	Error, Text, Now  string
	Notes             []string
	Clients, Requests struct{ About, Low, High int }
	Followed, Each    int
}

// whatIf asks what another limit would do, as a viewer.
func (s *service) whatIf(rule, tier, limit string) (a whatIfAnswer) {
	s.t.Helper()
	r := accepting("application/json")
	r.URL.RawQuery = url.Values{"weir": {"what-if"}, "rule": {rule}, "tier": {tier}, "limit": {limit}}.Encode()
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &a))
	assert.Equal(s.t, a.Error != "", w.Code == http.StatusBadRequest)
	return a
}

func TestWhatALimitWouldRefuseIsWhatItRefuses(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		for i := range 20 * 60 {
			s.good(i)
			s.noisy()
			time.Sleep(50 * time.Millisecond)
		}
		a := s.whatIf("tenant", "", "60/1m token-bucket burst 10")
		f := s.figures()
		refused, asked := 0, 0
		for _, series := range f.Series {
			if f.Rows[series.Row].Rule == "tenant" && f.Rows[series.Row].Tier == "" {
				refused, asked = sum(series.Refused), sum(series.Asked)
			}
		}
		assert.Equal(t, 1, a.Clients.About)
		assert.InDelta(t, refused, a.Requests.About, 0.01*float64(refused), "as it did refuse")
		assert.Equal(t, 2400, asked)
		assert.Contains(t, a.Text, "would have refused something to 1 of 41 clients, ")
		assert.Contains(t, a.Text, " of 2,400 requests in the last 60 s.")
		assert.Contains(t, a.Now, "60/1m token-bucket burst 10, which is in force, would have refused something to 1 of 41")
		assert.Contains(t, a.Notes, "All clients of this process are followed: nothing is estimated.")
		assert.Contains(t, fmt.Sprint(a.Notes), "This process counts for itself.")
		assert.Contains(t, fmt.Sprint(a.Notes), "Not known is what clients did not ask")

		a = s.whatIf("tenant", "", "100/s")
		assert.Equal(t, "100/1s would have refused nothing to any of 41 clients in the last 60 s.", a.Text)
		a = s.whatIf("tenant", "", "100/day Europe/Berlin")
		assert.Equal(t, 1, a.Clients.About)
		assert.InDelta(t, 1050, a.Requests.About, 50, "all but the 100 of a day, or those of two")
		a = s.whatIf("strict", "", "1000/h")
		assert.Equal(t, 1, a.Clients.About, "in shadow too")
		assert.Contains(t, fmt.Sprint(a.Notes), "The limit's period is longer than the 60 s that are known")
		assert.NotContains(t, fmt.Sprint(a.Notes), "did not ask", "a rule in shadow refuses nothing")
	})
}

func TestOfAnAttackTheNumbersAreEstimatesWithBounds(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		page, err := dashboard.New(dashboard.Options{Authorize: anybody})
		require.NoError(t, err)
		limits, err := middleware.New(middleware.Config{Observer: page, Logger: slog.New(slog.DiscardHandler),
			Rules: []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(10)}}})
		require.NoError(t, err)
		page.Add(limits)
		s := &service{t: t, page: page, mux: page}
		const clients, eager = 12_000, 3000
		for second := range 60 {
			for i := range clients / 60 {
				for range 1 + i%4/3*6 { // every fourth asks seven times at once
					r := httptest.NewRequest("GET", "/", nil)
					r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", second, i)
					limits.Check(httptest.NewRecorder(), r)
				}
			}
			time.Sleep(time.Second)
		}
		a := s.whatIf("ip", "", "5/m")
		assert.Greater(t, a.Each, 4)
		assert.InDelta(t, eager, a.Clients.About, 0.5*eager)
		assert.Less(t, a.Clients.Low, a.Clients.About)
		assert.Greater(t, a.Clients.High, a.Clients.About)
		assert.InDelta(t, 2*eager, a.Requests.About, eager)
		assert.Contains(t, a.Text, "would have refused something to some ")
		assert.Contains(t, fmt.Sprint(a.Notes), "is followed, by a hash of its key")

		a = s.whatIf("ip", "", "7/m")
		assert.Zero(t, a.Clients.About)
		assert.Positive(t, a.Clients.High, "none of the sample is not none")
		assert.Contains(t, a.Text, "may be such that it does.")
	})
}

func TestAQuestionThatHasNoAnswerIsRefused(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		assert.Contains(t, s.whatIf("login", "", "5/s").Error, "nothing has been asked of login since this process began")
		s.send("GET", "/", "198.51.100.1", "acme")
		assert.Contains(t, s.whatIf("tenant", "", "").Error, "limiter")
		assert.Contains(t, s.whatIf("tenant", "", "0/s").Error, "limiter")
		assert.Contains(t, s.whatIf("tenant", "gold", "5/s").Error, "no rule")
		assert.Contains(t, s.whatIf("", "", "5/s").Error, "which rule?")
		time.Sleep(2 * time.Hour)
		assert.Contains(t, s.whatIf("tenant", "", "5/s").Error, "nothing was asked of tenant in the last 60 min")

		w := httptest.NewRecorder()
		r := accepting("application/json")
		r.URL.RawQuery = "weir=elsewhere"
		s.mux.ServeHTTP(w, r)
		assert.Equal(t, http.StatusBadRequest, w.Code)
	})
}

func TestWhatAnotherRuleRefusesIsNoDemand(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		for range 20 {
			s.send("POST", "/login", "198.51.100.1", "")
		}
		time.Sleep(time.Second)
		assert.Equal(t, 5-1, s.whatIf("ip", "", "1/h").Requests.About, "login lets 5 pass, and the others take nothing of ip")
		assert.Equal(t, 20-1, s.whatIf("login", "", "1/h").Requests.About)
	})
}

func TestOfManyRulesOnlySomeAreRecorded(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		page, limits := manyRules(t)
		for i := range 40 {
			ask(limits, i, 1)
		}
		time.Sleep(time.Second)
		s := &service{t: t, page: page, mux: page}
		assert.Empty(t, s.whatIf("thing 31", "", "5/s").Error)
		assert.Contains(t, s.whatIf("thing 32", "", "5/s").Error, "there is room for 32 rules and tiers")
	})
}

func TestThePageShowsAnHourAndADayAndTriesLimits(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{ShowKeys: true})
	s.page.Age(30 * time.Hour)
	for i := range 400 {
		s.good(i)
		s.noisy()
	}
	tide := func(height float64) func(int) uint32 {
		return func(point int) uint32 { return uint32(height * (1.5 + math.Sin(float64(point)/40))) }
	}
	s.page.Remember("tenant", 0, tide(200), tide(40))
	s.page.Remember("tenant", 1, tide(3000), tide(300))
	s.page.Age(40 * time.Second) // and all that is there was asked a while ago
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#live").dataset.is === "live"`)
	s.mixed()
	assert.Equal(t, "true", browser.Eval[string](b, `document.querySelector("#span-minutes").getAttribute("aria-pressed")`))

	b.Click("#span-day")
	b.Await(patience, `document.querySelector("#chart-note").innerText.includes("Averages over 4.8 min")`)
	assert.NotContains(t, b.Text("#chart-note"), "Nothing is known")
	assert.Contains(t, b.Text("#chart-time"), "24 h ago")
	b.Await(patience, `/^1[0-9] passed/.test(document.querySelector("#legend").innerText.replace("\n", " "))`)

	b.Click("#span-hour")
	b.Await(patience, `document.querySelector("#chart-note").innerText.includes("Averages over 12 s")`)
	b.Run(`[...document.querySelectorAll("#rows button")].find((row) => row.querySelector(".name").firstChild.data === "tenant").click()`)
	b.Await(patience, `document.querySelector("#traffic-title").innerText.startsWith("tenant")`)
	b.Await(patience, `document.querySelector("#legend").innerText.includes("within the limit") && document.querySelector("#chart path.refuse").getAttribute("d").length > 1000`)
	assert.Equal(t, "tenant\n", browser.Eval[string](b, `document.querySelector("#whatif-rule").value`), "it follows the rule that is looked at")

	b.Write("#whatif-limit", "20 a second")
	b.Click("#whatif-form button")
	b.Await(patience, `document.querySelector("#whatif-answer .error")?.innerText.includes("limiter") ?? false`)
	b.Run(`document.querySelector("#whatif-limit").value = "20/s"`)
	b.Click("#whatif-form button")
	b.Await(patience, `document.querySelector("#whatif-answer .answer")?.innerText.startsWith("20/1s would have refused something to 1 of 41 clients") ?? false`)
	assert.Contains(t, b.Text("#whatif-answer"), "which is in force,")

	look(b, "past")
}

func TestThePageSaysFromWhenOnItKnowsAnything(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{})
	b := browser.Open(t, s.serve(), 800, 600, false)
	b.Await(patience, `document.querySelector("#chart-note").innerText.startsWith("Nothing is known of what was before")`)
	assert.Greater(t, browser.Eval[float64](b, `document.querySelector("#chart .unknown").width.baseVal.value`), 200.0)
	b.Click("#span-hour")
	b.Await(patience, `document.querySelector("#chart-note").innerText.includes("Averages over 12 s, of this process. Nothing is known")`)
}
