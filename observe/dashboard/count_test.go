package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

func newDashboard(t require.TestingT, o Options) *Dashboard {
	d, err := New(o)
	require.NoError(t, err)
	return d
}

func observed(rule *middleware.RuleInfo, key string, allowed bool) *middleware.Observation {
	o := &middleware.Observation{Request: new(http.Request), Outcome: middleware.OutcomeAllowed, Rules: []middleware.RuleResult{
		{Rule: rule, Key: key, Cost: 1, Decision: limiter.Decision{Allowed: allowed}},
	}}
	if !allowed {
		o.Outcome = middleware.OutcomeRefused
	}
	return o
}

func TestEachSecondHasWhatWasCountedInIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &counter{}
		var now int64
		model := map[int64]uint32{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if later := rapid.SampledFrom([]int64{0, 1, 1, 2, 10, span - 1, span, span + 1, 3 * span}).Draw(t, "later"); later > 0 {
				c.fold(now, now+later)
				now += later
			}
			n := rapid.Uint32Range(0, 5).Draw(t, "n")
			c.total.Add(uint64(n))
			model[now] += n
		}
		c.fold(now, now+1)
		now++
		got, sum := c.seconds(now, span), uint64(0)
		for i, n := range got {
			second := now - span + int64(i)
			if n != model[second] {
				t.Fatalf("second %d has %d, want %d", second, n, model[second])
			}
			sum += uint64(n)
		}
		if c.sum(now, span) != sum {
			t.Fatalf("sum is %d, of seconds that come to %d", c.sum(now, span), sum)
		}
	})
}

func TestARuleWhoseLimitChangesGoesOnInItsSeries(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		d := newDashboard(t, Options{})
		d.Observe(observed(&middleware.RuleInfo{Name: "ip", Limit: limiter.PerMinute(5)}, "a", true))
		d.Observe(observed(&middleware.RuleInfo{Name: "ip", Limit: limiter.PerMinute(50)}, "a", true))
		d.Observe(observed(&middleware.RuleInfo{Name: "ip", Tier: "premium"}, "a", true))
		require.Len(t, d.counts.byName, 2)
		assert.EqualValues(t, 2, d.counts.byName[seriesName{"ip", ""}].asked.total.Load())
	})
}

func TestMemoryIsBoundedHoweverManyRulesComeAndGo(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		d := newDashboard(t, Options{})
		for i := range 3 * maxSeries {
			d.Observe(observed(&middleware.RuleInfo{Name: fmt.Sprint("rule ", i)}, "a", true))
		}
		assert.Len(t, d.counts.byName, maxSeries)
		assert.EqualValues(t, 2*maxSeries, d.counts.other.asked.total.Load())

		time.Sleep((span + 2) * time.Second)
		d.Observe(observed(&middleware.RuleInfo{Name: "new"}, "a", true))
		assert.Contains(t, d.counts.byName, seriesName{"new", ""}, "those of which nothing is shown any more make room")

		for i := range 2 * maxRules {
			d.Observe(observed(&middleware.RuleInfo{Name: "new", Limit: limiter.PerMinute(int64(i + 1))}, "a", true))
		}
		assert.EqualValues(t, 1+2*maxRules, d.counts.byName[seriesName{"new", ""}].asked.total.Load())
	})
}

func TestWhatTheStoreCouldNotDecideWasRefusedByNoRule(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		d := newDashboard(t, Options{})
		o := observed(&middleware.RuleInfo{Name: "ip"}, "a", false)
		o.Outcome, o.Err = middleware.OutcomeUndecided, assert.AnError
		d.Observe(o)
		assert.Zero(t, d.counts.byName[seriesName{"ip", ""}].refused.total.Load())
	})
}

func BenchmarkObserve(b *testing.B) {
	d := newDashboard(b, Options{Authorize: func(*http.Request) bool { return true }})
	q := &middleware.RuleInfo{Name: "ip"}
	for _, allowed := range []bool{true, false} {
		o := observed(q, "198.51.100.1", allowed)
		b.Run(o.Outcome.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.Observe(o)
			}
		})
		b.Run(o.Outcome.String()+" parallel", func(b *testing.B) {
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					d.Observe(o)
				}
			})
		})
	}
}

func TestAKeyIsReadBackAsItIsShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.SampledFrom([]string{"", `"`, `"a"`, " a", "a\u202eb", "a\x00", "\xff", "#a", "user:42", "a b"}),
		).Draw(t, "key")
		shown := typedKey(key)
		for _, c := range shown {
			if c < ' ' || c == '\u202e' || c == '\ufffd' && key != shown {
				t.Fatalf("%q is shown as %q", key, shown)
			}
		}
		if back, err := operate.Key(shown); err != nil || back != key {
			t.Fatalf("%q is shown as %s and read as %q, %v", key, shown, back, err)
		}
	})
	for _, plain := range []string{"header:X-Tenant:acme", "203.0.113.7", "2001:db8::/64", "user:42", "route:GET /a b"} {
		require.Equal(t, plain, typedKey(plain))
	}
	require.Equal(t, `"tenant:acme"`, typedKey("tenant:acme"), "it is of the application's own")
}

func TestWhoIsRefusedIsSaidInWords(t *testing.T) {
	times := func(n int) (counts []int) {
		for range n {
			counts = append(counts, 1)
		}
		return counts
	}
	for _, tt := range []struct {
		counts []int // of refusals, by key
		says   string
	}{
		{[]int{15}, ""},
		{[]int{64}, "1 client causes all of its refusals: user:0."},
		{append([]int{32}, times(32)...), "1 client causes 50% of its refusals: user:0."},
		{[]int{5000, 500, 500, 400}, "1 client causes 78.1% of its refusals: user:0."},
		{append([]int{1200}, times(1000)...), "1 client causes 54.5% of its refusals: user:0."},
		{[]int{32, 32}, "2 clients cause all of its refusals: user:0 and user:1."},
		{[]int{22, 21, 21}, "3 clients cause all of its refusals: user:0, user:1 and user:2."},
		{[]int{6, 10}, "2 clients cause all of its refusals: user:0 and user:1."},
		{append([]int{20, 18, 18}, times(8)...), "3 clients cause 87.5% of its refusals: user:0, user:1 and user:2."},
		{[]int{8, 8, 8, 8, 8, 8, 8, 8}, "8 clients cause all of its refusals: user:0, user:1, user:2 and 5 more."},
		{[]int{8, 7, 7, 7, 7, 7, 7, 7, 7}, "9 clients cause its refusals."},
		{[]int{2, 2, 2, 2, 2, 2, 2, 2}, "8 clients cause its refusals: the limit is too low, or an attacker rotates keys."},
		{times(32), "32 clients cause its refusals: the limit is too low, or an attacker rotates keys."},
		{times(640), "32 clients or more cause its refusals: the limit is too low, or an attacker rotates keys."},
	} {
		d := newDashboard(t, Options{ShowKeys: true})
		rule := &middleware.RuleInfo{Name: "ip"}
		for key, n := range tt.counts {
			o := observed(rule, fmt.Sprint("user:", key), false)
			for range n {
				d.Observe(o)
			}
		}
		assert.Equal(t, tt.says, said(d, rule).Text)
	}
}

// said returns the finding about a rule.
func said(d *Dashboard, rule *middleware.RuleInfo) finding {
	for _, r := range d.refusals() {
		if r.Name == rule.Name {
			return d.clients(r.Name, r.Refused)
		}
	}
	return finding{}
}

