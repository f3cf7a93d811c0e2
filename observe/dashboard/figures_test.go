package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
)

// figures are what the page is given, as far as tests look at it.
type figures struct {
	Second  int
	Verdict struct {
		Level, Text, Detail string
		Findings            []struct {
			Rule, Text string
			Known      []struct {
				Key     string
				Claimed bool
				Senders []string
			}
		}
	}
	Store struct {
		Bad         bool
		Text, Error string
	}
	Bans struct {
		Total int
		Error string
		List  []struct {
			Key, Name, Rule, Reason, By string
			Until, Since                int64
		}
	}
	Top []struct {
		Rule           string
		Asked, Refused int
		Most, Busiest  []struct {
			Key            string
			Whole          bool
			Asked, Refused struct{ N int }
		}
	}
	Overload *struct {
		Places []struct {
			Route                             string
			Limit, InFlight, Waiting, Streams int
		}
		More   int
		Levels []struct {
			Name           string
			Overloaded     bool
			Admitted, Shed int
		}
	}
	Unlisted struct{ Rules, Unfollowed int }
	Rows     []struct {
		Rule, Tier, Limit, For, OnOutage, Outage string
		Shadow                                   bool
	}
	Hidden int
	Acts   bool
	Names  []string
	Series []struct {
		Row            int
		Asked, Refused []int
	}
	History [][]int
}

// figures are the present ones.
func (s *service) figures() (f figures) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, accepting("application/json"))
	require.Equal(s.t, http.StatusOK, w.Code)
	var said struct {
		Acts  bool
		State figures
	}
	require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &said))
	said.State.Acts = said.Acts
	return said.State
}

func sum(list []int) (n int) {
	for _, m := range list {
		n += m
	}
	return n
}

func TestTheFiguresAreWhatHappened(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{ShowKeys: true})
		for range 15 {
			s.send("GET", "/", "198.51.100.1", "acme")
		}
		for range 8 {
			s.send("POST", "/login", "198.51.100.2", "")
		}
		require.NoError(t, s.bans.Ban(t.Context(), "203.0.113.9", 0))
		s.send("GET", "/", "203.0.113.9", "")
		time.Sleep(time.Second)

		f := s.figures()
		of := map[string]int{}
		for i, row := range f.Rows {
			of[row.Rule+row.Tier] = i
		}
		assert.Equal(t, "60/1m token-bucket burst 10", f.Rows[of["tenant"]].Limit)
		assert.Equal(t, "POST /login", f.Rows[of["login"]].For)
		assert.Equal(t, "default", f.Rows[of["rest"]].For)
		assert.Equal(t, "closed", f.Rows[of["login"]].OnOutage)
		assert.True(t, f.Rows[of["strict"]].Shadow)
		assert.Contains(t, of, "tenantpremium")

		for _, series := range f.Series {
			want, seen := map[int][2]int{of["tenant"]: {15, 5}, of["login"]: {8, 3}, of["ip"]: {23, 0}, of["strict"]: {23, 13}, of["rest"]: {15, 0}}[series.Row], len(series.Asked)-1
			assert.Equal(t, want, [2]int{series.Asked[seen], series.Refused[seen]}, f.Rows[series.Row].Rule)
			assert.Equal(t, want[1], sum(series.Refused))
		}
		for i, name := range f.Names {
			assert.Len(t, f.History[i], 300)
			want := map[string]int{"allowed": 15, "refused": 8, "banned": 1}
			assert.Equal(t, want[name], sum(f.History[i]), name)
		}
		require.NotEmpty(t, f.Top)
		for _, top := range f.Top {
			if top.Rule == "tenant" {
				assert.Equal(t, 5, top.Refused)
				assert.Equal(t, "header:X-Tenant:acme", top.Most[0].Key)
				assert.Equal(t, 5, top.Most[0].Refused.N)
				assert.True(t, top.Most[0].Whole)
			}
		}
		assert.Equal(t, 1, f.Bans.Total)
		assert.Equal(t, "counts in this process", f.Store.Text)
	})
}

func TestKeysAreDigestsUnlessTheyAreToBeShown(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		for range 100 {
			s.send("GET", "/", "198.51.100.1", "acme")
		}
		require.NoError(t, s.bans.Ban(t.Context(), "203.0.113.9", 0))
		time.Sleep(time.Second)
		w := httptest.NewRecorder()
		s.mux.ServeHTTP(w, accepting("application/json"))
		for _, key := range []string{"acme", "198.51.100.1", "203.0.113.9"} {
			assert.NotContains(t, w.Body.String(), key)
		}
		digest := keyfunc.NewDigester(nil).Digest("header:X-Tenant:acme").String()
		assert.Contains(t, w.Body.String(), "1 client causes all of its refusals: "+digest+".", "the verdict names it so")
	})
}

