package middleware_test

import (
	"context"
	"errors"
	"io"
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
		h := banning(t, list, loginRule(strict))
		for _, ban := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
			assert.Equal(t, "1", hammer(t, h, 2), "not yet")
			require.Zero(t, bansIn(t, list))
			seconds := strconv.Itoa(int(ban.Seconds()))
			assert.Equal(t, seconds, hammer(t, h, 1), "the refusal that bans says until when")
			all, err := list.All(t.Context())
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.Equal(t, []any{"192.0.2.1", "login", time.Now().Add(ban), time.Now()}, []any{all[0].Key, all[0].Rule, all[0].Until, all[0].Since})

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

// banning is a service that bans for what rules refuse.
func banning(t *testing.T, list bans.List, rules ...middleware.Rule) http.Handler {
	return limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: rules}).Handler(ok)
}

func bansIn(t *testing.T, list bans.List) int {
	t.Helper()
	all, err := list.All(t.Context())
	require.NoError(t, err)
	return len(all)
}

func TestStrikesCountOnlyWithinTheirTime(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		h := banning(t, list, loginRule(strict))
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

// A broken list bans here and cannot say so elsewhere, as one in a server that is down.
type broken struct{ bans.List }

func (b broken) Escalate(ctx context.Context, key, rule string, e bans.Escalation) (bans.Ban, error) {
	ban, err := b.List.Escalate(ctx, key, rule, e)
	return ban, errors.Join(err, errors.New("connection refused"))
}

// Each is refused ten times by a rule that bans for one refusal. The tests of keyfunc.Class say which
// keys are shared or in doubt.
func TestWhoIsNotOneClientIsNeverBanned(t *testing.T) {
	fails := func(err error) keyfunc.Func { return func(*http.Request) (string, error) { return "", err } }
	for name, who := range map[string]struct {
		key   keyfunc.Func
		edits []func(*http.Request)
	}{
		"an empty key":               {fails(nil), nil},
		"no key":                     {fails(keyfunc.ErrNoKey), nil},
		"a key function that failed": {fails(errors.New("the database is down")), nil},
		"a preflight without a key":  {keyfunc.Bearer, []func(*http.Request){preflight}}, // any page has browsers send them
		"a shared key":               {keyfunc.Join(keyfunc.Route, keyfunc.Method), nil},
		"a network":                  {keyfunc.IP(keyfunc.Prefixes(24, 48)), nil},
		"a network of many homes":    {keyfunc.IP(keyfunc.IPv6Prefix(56)), []func(*http.Request){from("[2001:db8::1]:1")}},
		"a network, hashed":          {keyfunc.Hash([]byte("0123456789abcdef"), keyfunc.IP(keyfunc.Prefixes(24, 48))), nil},
		"a network and a route":      {keyfunc.Join(keyfunc.IP(keyfunc.Prefixes(24, 48)), keyfunc.Route), nil},
		"a header":                   {keyfunc.Header("X-Tenant"), []func(*http.Request){header("X-Tenant", "acme")}},
		"a header, hashed":           {keyfunc.Hash([]byte("0123456789abcdef"), keyfunc.Header("X-Tenant")), []func(*http.Request){header("X-Tenant", "acme")}},
		"a header and a network":     {keyfunc.JoinPresent(keyfunc.IP(keyfunc.Prefixes(24, 48)), keyfunc.Header("X-Tenant")), []func(*http.Request){header("X-Tenant", "acme")}},
		"a header before an address": {keyfunc.First(keyfunc.Header("X-Tenant"), keyfunc.IP()), []func(*http.Request){header("X-Tenant", "acme")}},
		"a cookie":                   {keyfunc.Cookie("session"), []func(*http.Request){header("Cookie", "session=8f3a")}},
		"a query":                    {keyfunc.Query("tenant"), []func(*http.Request){func(r *http.Request) { r.URL.RawQuery = "tenant=acme" }}},
		"a path":                     {keyfunc.PathValue("id"), []func(*http.Request){func(r *http.Request) { r.SetPathValue("id", "7") }}},
		"a body": {keyfunc.JSONField("account", 100), []func(*http.Request){func(r *http.Request) {
			r.Method, r.Body = "POST", io.NopCloser(strings.NewReader(`{"account":"jane"}`))
		}}},
		"a key in doubt": {keyfunc.IP(keyfunc.TrustHops(2)), []func(*http.Request){from("10.0.0.1:1"), header("X-Forwarded-For", "198.51.100.7")}},
	} {
		phase.Run(t, name, func(t *testing.T) {
			list := bansOf(t)
			rule := middleware.Rule{Name: "r", Key: who.key, Limit: limiter.PerHour(1), Escalate: first}
			hammer(t, banning(t, list, rule), 10, append(who.edits, routedBy("GET /x"))...)
			assert.Zero(t, bansIn(t, list))
		})
	}
}

func TestARuleThatCannotBanItsKeysSaysSoOnce(t *testing.T) {
	for class, key := range map[string]keyfunc.Func{
		"network": keyfunc.IP(keyfunc.Prefixes(24, 48)),
		"claimed": keyfunc.Header("X-Tenant"),
		"shared":  keyfunc.Method,
	} {
		for _, outcomes := range []bool{false, true} {
			logger, log := logged()
			e := first
			e.Outcomes = outcomes
			rule := middleware.Rule{Name: "r", Key: key, Limit: limiter.PerHour(1).With(limiter.SlidingLog), Escalate: e}
			if outcomes {
				rule.Limit, rule.Counts = plenty, middleware.Statuses(200)
			}
			h := limited(t, middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Logger: logger, Rules: []middleware.Rule{rule}}).Handler(ok)
			for range 5 {
				serve(h, request(header("X-Tenant", "acme")))
			}
			assert.Equal(t, 1, strings.Count(log.String(), "code=weir-not-banned rule=r class="+class), log.String())
		}
	}
}

