package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
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
)

// strict bans who is refused three times in ten minutes.
var strict = bans.Escalation{After: 3, Within: 10 * time.Minute, Ban: time.Minute, Factor: 2, Max: 3 * time.Minute}

// loginRule is one that refuses a client's second request in a second, and bans.
func loginRule(e bans.Escalation) middleware.Rule {
	return middleware.Rule{Name: "login", Key: keyfunc.IP(), Limit: limiter.PerSecond(1).With(limiter.SlidingLog), Escalate: e}
}

// hammer sends requests until the n-th is refused, and returns the last refusal.
func hammer(t *testing.T, h http.Handler, n int, edits ...func(*http.Request)) (retryAfter string) {
	t.Helper()
	for n > 0 {
		w := serve(h, request(edits...))
		if w.Code == 200 {
			continue
		}
		n--
		require.Equal(t, 429, w.Code)
		retryAfter = w.Header().Get("Retry-After")
	}
	return retryAfter
}

func TestWhoIsRefusedAgainAndAgainIsBannedEachTimeForLonger(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{loginRule(strict)}}).Handler(ok)
		for _, ban := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
			assert.Equal(t, "1", hammer(t, h, 2), "not yet")
			require.Zero(t, bansIn(t, list))
			seconds := strconv.Itoa(int(ban.Seconds()))
			assert.Equal(t, seconds, hammer(t, h, 1), "the refusal that bans says until when")

			w := serve(h, request())
			assert.Equal(t, 403, w.Code)
			assert.Equal(t, seconds, w.Header().Get("Retry-After"))
			assert.Equal(t, 200, serve(h, request(from("192.0.2.2:1"))).Code, "others are not banned")

			time.Sleep(ban - time.Microsecond)
			w = serve(h, request())
			assert.Equal(t, 403, w.Code)
			assert.Equal(t, "1", w.Header().Get("Retry-After"))
			time.Sleep(time.Microsecond)
			assert.Equal(t, 200, serve(h, request()).Code)
		}
	})
}

func bansIn(t *testing.T, list bans.List) int {
	t.Helper()
	all, err := list.All(t.Context())
	require.NoError(t, err)
	return len(all)
}

func TestABanSaysWhoseItIs(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{loginRule(strict)}}).Handler(ok)
		hammer(t, h, 3)
		all, err := list.All(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []bans.Ban{{Key: "192.0.2.1", Rule: "login", Until: time.Now().Add(time.Minute), Times: 1, Since: time.Now()}}, all)
	})
}

func TestStrikesCountOnlyWithinTheirTime(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{loginRule(strict)}}).Handler(ok)
		hammer(t, h, 1)
		for range 5 {
			time.Sleep(5 * time.Minute)
			hammer(t, h, 1)
		}
		assert.Zero(t, bansIn(t, list), "two in any ten minutes")
		time.Sleep(5*time.Minute - time.Microsecond)
		hammer(t, h, 1)
		assert.Equal(t, 1, bansIn(t, list))
	})
}

func TestWithoutFactorAndMaxABanDoublesUpToADay(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{loginRule(bans.Escalation{After: 1, Within: time.Minute, Ban: 7 * time.Hour})}}).Handler(ok)
		for _, hours := range []int{7, 14, 24, 24} {
			assert.Equal(t, strconv.Itoa(hours*3600), hammer(t, h, 1))
			time.Sleep(time.Duration(hours) * time.Hour)
		}
		h = limited(t, middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{loginRule(bans.Escalation{After: 1, Within: time.Minute, Ban: 48 * time.Hour})}}).Handler(ok)
		assert.Equal(t, strconv.Itoa(48*3600), hammer(t, h, 1))
	})
}

func TestARefusalThatHasNoEndStillBans(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rule := loginRule(strict)
		rule.Cost = middleware.CostOf(func(*http.Request) int64 { return 2 })
		list := bansOf(t)
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{rule}}).Handler(ok)
		assert.Empty(t, hammer(t, h, 3))
		assert.Equal(t, 1, bansIn(t, list))
	})
}

func TestOnlyTheRuleThatRefusedStrikes(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		counted := loginRule(bans.Escalation{After: 1, Within: time.Minute, Ban: time.Minute})
		counted.Limit = plenty
		other := middleware.Rule{Name: "other", Limit: limiter.PerHour(1)}
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{counted, other}}).Handler(ok)
		hammer(t, h, 10)
		assert.Zero(t, bansIn(t, list))
	})
}