func TestTheVerdictTellsOneNoisyClientFromManyAndFromAnOutage(t *testing.T) {
	for name, tt := range map[string]struct {
		load  func(s *service, i int)
		level string
		says  []string
	}{
		"nobody": {func(*service, int) {}, "idle", []string{"No requests"}},
		"good clients": {func(s *service, i int) { s.good(i) }, "good",
			[]string{"All is well: 20 requests a second in the last 10 s, none refused."}},
		"good clients and few that are banned": {func(s *service, i int) {
			_ = s.bans.Ban(s.t.Context(), "203.0.113.9", 0)
			s.good(i)
			if i%25 == 0 {
				s.send("GET", "/", "203.0.113.9", "")
			}
		}, "good", []string{"All is well: 21 requests a second in the last 10 s, none refused, 3.8% did not pass for other reasons."}},
		"a noisy tenant": {func(s *service, i int) { s.good(i); s.noisy() }, "warning",
			[]string{"nearly all by tenant", "1 client causes all of its refusals: header:X-Tenant:acme."}},
		"an attacker who rotates keys": {func(s *service, i int) { s.good(i); s.attack() }, "warning",
			[]string{"nearly all by login", "One counter for everybody, and ", " cause its refusals: a crowd, or an attacker who rotates keys."}},
		"a limit that is too low": {func(s *service, i int) {
			for j := range 4 {
				n := (4*i + j) % 40
				s.send("GET", "/", fmt.Sprint("198.51.100.", n), fmt.Sprint("tenant-", n))
			}
		}, "warning", []string{"by tenant", " cause its refusals: the limit is too low"}},
		"banned clients": {func(s *service, i int) {
			_ = s.bans.Ban(s.t.Context(), "203.0.113.9", 0)
			s.good(i)
			s.send("GET", "/", "203.0.113.9", "")
		}, "warning", []string{"50% of 40 requests a second in the last 10 s come from banned clients."}},
		"clients without a key": {func(s *service, i int) { s.good(i); s.send("GET", "/internal", "198.51.100.1", "") }, "warning",
			[]string{"50% of 40 requests a second in the last 10 s do not pass, as they have no key."}},
		"banned ones and noisy ones": {func(s *service, i int) {
			_ = s.bans.Ban(s.t.Context(), "203.0.113.9", 0)
			s.good(i)
			s.send("GET", "/", "203.0.113.9", "")
			s.send("GET", "/", "203.0.113.9", "")
			s.attack()
		}, "warning", []string{"50% of 80 requests a second in the last 10 s come from banned clients. 18.8% are refused, nearly all by login."}},
		"five attackers": {func(s *service, i int) { s.good(i); s.send("GET", "/", "203.0.113.9", fmt.Sprint("evil-", i%5)) }, "warning",
			[]string{"5 clients cause all of its refusals: header:X-Tenant:evil-0, header:X-Tenant:evil-1, header:X-Tenant:evil-2 and 2 more."}},
		"two attackers at everybody's counter": {func(s *service, i int) { s.good(i); s.send("POST", "/login", fmt.Sprint("203.0.113.", i%2), "") }, "warning",
			[]string{"and 2 clients cause all of its refusals: 203.0.113.0 and 203.0.113.1."}},
		"one of several at everybody's counter": {func(s *service, i int) {
			s.good(i)
			s.send("POST", "/login", "203.0.113.0", "")
			if i%3 == 0 {
				s.attack()
			}
		}, "warning", []string{"One counter for everybody, and 1 client causes 7", "% of its refusals: 203.0.113.0."}},
		"one who is noisy after another": {func(s *service, i int) {
			switch {
			case i < 140:
				s.noisy()
				s.noisy()
			default:
				s.send("GET", "/", "203.0.113.10", "emca")
			}
		}, "warning", []string{"2 clients cause all of its refusals: header:X-Tenant:acme and header:X-Tenant:emca."}},
	} {
		t.Run(name, func(t *testing.T) {
			phase.Test(t, func(t *testing.T) {
				s := start(t, dashboard.Options{ShowKeys: true})
				for i := range 20 * 12 {
					tt.load(s, i)
					time.Sleep(50 * time.Millisecond)
				}
				v := s.figures().Verdict
				assert.Equal(t, tt.level, v.Level)
				text := fmt.Sprint(v)
				for _, want := range tt.says {
					assert.Contains(t, text, want)
				}
			})
		})
	}
}

// down is a store that counts, as its outage policies say.
type down struct {
	limiter.Store
	last error
}

func (d *down) Health() failover.Stats {
	return failover.Stats{Degraded: d.last != nil, DegradedFor: time.Minute, LastError: d.last, Replicas: 4}
}

