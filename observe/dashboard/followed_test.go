package dashboard

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

func TestToFollowManyClientsAllocatesNothing(t *testing.T) {
	d := newDashboard(t, Options{})
	rule := &middleware.RuleInfo{Name: "ip"}
	long := strings.Repeat("x", 200)
	all := make([]*middleware.Observation, 2000)
	for i := range all {
		all[i] = observed(rule, fmt.Sprint("198.51.100.", i), i%2 == 0)
		if i%10 == 0 {
			all[i] = observed(rule, fmt.Sprint(long, i), false)
		}
	}
	d.Observe(all[0])
	i := 0
	assert.Zero(t, testing.AllocsPerRun(5000, func() {
		d.Observe(all[i%len(all)])
		i++
	}))
}

// Of each client that is found, the figures are its own.
func TestClientsThatGiveWayAreNotMixedUp(t *testing.T) {
	d := newDashboard(t, Options{ShowKeys: true})
	rule := &middleware.RuleInfo{Name: "ip"}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20_000 {
				o := observed(rule, fmt.Sprint("key ", (g*i)%3000), false)
				o.Request = &http.Request{Pattern: "/of/" + o.Rules[0].Key}
				d.Observe(o)
			}
		})
	}
	wg.Go(func() {
		for i := range 5000 {
			key := fmt.Sprint("key ", i%3000)
			h := hash(key)
			k := d.followed.find(h)
			if k == nil {
				continue
			}
			v := &clientView{}
			if _, ok := d.describe(v, k, h, d.now()); !ok {
				continue
			}
			for _, e := range v.Latest {
				if e.Route != "/of/"+key {
					t.Errorf("%s has a request on %s", key, e.Route)
					return
				}
			}
		}
	})
	wg.Wait()
}

// Counts are kept for eight rules and routes of a client; the last place is that of all others.
func TestOfAClientSomeRulesAndRoutesAreToldApart(t *testing.T) {
	d := newDashboard(t, Options{})
	for i := range 20 {
		o := observed(&middleware.RuleInfo{Name: fmt.Sprint("rule ", i)}, "a", false)
		o.Request = &http.Request{Pattern: fmt.Sprint("/", i)}
		d.Observe(o)
	}
	v := &clientView{}
	_, ok := d.describe(v, d.followed.find(hash("a")), hash("a"), d.now())
	require.True(t, ok)
	require.Len(t, v.Rules, countsKept)
	require.Len(t, v.Routes, countsKept)
	assert.Equal(t, clientRule{Asked: 13, Refused: 13}, v.Rules[0])
	assert.Equal(t, clientRoute{Others: true, Route: "", Asked: 13, Refused: 13}, v.Routes[0])
	assert.Len(t, v.Latest, 20)
}

func BenchmarkFollowed(b *testing.B) {
	rule := &middleware.RuleInfo{Name: "ip"}
	for name, keys := range map[string]int{"one client": 1, "rotating": 5000} {
		d := newDashboard(b, Options{})
		all := make([]*middleware.Observation, keys)
		for i := range all {
			all[i] = observed(rule, fmt.Sprint("198.51.100.", i), false)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				d.Observe(all[i])
				if i++; i == keys {
					i = 0
				}
			}
		})
	}
}

// All files of the script share their names.
func TestNoTwoPartsOfTheScriptHaveOneName(t *testing.T) {
	known := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^(?:async )?(?:function|const|let) (\w+)`).FindAllStringSubmatch(script, -1) {
		assert.False(t, known[found[1]], "%s is declared twice", found[1])
		known[found[1]] = true
	}
	entries, err := parts.ReadDir("page")
	require.NoError(t, err)
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, ".js"):
			assert.Contains(t, scripts, name)
		case strings.HasSuffix(name, ".css"):
			assert.Contains(t, styles, name)
		}
	}
}
