package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/demand"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/cmd/weir/internal/verdict"
	"github.com/weirgo/weir/middleware/rules"
)

func shown(client string) string { return client }

// simulated is a page about rules on made up traffic.
func simulated(t *testing.T) *verdict.Page {
	t.Helper()
	o := rules.Options{}
	o.Config.Bans.List = simulate.NewBans()
	loaded, err := rules.Parse([]byte(`version: 1
endpoints:
  "GET /articles/{id}": {limit: 6/1m}
  "POST /login": {limit: 10/1m, escalate: {after: 20, within: 10m, ban: 1h}}
  "/static/*": {limit: 4/1s, mode: shadow}
default: 5/1m
`), o)
	require.NoError(t, err)
	service, err := simulate.New(loaded.Config(), simulate.Options{Routes: loaded.Routes(), Client: loaded.IP()})
	require.NoError(t, err)
	tally := simulate.NewTally(service.Rules())
	for _, e := range accesslog.Generate(1, 5_000) {
		tally.Add(&e, e.At, service.Do(&e, e.At))
	}
	s := tally.Summary(100, shown)
	page := &verdict.Page{Title: "limits.yaml, access.log", Words: verdict.Simulated(s), Summary: s}
	page.Notes = verdict.Log(&accesslog.Stats{Entries: 10_000, Broken: 1, Whole: true, First: []accesslog.Broken{{Line: 7, Byte: 3, Why: "has no time"}}}, 12)
	return page
}

func TestWhatALogSaysIsTextAndNothingElse(t *testing.T) {
	const hostile = `</script><img src=x onerror=window.hit=1>`
	page := simulated(t)
	page.Title, page.Verdict = hostile, hostile
	page.Notes = append(page.Notes, hostile)
	page.Summary.Hit[0].Client, page.Summary.Hit[0].By = hostile, hostile
	page.Recommended = &verdict.Recommendation{Result: &demand.Result{Refused: []demand.Client{{Client: hostile}}}, Peaks: hostile, Text: hostile}
	var written strings.Builder
	require.NoError(t, page.Write(&written))
	assert.NotContains(t, written.String(), "<img")
	assert.NotContains(t, written.String(), "<script")
	assert.Contains(t, written.String(), "&lt;img")
}

// A sliding window may refuse clients that keep to its limit, and then it is said why.
func TestALimitAboveWhatAnyClientAsksForIsExplainedIfItRefuses(t *testing.T) {
	for requests, explained := range map[int64]bool{30: true, 5: false} { // of a small window, each request is remembered
		m, err := demand.NewMeter(time.Minute)
		require.NoError(t, err)
		for minute := range int64(2) { // all at the beginning of each: never more in any minute
			for i := range requests {
				m.Add("192.0.2.1", (16_666_666+minute)*60_000_000+i, 1)
			}
		}
		r, err := m.Result(1)
		require.NoError(t, err)
		require.EqualValues(t, requests, r.Peaks.Most)
		assert.Equal(t, explained, strings.Contains(verdict.Peaks(r), "Limits above that still refuse something"), "%v: %+v", requests, r.Curve)
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
