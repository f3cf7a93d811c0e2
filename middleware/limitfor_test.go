package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// plans is a LimitFunc that can be changed and counts its calls.
type plans struct {
	mu     sync.Mutex
	limits map[string]limiter.Allowance
	err    error
	takes  time.Duration
	calls  atomic.Int64
}

func (p *plans) limitFor(ctx context.Context, key string) (limiter.Allowance, error) {
	p.calls.Add(1)
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limits[key], p.err
}

func as(user string) func(*http.Request) {
	return func(r *http.Request) { *r = *r.WithContext(keyfunc.WithUser(r.Context(), user)) }
}

// ruleOf has a limit of 3 an hour, and what p says.
func ruleOf(p *plans) middleware.Rule {
	return middleware.Rule{Name: "r", Key: keyfunc.User, Limit: logOf(3, time.Hour), LimitFor: middleware.LimitFunc(p.limitFor),
		Tiers: middleware.Tiers{"gold": logOf(30, time.Hour)}}
}

func limitOf(l *middleware.RateLimit, edits ...func(*http.Request)) (limit, remaining int64) {
	_, result := check(l, request(edits...))
	return result.Limit, result.Remaining
}

func TestAKeyMayHaveALimitOfItsOwn(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		p := &plans{limits: map[string]limiter.Allowance{"user:big": logOf(100, time.Hour)}}
		l := newLimit(t, ruleOf(p))
		for i := range 5 {
			limit, remaining := limitOf(l, as("big"))
			assert.EqualValues(t, []int64{100, int64(99 - i)}, []int64{limit, remaining})
		}
		assert.EqualValues(t, 1, p.calls.Load(), "it is asked once")
		limit, _ := limitOf(l, as("small"))
		assert.EqualValues(t, 3, limit, "nil is none of its own")
		limit, remaining := limitOf(l, as("big"), inTier("gold"))
		assert.EqualValues(t, []int64{100, 99}, []int64{limit, remaining}, "each tier counts apart, with the key's limit")
		limit, _ = limitOf(l)
		assert.EqualValues(t, 3, limit, "without a key there is none to ask for")
		assert.EqualValues(t, 2, p.calls.Load())

		results, err := l.Peek(t.Context(), "r", "user:big")
		require.NoError(t, err)
		assert.EqualValues(t, 95, results[0].Remaining)
		assert.True(t, results[0].Rule.Own)

		p.limits = map[string]limiter.Allowance{"user:big": logOf(6, time.Hour)}
		time.Sleep(time.Minute)
		_, remaining = limitOf(l, as("big"))
		assert.EqualValues(t, 0, remaining, "what was used stays used")
		require.NoError(t, l.Reset(t.Context(), "r", "user:big"))
		_, remaining = limitOf(l, as("big"))
		assert.EqualValues(t, 5, remaining)
	})
}

func TestAKeyIsAskedForOneAtATime(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		p := &plans{limits: map[string]limiter.Allowance{"user:a": logOf(1000, time.Hour)}, takes: 500 * time.Millisecond}
		l := newLimit(t, ruleOf(p))
		var wait sync.WaitGroup
		for range 50 {
			wait.Go(func() {
				limit, _ := limitOf(l, as("a"))
				assert.EqualValues(t, 1000, limit)
			})
		}
		wait.Wait()
		assert.EqualValues(t, 1, p.calls.Load())

		time.Sleep(time.Minute)
		began := time.Now()
		go limitOf(l, as("a"))
		synctest.Wait()
		limitOf(l, as("a"))
		assert.Zero(t, time.Since(began), "others do not wait while a known limit is asked for again")
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, p.calls.Load())
	})
}

func TestWhatIsKnownOfAKeyStaysWhileItCannotBeAsked(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &plans{limits: map[string]limiter.Allowance{"user:a": logOf(100, time.Hour)}}
		l := limited(t, middleware.Config{Rules: []middleware.Rule{ruleOf(p)}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		limitOf(l, as("a"))
		for _, err := range []error{errors.New("the database is down"), nil} {
			p.err, p.limits = err, map[string]limiter.Allowance{"user:a": limiter.Limit{Events: -1}}
			time.Sleep(time.Minute)
			limit, _ := limitOf(l, as("a"))
			assert.EqualValues(t, 100, limit, err)
		}
		assert.Contains(t, log.String(), "code=weir-limit-failed rule=r")
		calls := p.calls.Load()
		limitOf(l, as("a"))
		assert.Equal(t, calls, p.calls.Load(), "and it is not asked for at once again")
		p.takes = time.Hour
		time.Sleep(time.Minute)
		began := time.Now()
		limit, _ := limitOf(l, as("a"))
		assert.EqualValues(t, 100, limit)
		assert.Equal(t, time.Second, time.Since(began), "which is how long it may take")
	})
}

