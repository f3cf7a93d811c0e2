package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// What is unknown about a request is never taken for "not banned" or "not limited", and no
// client is banned for what others did.

// twice sends a header with two different values.
func twice(name, one, other string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = []string{one, other} }
}

// first bans a key at its first refusal.
var first = bans.Escalation{After: 1, Within: time.Hour, Ban: time.Hour}

// The tests of keyfunc say which keys are ambiguous.
func TestASecondCredentialIsNoWayAroundABan(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		key, list := keyfunc.APIKey("X-Api-Key"), bansOf(t)
		rule := middleware.Rule{Name: "r", Key: key, NoKey: middleware.NoKeySkip, Limit: plenty, Escalate: first}
		byList := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{rule}}).Handler(ok)
		one, two := header("X-Api-Key", "mallory"), twice("X-Api-Key", "mallory", "x")
		assert.Equal(t, 400, serve(byList, request(two)).Code, "while nothing is banned the rule says so")
		require.NoError(t, list.Ban(t.Context(), "apikey:mallory", 0))
		assert.Equal(t, 403, serve(byList, request(one)).Code)
		assert.Equal(t, 400, serve(byList, request(two)).Code)
		assert.Equal(t, 200, serve(byList, request()).Code, "no credential is not an ambiguous one")
	})
}

func TestABanIsFoundBesideAKeyThatCannotBeRead(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.APIKey("X-Api-Key"), keyfunc.IP()}}}).Handler(ok)
		require.NoError(t, list.Ban(t.Context(), "192.0.2.1", 0))
		assert.Equal(t, 403, serve(h, request(twice("X-Api-Key", "a", "b"))).Code)
		assert.Equal(t, 400, serve(h, request(twice("X-Api-Key", "a", "b"), from("192.0.2.2:1"))).Code)
	})
}

func TestAnAmbiguousKeyIsABadRequestWhateverTheRuleSays(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for noKey := range middleware.NoKeyUnauthorized + 1 {
			for _, outage := range []limiter.Outage{limiter.FailLocal, limiter.FailOpen, limiter.FailClosed} {
				key := keyfunc.JoinPresent(keyfunc.IP(), keyfunc.Header("X-Device"))
				h := newLimit(t, middleware.Rule{Name: "r", Key: key, NoKey: noKey, OnOutage: outage, Limit: plenty}).Handler(ok)
				w := serve(h, request(twice("X-Device", "s3cr3t", "s3cr3t2")))
				assert.Equal(t, 400, w.Code)
				assert.NotContains(t, w.Body.String(), "s3cr3t")
				assert.Equal(t, 200, serve(h, request(header("X-Device", "d"))).Code)
			}
		}
	})
}

func TestAFailingKeyFunctionIsWhatTheRuleSaysOfAnOutage(t *testing.T) {
	failing := func(*http.Request) (string, error) { return "", errors.New("the database is down") }
	for _, tt := range []struct {
		outage limiter.Outage
		codes  []int
		banned int // the status while another key is banned
	}{
		{limiter.FailLocal, []int{200, 429}, 503},
		{limiter.FailOpen, []int{200, 200}, 200},
		{limiter.FailClosed, []int{503, 503}, 503},
	} {
		phase.Run(t, tt.outage.String(), func(t *testing.T) {
			list := bansOf(t)
			rule := middleware.Rule{Name: "r", Key: failing, OnOutage: tt.outage, Limit: limiter.PerHour(1), Escalate: first}
			h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{rule}}).Handler(ok)
			for i, want := range tt.codes {
				w := serve(h, request())
				assert.Equal(t, want, w.Code)
				assert.Equal(t, tt.outage == limiter.FailLocal, w.Header().Get("X-RateLimit-Limit") != "", "request %d: what is not counted has no figures", i)
			}
			require.Zero(t, bansIn(t, list))
			require.NoError(t, list.Ban(t.Context(), "192.0.2.77", 0))
			assert.Equal(t, tt.banned, serve(h, request()).Code)
		})
	}
}