func TestARuleInShadowStrikesNobodyBesideOneThatDoes(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		shadow := loginRule(bans.Escalation{After: 1, Within: time.Minute, Ban: time.Minute})
		shadow.Name, shadow.Mode = "shadow", middleware.Shadow
		meant := loginRule(strict)
		meant.Limit = limiter.PerHour(1)
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{shadow, meant}}).Handler(ok)
		hammer(t, h, 2)
		assert.Zero(t, bansIn(t, list))
		hammer(t, h, 1)
		assert.Equal(t, 1, bansIn(t, list))
	})
}

func TestRequestsWithoutAKeyAreNeverBanned(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for _, err := range []error{nil, keyfunc.ErrNoKey, errors.New("the database is down")} {
			rule := loginRule(bans.Escalation{After: 1, Within: time.Minute, Ban: time.Minute})
			rule.Key = func(*http.Request) (string, error) { return "", err }
			list := bansOf(t)
			h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{rule}}).Handler(ok)
			hammer(t, h, 5)
			assert.Zero(t, bansIn(t, list))
		}
	})
}

// A broken list bans here and cannot say so elsewhere, as one in a server that is down.
type broken struct{ bans.List }

func (b broken) Escalate(ctx context.Context, key, rule string, e bans.Escalation) (bans.Ban, error) {
	ban, err := b.List.Escalate(ctx, key, rule, e)
	return ban, errors.Join(err, errors.New("connection refused"))
}

func TestABanThatIsKnownOnlyHereHolds(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		e := strict
		e.After = 1
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: broken{bansOf(t)}}, Logger: logger, Rules: []middleware.Rule{loginRule(e)}}).Handler(ok)
		assert.Equal(t, "60", hammer(t, h, 1))
		assert.Equal(t, 403, serve(h, request()).Code)
		hammer(t, h, 1, from("192.0.2.2:1"))
		assert.Equal(t, 1, strings.Count(log.String(), "code=weir-ban-failed"))
		assert.Contains(t, log.String(), `rule=login error="connection refused"`)
		assert.NotContains(t, log.String(), "192.0.2", "keys are not logged")
	})
}

func TestAStoreThatCannotCountStrikesStillRefuses(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		list := bansOf(t)
		store := &spy{fails: func(_ context.Context, charges []limiter.Charge) error {
			if charges[0].Quota.Rule() != "login" {
				return errors.New("connection refused")
			}
			return nil
		}}
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Store: store, Logger: logger, Rules: []middleware.Rule{loginRule(strict)}}).Handler(ok)
		assert.Equal(t, "1", hammer(t, h, 5))
		assert.Zero(t, bansIn(t, list))
		assert.Contains(t, log.String(), "code=weir-store-failed")
	})
}

func TestAProcessBansNobodyOnItsShareOfTheStrikes(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for replicas, want := range map[int]int{1: 1, 2: 0, 10: 0} {
			list := bansOf(t)
			store := failover.Must(failover.New(brokenStore{}, failover.Options{Replicas: replicas, OnDegraded: func(failover.Event) {}}))
			rule := loginRule(strict)
			rule.Limit = limiter.PerHour(1)
			h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Store: store, Rules: []middleware.Rule{rule}}).Handler(ok)
			hammer(t, h, 2)
			assert.Zero(t, bansIn(t, list), "with %d replicas", replicas)
			hammer(t, h, 1)
			assert.Equal(t, want, bansIn(t, list), "with %d replicas", replicas)
		}
	})
}

func TestStrikesOfManyAtOnceMakeOneBan(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		l := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{loginRule(strict)}})
		var group sync.WaitGroup
		for range 40 {
			group.Go(func() { serve(l.Handler(ok), request()) })
		}
		group.Wait()
		ban, ok := list.Find("192.0.2.1")
		require.True(t, ok)
		assert.Equal(t, 1, ban.Times)
		assert.Equal(t, time.Minute, time.Until(ban.Until))
	})
}

func TestRulesThatBanLookTheirKeysUpForEveryRequest(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		rule := loginRule(strict)
		l := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, ByRoute: map[string][]middleware.Rule{"POST /login": {rule}}})
		require.NoError(t, list.Ban(t.Context(), "192.0.2.1", 0))
		assert.Equal(t, 403, serve(l.Handler(ok), request(routedBy("/other"))).Code)

		l = limited(t, middleware.Config{Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.User}}, ByRoute: map[string][]middleware.Rule{"POST /login": {rule}}})
		assert.Equal(t, 200, serve(l.Handler(ok), request(routedBy("/other"))).Code, "Bans.Keys say which are, if there are any")
	})
}