func TestTheRuleSaysWhatBecomesOfAKeyWhoseLimitIsNotKnown(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		p := &plans{err: errors.New("the database is down")}
		answers := func(outage limiter.Outage) (codes []int) {
			rule := ruleOf(p)
			rule.OnOutage = outage
			l := newLimit(t, rule)
			for range 5 {
				w := httptest.NewRecorder()
				passes(l, w, request(as("a")))
				codes = append(codes, w.Code)
			}
			return codes
		}
		assert.Equal(t, []int{200, 200, 200, 429, 429}, answers(limiter.FailLocal), "the limit for all")
		assert.Equal(t, []int{200, 200, 200, 200, 200}, answers(limiter.FailOpen))
		assert.Equal(t, []int{503, 503, 503, 503, 503}, answers(limiter.FailClosed))
		assert.EqualValues(t, 3, p.calls.Load(), "a failure is remembered for a second")
	})
}

func TestAPanicInLimitForLeavesNobodyWaiting(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		rule := ruleOf(&plans{})
		rule.LimitFor = middleware.LimitFunc(func(context.Context, string) (limiter.Allowance, error) { panic("no") })
		l := newLimit(t, rule)
		assert.Panics(t, func() { limitOf(l, as("a")) })
		limit, _ := limitOf(l, as("a"))
		assert.EqualValues(t, 3, limit)
	})
}

// A limit that follows the load, for weeks.
func TestALimitForMayAnswerWithAnyNumberOfLimits(t *testing.T) {
	rule := ruleOf(&plans{})
	next := int64(0)
	rule.LimitFor = middleware.LimitFunc(func(context.Context, string) (limiter.Allowance, error) {
		next++
		return limiter.PerDay(1_000_000 + next), nil
	})
	rule.OnOutage = limiter.FailClosed
	l := newLimit(t, rule)
	for i := range int64(10_000) {
		limit, remaining := limitOf(l, as(fmt.Sprint(i)))
		require.Equal(t, []int64{1_000_001 + i, 1_000_000 + i}, []int64{limit, remaining})
	}
	limit, remaining := limitOf(l, as("0"))
	require.Equal(t, []int64{1_000_001, 999_999}, []int64{limit, remaining}, "what a key has used stays used")
}

// A file whose overrides change for years, and versions of it that were refused.
func TestReloadsLeaveNoLimitBehind(t *testing.T) {
	limits := func(n, from int) middleware.LimitMap {
		m := middleware.LimitMap{}
		for i := range n {
			m[fmt.Sprint("user:", i)] = limiter.PerDay(int64(1_000 + from + i))
		}
		return m
	}
	config := func(m middleware.LimitMap) middleware.Config {
		rule := ruleOf(&plans{})
		rule.LimitFor = m
		return configOf(rule)
	}
	l, err := middleware.New(config(limits(2, 0)))
	require.NoError(t, err)
	for range 3 {
		require.ErrorContains(t, l.Reconfigure(config(limits(4097, 100_000))), "at most 4096 different limits")
	}
	for version := range 4200 {
		require.NoError(t, l.Reconfigure(config(limits(2, version))))
	}
	require.NoError(t, l.Reconfigure(config(limits(4096, 1_000_000))), "a version with as many as may be, all of them new")
	limit, _ := limitOf(l, as("4095"))
	assert.EqualValues(t, 1_000+1_000_000+4095, limit)
}

func TestAnotherLimitForIsAskedAtOnce(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		before, after := &plans{limits: map[string]limiter.Allowance{"user:a": logOf(10, time.Hour)}}, &plans{limits: map[string]limiter.Allowance{"user:a": logOf(20, time.Hour)}}
		l := newLimit(t, ruleOf(before))
		limitOf(l, as("a"))
		require.NoError(t, l.Reconfigure(configOf(ruleOf(after))))
		limit, remaining := limitOf(l, as("a"))
		assert.EqualValues(t, []int64{20, 18}, []int64{limit, remaining})
	})
}

