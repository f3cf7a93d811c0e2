package dashboard

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

func TestToObserveManyClientsAllocatesNothing(t *testing.T) {
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
		if name := e.Name(); strings.HasSuffix(name, ".js") {
			assert.Contains(t, scripts, name)
		}
	}
}