func TestAClientIsBannedForRefusalsByTheRuleAlone(t *testing.T) {
	rule := loginRule(first)
	rule.Limit = limiter.PerHour(1)
	with := func(edit func(*middleware.Rule)) middleware.Rule {
		edited := rule
		edit(&edited)
		return edited
	}
	for name, test := range map[string]struct {
		rules []middleware.Rule
		bans  int
	}{
		"it refuses":                      {[]middleware.Rule{rule}, 1},
		"it will never let it pass":       {[]middleware.Rule{with(func(r *middleware.Rule) { r.Cost = middleware.CostOf(func(*http.Request) int64 { return 2 }) })}, 1},
		"it is in shadow":                 {[]middleware.Rule{with(func(r *middleware.Rule) { r.Mode = middleware.Shadow }), {Name: "other", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}, 0},
		"another one refuses":             {[]middleware.Rule{with(func(r *middleware.Rule) { r.Limit = plenty }), {Name: "other", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}, 0},
		"it refuses beside one in shadow": {[]middleware.Rule{rule, {Name: "other", Key: keyfunc.Global, Limit: limiter.PerHour(1), Mode: middleware.Shadow}}, 1},
	} {
		phase.Run(t, name, func(t *testing.T) {
			list := bansOf(t)
			h := banning(t, list, test.rules...)
			for range 10 {
				serve(h, request())
			}
			assert.Equal(t, test.bans, bansIn(t, list))
		})
	}
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

// A full list bans nobody else.
type full struct{ bans.List }

func (full) Escalate(context.Context, string, string, bans.Escalation) (bans.Ban, error) {
	return bans.Ban{}, bans.ErrFull
}

func TestARefusalStandsThoughItsBanFindsNoRoom(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		logger, log := logged()
		e := strict
		e.After = 1
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: full{bansOf(t)}}, Logger: logger, Rules: []middleware.Rule{loginRule(e)}}).Handler(ok)
		assert.Equal(t, "1", hammer(t, h, 5), "the rule's own Retry-After, and not for ever")
		assert.Contains(t, log.String(), "code=weir-ban-failed")
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
