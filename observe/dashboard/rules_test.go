package dashboard_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
)

// watched is a rules file of which the last load failed, or not.
type watched struct {
	err   error
	asked int
}

func (w *watched) Reloads() (loaded, refused uint64, last time.Time, err error) {
	w.asked++
	return 1, 0, time.Now(), w.err
}

func TestRulesThatAreRefusedStandInTheHeadline(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		w := &watched{}
		s.page.FollowRules(w)
		traffic := func(load func(i int)) {
			for i := range 220 {
				load(i)
				time.Sleep(50 * time.Millisecond)
			}
		}
		traffic(s.good)
		assert.Equal(t, "good", s.figures().Verdict.Level)
		w.err = errors.New("limits.yaml:3: no limit")
		traffic(s.good)
		v := s.figures().Verdict
		assert.Equal(t, "warning", v.Level)
		assert.Equal(t, "The rules as they are written now are refused: older rules are in force.", v.Text)
		assert.Contains(t, v.Detail, "All is well: 20 requests a second")
		assert.Contains(t, v.Detail, "limits.yaml:3: no limit")
		traffic(func(int) { s.noisy() })
		v = s.figures().Verdict
		assert.Contains(t, v.Text, "refused, nearly all by tenant", "the traffic comes first if there is trouble")
		assert.Contains(t, v.Detail, "The rules as they are written now are refused")
	})
}

func TestABanSaysWhatItsRuleBansFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := bans.Must(bans.New(bans.Options{}))
		page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Bans: list, ShowKeys: true}))
		escalate := bans.Escalation{After: 5, Within: 10 * time.Minute, Ban: time.Hour}
		answers := escalate
		answers.Outcomes = true
		limits := middleware.Must(middleware.New(middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{
			{Name: "search", Key: keyfunc.IP(), Limit: limiter.PerMinute(10), Escalate: escalate},
			{Name: "login", Key: keyfunc.IP(), Limit: limiter.PerMinute(10), Counts: middleware.Statuses(401, 403), Escalate: answers},
		}}))
		page.Add(limits)
		for rule, want := range map[string]string{
			"search": "refused 5 times within 10m",
			"login":  "answered 401, 403 5 times within 10m",
			"gone":   "",
		} {
			_, err := list.Escalate(t.Context(), "203.0.113.9", rule, bans.Escalation{After: 1, Within: time.Minute, Ban: time.Hour})
			require.NoError(t, err)
			time.Sleep(10 * time.Second) // bans are read every five
			shown := (&service{t: t, page: page, mux: page}).figures().Bans.List
			require.Len(t, shown, 1)
			assert.Equal(t, rule, shown[0].Rule)
			assert.Equal(t, want, shown[0].Reason)
			_, err = list.Unban(t.Context(), "203.0.113.9")
			require.NoError(t, err)
		}
	})
}