func TestAnOutageShowsWhoIsRefusedAndTheStoresLastError(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		memory := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
		store := &down{Store: memory}
		s := start(t, dashboard.Options{ShowKeys: true, Store: store})
		for i := range 20 * 12 {
			if i == 10*12 {
				store.last = assert.AnError
			}
			s.noisy()
			time.Sleep(50 * time.Millisecond)
		}
		f := s.figures()
		assert.Equal(t, "bad", f.Verdict.Level)
		assert.Equal(t, assert.AnError.Error(), f.Store.Error)
		require.Len(t, f.Verdict.Findings, 1)
		assert.Contains(t, f.Verdict.Findings[0].Text, "1 client causes all of its refusals: header:X-Tenant:acme.")

		outage := map[string]string{}
		for _, row := range f.Rows {
			outage[row.Rule] = row.Outage
		}
		assert.Equal(t, "counts by itself: this process allows 150/1m", outage["ip"])
		assert.Equal(t, "refuses nothing, as always", outage["strict"])
		assert.Equal(t, "answers all requests with 503", outage["login"])

		assert.Greater(t, f.Top[len(f.Top)-1].Refused, f.Top[0].Refused)
		assert.Equal(t, "strict", f.Top[len(f.Top)-1].Rule, "it refuses nothing")
	})
}

func TestWhoseKeysAreNotListedIsSaid(t *testing.T) {
	page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody}))
	for i := range 110 {
		page.Observe(&middleware.Observation{Rules: []middleware.RuleResult{{Rule: &middleware.RuleInfo{Name: fmt.Sprint("thing ", i)}, Key: "a"}}})
	}
	f := (&service{t: t, page: page, mux: page}).figures()
	assert.Len(t, f.Top, 24)
	assert.Equal(t, 100-24, f.Unlisted.Rules)
	assert.Equal(t, 110-100, f.Unlisted.Unfollowed)
}

// undecided is a store that gives no answer.
type undecided struct{ limiter.Store }

func (undecided) Decide(ctx context.Context, _ []limiter.Charge) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return assert.AnError
}

func TestAStoreThatCannotDecideIsBadUntilItCan(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		store := undecided{}
		page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody}))
		limits := middleware.Must(middleware.New(middleware.Config{Observer: page, Store: store, Logger: slog.New(slog.DiscardHandler),
			Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: limiter.PerMinute(5)}}}))
		page.Add(limits)
		s := &service{t: t, page: page, mux: page}

		r := httptest.NewRequest("GET", "/", nil)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		limits.Enter(httptest.NewRecorder(), r.WithContext(gone), nil)
		time.Sleep(time.Second)
		assert.False(t, s.figures().Store.Bad, "a client that went away is no outage")

		limits.Enter(httptest.NewRecorder(), r, nil)
		time.Sleep(time.Second)
		f := s.figures()
		assert.True(t, f.Store.Bad)
		assert.Contains(t, f.Store.Error, assert.AnError.Error())
		assert.Equal(t, "bad", f.Verdict.Level)
		assert.Contains(t, f.Verdict.Detail, "503")
		time.Sleep(10 * time.Second)
		assert.False(t, s.figures().Store.Bad)
	})
}

func TestOfThousandsOfRulesSomeAreShownAndTheRestIsCounted(t *testing.T) {
	routes := map[string][]middleware.Rule{}
	for i := range 600 {
		routes[fmt.Sprintf("GET /route/%d", i)] = []middleware.Rule{{Name: fmt.Sprint("route ", i), Key: keyfunc.Global, Limit: limiter.PerMinute(5)}}
	}
	page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody}))
	limits := middleware.Must(middleware.New(middleware.Config{Observer: page, ByRoute: routes}))
	page.Add(limits, limits)
	f := (&service{t: t, page: page, mux: page}).figures()
	assert.Len(t, f.Rows, 500)
	assert.Equal(t, 100, f.Hidden, "a limiter that is added twice has its rules once")
}

// panicking is a list of bans that is not well.
type panicking struct{ bans.List }

func (panicking) All(context.Context) ([]bans.Ban, error) { panic("not well") }

func TestAPanicOfOnesOwnCodeDoesNotLockThePage(t *testing.T) {
	page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Bans: panicking{}}))
	for range 2 {
		assert.PanicsWithValue(t, "not well", func() { page.ServeHTTP(httptest.NewRecorder(), accepting("application/json")) })
	}
}

func TestManyMayLookWhileRequestsAreCounted(t *testing.T) {
	s := start(t, dashboard.Options{ShowKeys: true})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 50 {
				switch g {
				case 0:
					s.figures()
				case 1:
					s.do(`{"action":"ban","key":"203.0.113.9"}`)
					s.do(`{"action":"look","rule":"ip","key":"203.0.113.9"}`)
					s.do(`{"action":"unban","key":"203.0.113.9"}`)
				default:
					s.good(i)
					s.noisy()
					s.attack()
				}
			}
		})
	}
	all.Wait()
}

func TestFiguresAreMadeOnceASecondHoweverManyAsk(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		w := &watched{}
		s.page.FollowRules(w)
		for range 10 {
			s.figures()
		}
		assert.Equal(t, 1, w.asked)
		time.Sleep(time.Second)
		s.figures()
		assert.Equal(t, 2, w.asked)
	})
}
