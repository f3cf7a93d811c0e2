package dashboard

import (
	"fmt"
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

// What is found of a client is its own.
func TestClientsThatGiveWayAreNotMixedUp(t *testing.T) {
	d := newDashboard(t, Options{ShowKeys: true})
	rules := make([]*middleware.RuleInfo, 400) // each refuses one key
	for i := range rules {
		rules[i] = &middleware.RuleInfo{Name: fmt.Sprint("key ", i)}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20_000 {
				rule := rules[(g*i)%len(rules)]
				d.Observe(observed(rule, rule.Name, false))
			}
		})
	}
	wg.Go(func() {
		for i := range 5000 {
			key := fmt.Sprint("key ", i%len(rules))
			if c, _ := d.followed.of(key); c.by != nil && c.by.rule != key {
				t.Errorf("%s is refused by %s", key, c.by.rule)
				return
			}
		}
	})
	wg.Wait()
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
