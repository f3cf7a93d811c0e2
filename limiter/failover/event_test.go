package failover_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// logged is what f writes with slog.
func logged(t *testing.T, f func()) string {
	t.Helper()
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	f()
	slog.Default().Info("") // takes the handler's lock, and so what was written before has been
	last := strings.LastIndex(strings.TrimSuffix(log.String(), "\n"), "\n")
	return log.String()[:last+1]
}

func TestAnOutageIsLoggedUnlessThereIsAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, dead)
		for _, tt := range []struct {
			store limiter.Store
			hook  func(failover.Event)
			named string
		}{
			{inner, nil, ""}, {inner, func(failover.Event) {}, ""}, {cluster{inner}, nil, ` server="server 1"`},
		} {
			log := logged(t, func() {
				inner.is(dead)
				s := wrap(tt.store, failover.Options{OnDegraded: tt.hook})
				api := quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal)
				breakDown(t, s, charge(api, "1"))
				inner.is(fine)
				time.Sleep(3 * time.Second)
				decide(t, s, charge(api, "1"))
				synctest.Wait()
				endOutage(t, s, charge(api, "1"))
			})
			first := `level=WARN msg="weir: a call to the store's server failed: the rules' OnOutage policies decide" code=weir-call-failed` + tt.named + ` error="connection refused"` + "\n"
			if tt.hook != nil {
				assert.Equal(t, first, log)
				continue
			}
			assert.Equal(t, first+
				`level=WARN msg="weir: the store's server fails, so the rules' OnOutage policies decide" code=weir-degraded`+tt.named+` error="connection refused"`+"\n"+
				`level=INFO msg="weir: the store's server is back" code=weir-recovered`+tt.named+` after_seconds=3`+"\n", log)
		}
	})
}

func TestEachRecordGoesToTheLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own bytes.Buffer
		inner := newServer(t, dead)
		global := logged(t, func() {
			s := wrap(inner, failover.Options{Logger: slog.New(slog.NewJSONHandler(&own, nil))})
			api := quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal)
			breakDown(t, s, charge(api, "1"))
			inner.comeBack(t, s, charge(api, "1"))
			endOutage(t, s, charge(api, "1"))
			s = wrap(inner, failover.Options{
				Logger:     slog.New(slog.NewJSONHandler(&own, nil)),
				OnDegraded: func(failover.Event) { panic("no pager") },
			})
			inner.is(dead)
			breakDown(t, s, charge(api, "1"))
			synctest.Wait()
		})
		assert.Empty(t, global)
		for _, code := range []string{"weir-call-failed", "weir-degraded", "weir-recovered", "weir-hook-panic"} {
			assert.Contains(t, own.String(), `"code":"`+code+`"`)
		}
		assert.Contains(t, own.String(), `"after_seconds":2}`)
	})
}

func TestTheLastEventsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, dead)
		s := wrap(inner, failover.Options{OnDegraded: ignore})
		api := quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal)
		var began time.Time
		for range 16 {
			inner.is(dead)
			began = time.Now()
			breakDown(t, s, charge(api, "key"))
			inner.is(fine)
			time.Sleep(3 * time.Second)
			decide(t, s, charge(api, "key"))
			synctest.Wait()
			endOutage(t, s, charge(api, "key"))
		}
		told := s.Health().Events
		require.Len(t, told, 16)
		last := told[16-2:]
		assert.True(t, last[0].Degraded)
		assert.ErrorContains(t, last[0].Err, "connection refused")
		assert.Equal(t, began, last[0].At)
		assert.False(t, last[1].Degraded)
		assert.Equal(t, began.Add(time.Minute+3*time.Second), last[1].At)
		assert.Equal(t, 3*time.Second, last[1].For)
	})
}

func TestAHookMayUseTheStoreBeSlowAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, fine)
		api := quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal)
		var s *failover.Store
		var heard []bool
		s = wrap(inner, failover.Options{OnDegraded: func(e failover.Event) {
			time.Sleep(time.Hour)
			decide(t, s, charge(api, "key"))
			heard = append(heard, e.Degraded)
			panic("no pager")
		}})
		log := logged(t, func() {
			start := time.Now()
			for range 3 {
				inner.is(dead)
				breakDown(t, s, charge(api, "key"))
				inner.comeBack(t, s, charge(api, "key"))
				endOutage(t, s, charge(api, "key"))
			}
			assert.Equal(t, 3*time.Minute+6*time.Second, time.Since(start), "no request waits for it")
			time.Sleep(7 * time.Hour)
			synctest.Wait()
		})
		assert.Equal(t, []bool{true, false, true, false, true, false}, heard, "all in order, one after the other")
		assert.Contains(t, log, `level=ERROR msg="weir: OnDegraded panicked" code=weir-hook-panic panic="no pager"`)
	})
}

// A located is a cluster that knows where its parts are, and what ails those that are silent.
type located struct{ cluster }

func (l located) Diagnose(part int, err error) (string, error) {
	if _, isUnusable := err.(unusable); err != nil && !isUnusable {
		err = fmt.Errorf("%w: connection refused", err)
	}
	return fmt.Sprintf("10.0.0.%d:6379", part/2), err
}

func TestTheFirstFailureIsLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := quota(t, "api", limiter.PerMinute(100_000), limiter.FailLocal)
		inner := newServer(t, fine)
		silent := func(context.Context, string, []limiter.Charge) error { return errors.New("no answer in 50ms") }
		s := wrap(located{cluster{inner}}, failover.Options{OnDegraded: ignore})
		failing := func(times int, parts ...string) string {
			return logged(t, func() {
				inner.is(silent)
				for range times {
					for _, part := range parts {
						decide(t, s, charge(api, part))
					}
				}
				synctest.Wait()
				inner.is(fine)
				for _, part := range parts {
					decide(t, s, charge(api, part))
				}
				synctest.Wait()
			})
		}
		line := func(part int) string {
			return fmt.Sprintf(`level=WARN msg="weir: a call to the store's server failed: the rules' OnOutage policies decide" `+
				`code=weir-call-failed server=10.0.0.%d:6379 error="no answer in 50ms: connection refused"`+"\n", part/2)
		}
		assert.Equal(t, line(4), failing(1, "4"), "at the first call")
		assert.Empty(t, failing(3, "4", "5", "7"), "once, whatever part fails")
		for range 100 {
			time.Sleep(time.Second)
			assert.Empty(t, failing(3, "4"), "one that fails now and then, for hours, is not logged each time")
		}
		time.Sleep(time.Minute)
		decide(t, s, charge(api, "4")) // which ends what was reported as flaky
		synctest.Wait()
		assert.Equal(t, line(4), failing(1, "4"), "after a time without")
	})
}

func TestAnUnusableServerIsReportedOnceInEachOutage(t *testing.T) {
	for _, parts := range [][]string{{"4"}, {"4", "5"}} {
		synctest.Test(t, func(t *testing.T) { testUnusable(t, parts) })
	}
}

func testUnusable(t *testing.T, parts []string) {
	inner, heard := newServer(t, fine), &diary{}
	unfit := func(context.Context, string, []limiter.Charge) error {
		return unusable("ERR unknown command 'evalsha'")
	}
	api := quota(t, "api", limiter.PerMinute(1_000_000), limiter.FailLocal)
	s := wrap(located{cluster{inner}}, failover.Options{OnDegraded: heard.note})
	for range 2 {
		log := logged(t, func() {
			inner.is(unfit)
			for _, part := range parts {
				breakDown(t, s, charge(api, part))
			}
			for range 200 { // probes are made too
				time.Sleep(100 * time.Millisecond)
				assert.True(t, decide(t, s, charge(api, "4"))[0].Degraded, "the policies decide")
			}
			inner.is(fine)
			for _, part := range parts {
				time.Sleep(2 * time.Second)
				decide(t, s, charge(api, part))
			}
			synctest.Wait()
			endOutage(t, s, charge(api, "4"))
		})
		assert.Equal(t, `level=ERROR msg="weir: the store's server cannot do what Weir needs: a wrong configuration; until it is fixed the rules' OnOutage policies decide" `+
			`code=weir-store-unusable server=10.0.0.2:6379 error="ERR unknown command 'evalsha'"`+"\n", log)
		require.False(t, s.Health().Degraded)
	}
	events := heard.read()
	require.Len(t, events, 4)
	for i, e := range events {
		assert.True(t, e.Unusable)
		assert.Equal(t, i%2 == 0, e.Degraded, "the hook hears of it as of any outage")
	}
}

