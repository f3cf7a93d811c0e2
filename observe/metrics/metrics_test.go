package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/metrics"
	"github.com/weirgo/weir/observe/offenders"
)

func observation(t testing.TB, rule, tier string) *middleware.Observation {
	return &middleware.Observation{
		Request: httptest.NewRequest(http.MethodGet, "/", nil), Outcome: middleware.OutcomeAllowed,
		Rules: []middleware.RuleResult{{Rule: &middleware.RuleInfo{Name: rule, Tier: tier}, Cost: 1, Decision: limiter.Decision{Allowed: true}}},
	}
}

func newTable(t testing.TB, store limiter.Store, most int) *metrics.Table {
	counted, err := metrics.New(metrics.Options{Store: store, MaxRules: most})
	require.NoError(t, err)
	return counted
}

// read are the values of metrics, by name and labels.
func read(t *metrics.Table) map[string]float64 {
	values := map[string]float64{}
	t.Read(func(m *metrics.Metric, value float64, labels ...string) {
		values[strings.Join(append([]string{m.Prometheus}, labels...), " ")] = value
	})
	return values
}

func TestThousandsOfQuotasAreToldApart(t *testing.T) {
	const rules, rounds = 2000, 5 // many more than have a place by address
	counted := newTable(t, nil, rules)
	var observations []*middleware.Observation
	for i := range rules {
		observations = append(observations, observation(t, fmt.Sprint("rule", i), ""))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range rounds {
				for _, o := range observations {
					own := *o
					counted.Observe(&own)
				}
			}
		})
	}
	all.Wait()
	values := read(counted)
	for i := range rules {
		require.EqualValues(t, 4*rounds, values[fmt.Sprintf("rate_limit_requests_total rule%d allowed ", i)])
	}
	assert.EqualValues(t, 4*rounds*rules, values["rate_limit_outcomes_total allowed"])
	assert.NotContains(t, values, "rate_limit_requests_total other allowed ")
}

func TestARequestIsUndecidedForAllOfItsRules(t *testing.T) {
	counted := newTable(t, nil, 10)
	o := observation(t, "ip", "")
	o.Outcome, o.Err = middleware.OutcomeUndecided, errors.New("broken")
	counted.Observe(o)
	o.Outcome, o.Rules[0].Rule.Mode = middleware.OutcomeAllowed, middleware.Shadow // as where all rules are in shadow
	counted.Observe(o)
	o.Err, o.Outcome = nil, middleware.OutcomeUndecided // its turn would come too late
	counted.Observe(o)
	assert.Equal(t, 3.0, read(counted)["rate_limit_requests_total ip undecided "])
	assert.Equal(t, 2.0, read(counted)["rate_limit_store_errors_total memory"])
}

// A counting list has so many bans that nobody should copy them.
type counting struct {
	bans.List
	t testing.TB
}

func (c counting) All(context.Context) ([]bans.Ban, error) {
	c.t.Error("the bans were copied to count them")
	return nil, nil
}

func TestAScrapeCountsBansWithoutACopy(t *testing.T) {
	list := bans.Must(bans.New(bans.Options{}))
	counted := metrics.Must(metrics.New(metrics.Options{Bans: counting{list, t}}))
	scrape := func() { counted.Read(func(*metrics.Metric, float64, ...string) {}) }
	before := testing.AllocsPerRun(10, scrape)
	for i := range 10_000 {
		require.NoError(t, list.Ban(t.Context(), fmt.Sprint("client ", i), 0))
	}
	assert.Equal(t, before, testing.AllocsPerRun(10, scrape))
	assert.Equal(t, 10_000.0, read(counted)["rate_limit_bans_active"])
}

func refusedOf(rule, key string) *middleware.Observation {
	return &middleware.Observation{Rules: []middleware.RuleResult{{Rule: &middleware.RuleInfo{Name: rule}, Key: key, Cost: 1}}}
}

func TestTheClientsThatAreRefusedMostAreNamedAndBounded(t *testing.T) {
	for shown, keyOf := range map[bool]func(s *offenders.Sketch, key string) string{
		true: func(_ *offenders.Sketch, key string) string { return key }, false: (*offenders.Sketch).Digest,
	} {
		top := offenders.Must(offenders.New(offenders.Options{ShowKeys: shown, Window: time.Minute}))
		counted := metrics.Must(metrics.New(metrics.Options{Top: top, TopClients: 2}))
		for _, rule := range []string{"ip", "user"} {
			for i, key := range []string{"a", "b", "c"} {
				for range 3 - i {
					top.Observe(refusedOf(rule, key))
				}
			}
		}
		found := map[string]float64{}
		for name, value := range read(counted) {
			if labels, ok := strings.CutPrefix(name, "rate_limit_top_client_refused "); ok {
				found[labels] = value
			}
		}
		a, b := keyOf(top, "a"), keyOf(top, "b")
		assert.Equal(t, map[string]float64{"ip " + a: 3, "ip " + b: 2, "user " + a: 3, "user " + b: 2}, found)
	}
}

// Clients choose their keys. A key must not make two series alike, or be no UTF-8: a scrape would fail.
func TestNoKeySpoilsTheMetrics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := offenders.Must(offenders.New(offenders.Options{ShowKeys: true}))
		counted := metrics.Must(metrics.New(metrics.Options{Top: top, TopClients: 100}))
		long := strings.Repeat("x", 200)
		keys := rapid.SliceOf(rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{"\xff", "\xfe", top.Digest("\xff"), long, top.Digest(long), ""}))).Draw(t, "keys")
		for _, key := range keys {
			top.Observe(refusedOf("ip", key))
		}
		shown := map[string]bool{}
		counted.Read(func(m *metrics.Metric, _ float64, labels ...string) {
			if m.Prometheus != "rate_limit_top_client_refused" {
				return
			}
			assert.False(t, shown[labels[1]], "%q", labels)
			assert.True(t, utf8.ValidString(labels[1]), "%q", labels)
			shown[labels[1]] = true
		})
		assert.Equal(t, len(keys) > 0, len(shown) > 0)
	})
}

func TestThePageOfDocsHasEveryMetric(t *testing.T) {
	page, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	for _, m := range metrics.All() {
		assert.Regexp(t, "`"+m.Prometheus+"[`{]", string(page))
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := metrics.New(metrics.Options{MaxRules: -1, TopClients: 101})
	assert.ErrorContains(t, err, "metrics: MaxRules is -1: it must be from 1 to 100000, or 0 for 1000")
	assert.ErrorContains(t, err, "metrics: TopClients is 101: it must be from 1 to 100, or 0 for 10")
	assert.ErrorContains(t, err, "metrics: TopClients is 101 and Top is nil")
	_, err = metrics.New(metrics.Options{MaxRules: 100_001})
	assert.ErrorContains(t, err, "metrics: MaxRules is 100001")
}