// What the one before says when it is asked already is not what goes on for a minute.
func TestAnAnswerThatComesAfterAReloadIsAskedForAgain(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		before := &plans{limits: map[string]limiter.Allowance{"user:a": logOf(10, time.Hour)}, takes: 500 * time.Millisecond}
		after := &plans{limits: map[string]limiter.Allowance{"user:a": logOf(20, time.Hour)}}
		l := newLimit(t, ruleOf(before))
		go limitOf(l, as("a"))
		synctest.Wait()
		require.NoError(t, l.Reconfigure(configOf(ruleOf(after))))
		time.Sleep(time.Second)
		limit, _ := limitOf(l, as("a"))
		assert.EqualValues(t, 20, limit)
	})
}

// A key's own limit may be several, and slots, though the rule has none.
func TestAKeyMayHaveSeveralLimitsAndSlotsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := limiter.All(logOf(5, time.Second), logOf(6, time.Hour), limiter.AtOnce(2).Queue(1, time.Hour))
		for name, own := range map[string]middleware.LimitFor{
			"map":  middleware.LimitMap{"user:big": big},
			"func": middleware.LimitFunc((&plans{limits: map[string]limiter.Allowance{"user:big": big}}).limitFor),
		} {
			rule := middleware.Rule{Name: "r", Key: keyfunc.User, Limit: limiter.All(logOf(100, time.Hour), limiter.AtOnce(1)), LimitFor: own}
			d := deskOf(t, middleware.Config{Rules: []middleware.Rule{rule}})
			assert.Empty(t, d.begin(as("big")), name)
			assert.Empty(t, d.begin(as("big")), name)
			waits := d.begin(as("big"))
			assert.Empty(t, waits, "%s: it waits for a slot of its own", name)
			assert.Equal(t, 429, (<-d.begin(as("big"))).Code, name)
			require.NoError(t, d.l.Reconfigure(middleware.Config{Rules: []middleware.Rule{rule}}))
			d.leave <- struct{}{}
			synctest.Wait()
			assert.EqualValues(t, 2, inProgress(t, d.l, "r", "user:big"), "%s: it went on, also after a reload", name)
			d.leave <- struct{}{}
			d.leave <- struct{}{}
			synctest.Wait()
			assert.Zero(t, inProgress(t, d.l, "r", "user:big"), name)
			time.Sleep(time.Second)
			for range 3 {
				assert.Empty(t, d.begin(as("big")), name)
				d.leave <- struct{}{}
				synctest.Wait()
			}
			assert.Equal(t, 429, (<-d.begin(as("big"))).Code, "%s: six an hour", name)
			assert.Empty(t, d.begin(as("small")), "%s: another key has the rule's one slot", name)
			assert.Equal(t, 429, (<-d.begin(as("small"))).Code, name)
			d.leave <- struct{}{}
		}
	})
}

// A smallStore counts for limits of up to a hundred events.
type smallStore struct{ *limiter.Memory }

func (s smallStore) Check(q *limiter.Quota) error {
	if q.Limit().Events > 100 {
		return errors.New("more than a hundred")
	}
	return nil
}

func TestAnswersOfALimitFuncThatCannotBeAreErrors(t *testing.T) {
	five := limiter.All(logOf(1, time.Second), logOf(2, time.Minute), logOf(3, time.Hour), logOf(4, 24*time.Hour), limiter.AtOnce(1))
	for want, a := range map[string]limiter.Allowance{
		"Events is 0": limiter.Limit{}, "is a *limiter.Limit": new(limiter.Limit), "has 5 parts": five, "more than a hundred": logOf(101, time.Hour),
	} {
		var log bytes.Buffer
		rule := ruleOf(&plans{limits: map[string]limiter.Allowance{"user:a": a}})
		rule.OnOutage = limiter.FailClosed
		c := middleware.Config{
			Rules: []middleware.Rule{rule}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Store: smallStore{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))},
		}
		l := limited(t, c)
		for _, when := range []string{"at first", "after Reconfigure"} {
			w, _ := check(l, request(as("a")))
			assert.Equal(t, 503, w.Code, "%s, %s", want, when)
			require.NoError(t, l.Reconfigure(c))
		}
		assert.Contains(t, log.String(), want)
	}
}