// The first calls of a rule whose commands are denied fail, and those of others do not, but for a
// call that fails now and then.
func TestAServerThatIsUnusableForSomeRulesIsSaidOnceToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, func(_ context.Context, _ string, charges []limiter.Charge) error {
			switch charges[0].Key {
			case "denied":
				return unusable("NOPERM")
			case "lost":
				return errDown
			}
			return nil
		})
		s := wrap(inner, failover.Options{})
		api := quota(t, "api", limiter.PerMinute(100_000), limiter.FailLocal)
		log := logged(t, func() {
			decide(t, s, charge(api, "lost"))
			synctest.Wait()
		})
		assert.Contains(t, log, "weir-call-failed")
		log = logged(t, func() {
			for range 1000 {
				decide(t, s, charge(api, "denied"))
				decide(t, s, charge(api, "allowed"))
				time.Sleep(time.Second)
			}
		})
		assert.Equal(t, 1, strings.Count(log, "weir-store-unusable"), log)
		assert.Equal(t, 1, strings.Count(log, "\n"), log)
	})
}

func TestWhatWasFoundOutIsToldInErrorsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, hung), &diary{}
		s := wrap(located{cluster{inner}}, failover.Options{OnDegraded: heard.note})
		login := quota(t, "login", limiter.PerMinute(10), limiter.FailClosed)
		c := charge(login, "6")
		breakDown(t, s, c)
		synctest.Wait()
		ask := func() error { return s.Decide(t.Context(), []limiter.Charge{c}) }
		for range 3 {
			assert.EqualError(t, ask(), `failover: the store's server is unavailable, and rule "login" is closed meanwhile: context deadline exceeded: connection refused`)
			time.Sleep(2 * time.Second) // a probe finds it out again
		}
		inner.is(fine)
		time.Sleep(2 * time.Second)
		assert.NoError(t, ask())
		endOutage(t, s, c)
		events := heard.read()
		require.Len(t, events, 2)
		for _, e := range events {
			assert.Equal(t, "10.0.0.3:6379", e.Server)
			assert.EqualError(t, e.Err, "context deadline exceeded: connection refused")
		}
	})
}

// A shared store has four parts on each server, and takes a second to find out more about a failure.
type shared struct{ cluster }

func (s shared) Diagnose(part int, err error) (string, error) {
	if err != nil {
		time.Sleep(time.Second)
	}
	return fmt.Sprintf("10.0.0.%d:6379", part/4), err
}

func TestAnOutageIsToldOnceHoweverManyServersAndPartsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []string{"0", "1", "2", "3", "9"}
		inner := newServer(t, downFor(all...))
		api := quota(t, "api", limiter.PerMinute(100_000), limiter.FailLocal)
		s := wrap(shared{cluster{inner}}, failover.Options{})
		log := logged(t, func() {
			for _, part := range all {
				breakDown(t, s, charge(api, part))
			}
			time.Sleep(3 * time.Second) // the first failure and the outage take two to diagnose
			require.Len(t, s.Health().Events, 1)
			for _, down := range [][]string{{"1", "9"}, {"1"}, nil} {
				require.True(t, s.Health().Degraded)
				require.Len(t, s.Health().Events, 1, "a part is still down")
				inner.is(downFor(down...))
				for range 5 {
					time.Sleep(time.Second)
					for _, part := range all {
						decide(t, s, charge(api, part))
					}
					synctest.Wait()
				}
			}
			require.False(t, s.Health().Degraded)
			endOutage(t, s, charge(api, "0"))
		})
		events := s.Health().Events
		require.Len(t, events, 2)
		assert.Equal(t, "10.0.0.0:6379", events[1].Server)
		assert.Greater(t, events[1].For, 13*time.Second)
		for _, code := range []string{"weir-call-failed", "weir-degraded", "weir-recovered"} {
			assert.Equal(t, 1, strings.Count(log, code), "%s:\n%s", code, log)
		}
	})
}

// A promoted store has a replica, which takes over before the parts answer again.
type promoted struct {
	cluster
	at *atomic.Pointer[string]
}

