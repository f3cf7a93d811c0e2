package dashboard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

// newKeysAfter is what the page finds after some seconds, in each of which requests of
// certain keys came.
func newKeysAfter(t *testing.T, seconds int, keys func(second int) []string) (found []finding) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDashboard(t, Options{})
		q := &middleware.RuleInfo{Name: "tenant"}
		for second := range seconds {
			for _, key := range keys(second) {
				d.Observe(observed(q, key, true))
			}
			time.Sleep(time.Second)
		}
		d.counts.fold(d.now())
		found = newKeysOf(&state{
			tick: tick{Second: d.now()}, Rows: []row{{Rule: "tenant"}},
			series: []*series{d.counts.byName[seriesName{"tenant", ""}]},
		})
	})
	return found
}

// faithful are n keys that ask once every so many seconds.
func faithful(n, every, second int) (keys []string) {
	for i := range n {
		if i%every == second%every {
			keys = append(keys, fmt.Sprint("faithful ", i))
		}
	}
	return keys
}

func rotating(n, second int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("rotating ", second, " ", i))
	}
	return keys
}

func TestKeysThatAreRotatedAreToldFromThoseThatComeAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		seconds int
		keys    func(second int) []string
		said    bool
	}{
		"nobody new":         {300, func(s int) []string { return faithful(100, 5, s) }, false},
		"many":               {300, func(s int) []string { return faithful(30_000, 60, s) }, false},
		"one key":            {300, func(s int) []string { return make([]string, 50) }, false},
		"a third new":        {300, func(s int) []string { return append(faithful(1000, 5, s), rotating(100, s)...) }, false},
		"rotated":            {300, func(s int) []string { return append(faithful(100, 5, s), rotating(200, s)...) }, true},
		"rotated fast":       {300, func(s int) []string { return append(faithful(100, 5, s), rotating(5000, s)...) }, true},
		"just started":       {20, func(s int) []string { return rotating(1000, s) }, false},
		"an attack begins":   {205, func(s int) []string { return append(faithful(100, 5, s), rotating(s/200*500, s)...) }, true},
		"an attack was":      {200, func(s int) []string { return append(faithful(100, 5, s), rotating((1-s/150)*500, s)...) }, false},
		"few, beside many":   {300, func(s int) []string { return append(faithful(20_000, 20, s), rotating(20, s)...) }, false},
		"one heavy, few new": {300, func(s int) []string { return append(append(faithful(1, 1, s), rotating(30, s)...), hammer(1000)...) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := newKeysAfter(t, tt.seconds, tt.keys)
			require.Equal(t, tt.said, len(found) == 1, "%v", found)
			if tt.said {
				assert.Contains(t, found[0].Text, "an attacker who rotates keys")
			}
		})
	}
}

func hammer(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "hammer"
	}
	return keys
}

func BenchmarkNewcomers(b *testing.B) {
	n := &newKeys{}
	n.init(0)
	for name, count := range map[string]int{"one key": 1, "100 keys": 100, "ever new": 1 << 17} {
		keys := make([]string, count)
		for i := range keys {
			keys[i] = fmt.Sprintf("192.0.%d.%d", i>>8, i&255)
		}
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				n.add(hash(keys[i%count]))
			}
		})
	}
}