// Clients that share a key did nothing together: the page neither calls them one client, nor
// offers to ban them, nor bans them without saying so.
func TestAKeyThatClientsShareIsNotOneClient(t *testing.T) {
	list := bans.Must(bans.New(bans.Options{}))
	d := newDashboard(t, Options{ShowKeys: true, Bans: list})
	ask := func(rule *middleware.RuleInfo, key string, class keyfunc.Class) finding {
		for range 64 {
			o := observed(rule, key, false)
			o.Rules[0].Class = class
			d.Observe(o)
		}
		return said(d, rule)
	}
	assert.Empty(t, ask(&middleware.RuleInfo{Name: "route"}, "route:GET /", keyfunc.Shared).Text, "it says nothing of clients")

	ip := &middleware.RuleInfo{Name: "ip"}
	f := ask(ip, "10.0.0.1", keyfunc.InDoubt)
	assert.Contains(t, f.Text, "10.0.0.1, which belongs to a proxy that does not name its clients: they share it.")
	assert.NotContains(t, f.Text, "client causes")
	require.Len(t, f.Known, 1)
	assert.True(t, f.Known[0].Shared)

	login := &middleware.RuleInfo{Name: "login"} // one counter for everybody, which refuses all of them
	for range 64 {
		o := observed(login, "global", false)
		o.Rules[0].Class = keyfunc.Shared
		o.Rules = append(o.Rules, observed(ip, "10.0.0.2", true).Rules...)
		o.Rules[1].Class = keyfunc.InDoubt
		d.Observe(o)
	}
	f = said(d, login)
	assert.Contains(t, f.Text, "One counter for everybody, and 1 key causes all of its refusals: 10.0.0.2, which belongs to a proxy")
	assert.True(t, f.Known[0].Shared, "it never passed, and no rule refused it by this key")

	f = ask(&middleware.RuleInfo{Name: "network"}, "198.51.100.0/24", keyfunc.Network)
	assert.Equal(t, "1 network causes all of its refusals: 198.51.100.0/24.", f.Text)
	assert.True(t, f.Known[0].Shared)

	f = ask(&middleware.RuleInfo{Name: "other"}, "203.0.113.9", keyfunc.Own)
	assert.Equal(t, "1 client causes all of its refusals: 203.0.113.9.", f.Text)
	assert.False(t, f.Known[0].Shared)

	p := d.plan([]string{"10.0.0.1", "203.0.113.9", "route:GET /", "global"}, 0)
	for i, shared := range []bool{true, false, true, true} {
		assert.Equal(t, shared, p.Clients[i].Shared, p.Clients[i].Key)
	}
}

func TestAKeyOfAnUnknownClassIsNotOfferedForABan(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		d := newDashboard(t, Options{ShowKeys: true})
		for i := range 100 { // as many as the page knows the keys of
			d.Observe(observed(&middleware.RuleInfo{Name: fmt.Sprint("rule ", i)}, "a", false))
		}
		time.Sleep(15 * time.Second)
		rule := &middleware.RuleInfo{Name: "one more"}
		for range 64 {
			o := observed(rule, "10.0.0.1", false)
			o.Rules[0].Class = keyfunc.InDoubt
			d.Observe(o)
		}
		f := said(d, rule)
		require.Len(t, f.Known, 1)
		assert.True(t, f.Known[0].Shared)
	})
}

func TestRowsSayHowManyAreInProgressAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
			{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(100)},
			{Name: "exports", Key: keyfunc.Global, Limit: limiter.AtOnce(2).Queue(5, time.Minute)},
		}}))
		d := newDashboard(t, Options{Authorize: func(*http.Request) bool { return true }})
		d.Add(l)
		rows, _ := d.rows(failover.Stats{})
		assert.Equal(t, "2 at once", rows[1].Limit)
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) })
		}
		synctest.Wait()
		assert.Equal(t, [][3]int{{1, 2, 1}}, d.places(rows))
		wg.Wait()
		assert.Empty(t, d.places(rows))
	})
}

func TestRowsSayHowManyUnitsWereReserved(t *testing.T) {
	l := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
		{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(100)},
		{Name: "tokens", Key: keyfunc.Global, Limit: limiter.PerHour(100), Cost: middleware.Reserve(func(*http.Request) int64 { return 30 })},
	}}))
	d := newDashboard(t, Options{Authorize: func(*http.Request) bool { return true }})
	d.Add(l)
	rows, _ := d.rows(failover.Stats{})
	assert.Empty(t, d.units(rows))
	l.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, [][4]uint64{{1, 30, 0, 30}}, d.units(rows))
}