func (s promoted) Diagnose(_ int, err error) (string, error) { return *s.at.Load(), err }

var master, replica = "10.0.0.1:6379", "10.0.0.2:6379"

// newPromoted returns a Store around a promoted store, and a function that promotes the replica.
func newPromoted(inner *server, heard *diary) (s *failover.Store, promote func()) {
	at := &atomic.Pointer[string]{}
	at.Store(&master)
	return wrap(promoted{cluster{inner}, at}, failover.Options{OnDegraded: heard.note}), func() { at.Store(&replica) }
}

// A server that takes over may fail too, in another way, or for a part that has failed before.
func TestAnOutageEndsThoughTheServerThatTookOverFailsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, dead), &diary{}
		s, promote := newPromoted(inner, heard)
		api := quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal)
		log := logged(t, func() {
			decide(t, s, charge(api, "2"))
			breakDown(t, s, charge(api, "1"))
			synctest.Wait()
			promote()
			inner.is(func(context.Context, string, []limiter.Charge) error { return unusable("NOPERM") })
			time.Sleep(2 * time.Second)
			decide(t, s, charge(api, "1"))
			synctest.Wait()
			inner.is(dead)
			breakDown(t, s, charge(api, "2"))
			inner.comeBack(t, s, charge(api, "1"))
			inner.comeBack(t, s, charge(api, "2"))
			endOutage(t, s, charge(api, "1"))
		})
		assert.Contains(t, log, "weir-store-unusable")
		assert.Equal(t, []failover.Event{
			{Degraded: true, Server: master, Err: errDown},
			{Server: master, Err: errDown, For: 6 * time.Second},
		}, heard.read())
	})
}

// A part whose only key comes once a night is still down when its server fails again.
func TestAnOutageEndsThoughAPartIsNotAskedForLong(t *testing.T) {
	for name, err := range map[string]error{"silent": errDown, "unusable": unusable("NOPERM")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, heard := newServer(t, fine), &diary{}
				api := quota(t, "api", limiter.PerMinute(100_000), limiter.FailLocal)
				s := wrap(cluster{inner}, failover.Options{OnDegraded: heard.note})
				is := func(m mood, part string) {
					inner.is(m)
					for range 2 * s.Options().Failures {
						time.Sleep(2 * time.Second)
						decide(t, s, charge(api, part))
						synctest.Wait()
					}
				}
				down := func(context.Context, string, []limiter.Charge) error { return err }
				log := logged(t, func() {
					is(down, "1") // the quiet one
					is(down, "0")
					is(fine, "0")
					assert.Len(t, heard.read(), 1, "the quiet part may still be down")
					time.Sleep(time.Minute)
					is(fine, "0")
					assert.Len(t, heard.read(), 2, "no call has failed for a minute")
					is(down, "0")
					assert.Len(t, heard.read(), 3)
					time.Sleep(time.Minute)
					is(fine, "0")
					assert.Len(t, heard.read(), 4)
					is(down, "1")
					assert.Len(t, heard.read(), 5, "a probe failed")
					is(fine, "1")
					endOutage(t, s, charge(api, "1"))
					assert.Len(t, heard.read(), 6)
				})
				require.False(t, s.Health().Degraded)
				assert.Equal(t, 3, strings.Count(log, "\n"), log)
			})
		})
	}
}

// A curious store has a Diagnose that panics, or forgets the error.
type curious struct {
	writable
	panics bool
}

func (c curious) Diagnose(int, error) (string, error) {
	if c.panics {
		panic("oh no")
	}
	return "a server", nil
}

func TestADiagnosisThatFailsHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, panics := range []bool{false, true} {
			inner, heard := newServer(t, dead), &diary{}
			s := wrap(curious{writable{cluster{inner}}, panics}, failover.Options{OnDegraded: heard.note})
			api := quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal)
			breakDown(t, s, charge(api, "key"))
			inner.comeBack(t, s, charge(api, "key"))
			endOutage(t, s, charge(api, "key"))
			events := heard.read()
			require.Len(t, events, 2)
			for _, e := range events {
				assert.Equal(t, errDown, e.Err)
			}
			assert.False(t, s.Health().Degraded)
		}
	})
}