func TestWhatIsInDoubtIsCountedOnTheProxy(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		key := keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8"))
		l := newLimit(t, middleware.Rule{Name: "r", Key: key, Limit: limiter.PerHour(5)})
		require.Equal(t, 200, serve(l.Handler(ok), request(from("10.0.0.1:1"), header("X-Forwarded-For", "unknown"))).Code)
		for _, text := range []string{"10.0.0.1", keyfunc.InDoubt.Mark("10.0.0.1")} {
			left, err := l.Peek(t.Context(), "r", text)
			require.NoError(t, err)
			assert.EqualValues(t, 4, left[0].Remaining)
		}
		require.NoError(t, l.Reset(t.Context(), "r", keyfunc.InDoubt.Mark("10.0.0.1")))
		left, err := l.Peek(t.Context(), "r", "10.0.0.1")
		require.NoError(t, err)
		assert.EqualValues(t, 5, left[0].Remaining)
	})
}

// A crowded store has no room for any key.
type crowded struct{ spy }

func (c *crowded) Decide(ctx context.Context, charges []limiter.Charge) error {
	err := c.spy.Decide(ctx, charges)
	for i := range charges {
		charges[i].Decision.Overflow = charges[i].Quota.Rule() == "login"
	}
	return err
}

func TestARefusalFromASharedCounterStrikesNobody(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		list := bansOf(t)
		store := &crowded{}
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Store: store, Rules: []middleware.Rule{loginRule(strict)}}).Handler(ok)
		hammer(t, h, 10)
		assert.Zero(t, bansIn(t, list))
		for _, c := range store.charged {
			assert.Equal(t, "login", c.Quota.Rule(), "nor is a strike counted that could come due later")
		}
	})
}

// A distant store notices when a client has gone, as one in a server does.
type distant struct{ spy }

func (d *distant) Decide(ctx context.Context, charges []limiter.Charge) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.spy.Decide(ctx, charges)
}

func TestAClientThatHangsUpIsBannedAsInMemory(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for name, store := range map[string]limiter.Store{"in memory": nil, "elsewhere": &distant{}} {
			list := bansOf(t)
			h := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Store: store, Rules: []middleware.Rule{loginRule(strict)}}).Handler(ok)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for range 10 {
				serve(h, request(func(r *http.Request) { *r = *r.WithContext(ctx) }))
			}
			assert.Equal(t, 1, bansIn(t, list), name)
			assert.Equal(t, 403, serve(h, request()).Code, name)
		}
	})
}

func TestARequestsDeadlineHoldsForCountsThatMustBeTaken(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var deadline time.Time
		store := &spy{fails: func(ctx context.Context, _ []limiter.Charge) error {
			deadline, _ = ctx.Deadline()
			return nil
		}}
		h := limited(t, middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Store: store, Rules: []middleware.Rule{loginRule(strict)}}).Handler(ok)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.Equal(t, 200, serve(h, request(func(r *http.Request) { *r = *r.WithContext(ctx) })).Code)
		want, _ := ctx.Deadline()
		assert.Equal(t, want, deadline)
	})
}

// A function of the application's own may return what a client wrote, from the first byte, and
// not from a header: a query and a body can have any byte.
func TestNoClientMakesItsKeyOneThatIsNeverBanned(t *testing.T) {
	for _, begin := range []string{"", "\x00", "\x00shared:", "\x00in-doubt:"} {
		l := limited(t, middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{{
			Name: "r", Limit: limiter.PerHour(1), Escalate: first,
			Key: func(r *http.Request) (string, error) { return r.URL.Query().Get("id"), nil },
		}}}).Handler(ok)
		mallory := func(r *http.Request) { r.URL.RawQuery = url.Values{"id": {begin + "mallory"}}.Encode() }
		assert.Equal(t, []int{200, 429, 403}, statuses(l, 3, mallory), "%q", begin)
	}
}
