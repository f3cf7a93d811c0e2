package dashboard

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
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

func TestFollowedClientsAreBoundedAndDoNotGiveWayToThoseThatRotateKeys(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		d := newDashboard(t, Options{})
		rule := &middleware.RuleInfo{Name: "ip"}
		d.followed.follow("looked at", d.now())
		for second := range 20 {
			d.Observe(observed(rule, "looked at", true))
			for i := range 2000 {
				d.Observe(observed(rule, fmt.Sprint(second, " ", i), false))
			}
			time.Sleep(time.Second)
		}
		c, ok := d.followed.find(hash("looked at"))
		assert.True(t, ok)
		assert.Equal(t, d.now()-1, c.passed)
		latest := 0
		for _, c := range d.followed.all() {
			if strings.HasPrefix(c.key, "19 ") {
				latest++
			}
			known, _ := d.followed.find(c.hash)
			assert.Equal(t, c, known)
		}
		assert.Len(t, d.followed.all(), 512)
		assert.Positive(t, latest, "some of the latest are followed")
		assert.LessOrEqual(t, latest, 2*64, "and a few in each second")
	})
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
