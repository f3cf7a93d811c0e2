package metrics_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/metrics"
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
	assert.Zero(t, values["rate_limit_rules_over_cap_total"])
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
