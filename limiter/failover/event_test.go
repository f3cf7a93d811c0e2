package failover_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// A diary is a hook and a log that remember.
type diary struct {
	mu     sync.Mutex
	events []failover.Event
	log    bytes.Buffer
}

func (d *diary) note(e failover.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.At = time.Time{}
	d.events = append(d.events, e)
}

func (d *diary) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(b)
}

func (d *diary) read() []failover.Event {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]failover.Event(nil), d.events...)
}

// logged returns what was logged since the last call, without times and messages.
func (d *diary) logged() string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.log.Reset()
	return regexp.MustCompile(`time=\S+ |msg="[^"]*" `).ReplaceAllString(d.log.String(), "")
}

// options are Options whose records, and events if isHooked, are in the diary.
func (d *diary) options(isHooked bool) failover.Options {
	o := failover.Options{Logger: slog.New(slog.NewTextHandler(d, nil))}
	if isHooked {
		o.OnDegraded = d.note
	}
	return o
}

func TestAnOutageIsLoggedUnlessThereIsAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, isHooked := range []bool{false, true} {
			inner, d := newServer(t, dead), &diary{}
			s := wrap(cluster{inner}, d.options(isHooked))
			c := charge(quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal), "1")
			breakDown(t, s, c)
			inner.comeBack(t, s, c)
			endOutage(t, s, c)
			want := "level=WARN code=weir-call-failed server=\"server 1\" error=\"connection refused\"\n"
			if !isHooked {
				want += "level=WARN code=weir-degraded server=\"server 1\" error=\"connection refused\"\n" +
					"level=INFO code=weir-recovered server=\"server 1\" after_seconds=2\n"
			}
			assert.Equal(t, want, d.logged())
			events := s.Health().Events
			require.Len(t, events, 2, "in any case")
			assert.Equal(t, time.Minute+2*time.Second, events[1].At.Sub(events[0].At))
		}
	})
}

func TestAHookMayUseTheStoreBeSlowAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, d := newServer(t, fine), &diary{}
		c := charge(quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal), "key")
		var s *failover.Store
		o := d.options(false)
		o.OnDegraded = func(e failover.Event) {
			time.Sleep(time.Hour)
			decide(t, s, c)
			d.note(e)
			panic("no pager")
		}
		s = wrap(inner, o)
		start := time.Now()
		const outages = 10
		for range outages {
			inner.is(dead)
			breakDown(t, s, c)
			inner.comeBack(t, s, c)
			endOutage(t, s, c)
		}
		assert.Equal(t, outages*(time.Minute+2*time.Second), time.Since(start), "no request waits for it")
		time.Sleep((2*outages + 1) * time.Hour)
		events := d.read()
		require.Len(t, events, 2*outages)
		for i, e := range events {
			assert.Equal(t, i%2 == 0, e.Degraded, "all in order, one after the other")
		}
		assert.Contains(t, d.logged(), `level=ERROR code=weir-hook-panic panic="no pager"`)
		assert.Len(t, s.Health().Events, 16, "the last ones are kept")
	})
}

// A located is a cluster that knows where its parts are, and takes a second to find out what ails them.
type located struct{ cluster }

func (l located) Diagnose(part int, err error) (string, error) {
	time.Sleep(time.Second)
	if _, isUnusable := err.(unusable); !isUnusable {
		err = fmt.Errorf("%w: cable cut", err)
	}
	return fmt.Sprintf("10.0.0.%d:6379", part/4), err
}

func TestAnUnusableServerIsReportedOnceInEachOutage(t *testing.T) {
	for _, parts := range [][]string{{"4"}, {"4", "5"}} {
		synctest.Test(t, func(t *testing.T) {
			inner, d := newServer(t, fine), &diary{}
			api := quota(t, "api", limiter.PerMinute(1_000_000), limiter.FailLocal)
			s := wrap(located{cluster{inner}}, d.options(true))
			for range 2 {
				inner.is(func(context.Context, string, []limiter.Charge) error { return unusable("ERR no evalsha") })
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
				assert.Equal(t, "level=ERROR code=weir-store-unusable server=10.0.0.1:6379 error=\"ERR no evalsha\"\n", d.logged())
				require.False(t, s.Health().Degraded)
			}
			events := d.read()
			require.Len(t, events, 4)
			for i, e := range events {
				assert.True(t, e.Unusable)
				assert.Equal(t, i%2 == 0, e.Degraded, "the hook hears of it as of any outage")
			}
		})
	}
}

// The first calls of a rule whose commands are denied fail, and those of others do not, but for one call.
func TestAServerThatIsUnusableForSomeRulesIsSaidOnceToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs, d := map[string]error{"denied": unusable("NOPERM"), "lost": errDown}, &diary{}
		s := wrap(newServer(t, func(_ context.Context, _ string, charges []limiter.Charge) error { return errs[charges[0].Key] }), d.options(true))
		api := quota(t, "api", limiter.PerMinute(100_000), limiter.FailLocal)
		decide(t, s, charge(api, "lost"))
		assert.Equal(t, "level=WARN code=weir-call-failed error=\"connection refused\"\n", d.logged())
		for range 1000 {
			decide(t, s, charge(api, "denied"))
			decide(t, s, charge(api, "allowed"))
			time.Sleep(time.Second)
		}
		assert.Equal(t, "level=ERROR code=weir-store-unusable error=NOPERM\n", d.logged())
	})
}

func TestWhatWasFoundOutIsToldInErrorsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, d := newServer(t, hung), &diary{}
		s := wrap(located{cluster{inner}}, d.options(true))
		c := charge(quota(t, "login", limiter.PerMinute(10), limiter.FailClosed), "6")
		breakDown(t, s, c)
		ask := func() error { return s.Decide(t.Context(), []limiter.Charge{c}) }
		for range 3 {
			time.Sleep(2 * time.Second) // a probe finds it out again
			assert.EqualError(t, ask(), `failover: the store's server is unavailable, and rule "login" is closed meanwhile: context deadline exceeded: cable cut`)
		}
		inner.is(fine)
		time.Sleep(3 * time.Second)
		assert.NoError(t, ask())
		endOutage(t, s, c)
		events := d.read()
		require.Len(t, events, 2)
		for _, e := range events {
			assert.Equal(t, "10.0.0.1:6379", e.Server)
			assert.EqualError(t, e.Err, "context deadline exceeded: cable cut")
		}
	})
}

func TestAnOutageIsToldOnceHoweverManyServersAndPartsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []string{"0", "1", "2", "3", "9"}
		inner, d := newServer(t, downFor(all...)), &diary{}
		api := quota(t, "api", limiter.PerMinute(100_000), limiter.FailLocal)
		s := wrap(located{cluster{inner}}, d.options(false))
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
		events, log := s.Health().Events, d.logged()
		require.Len(t, events, 2)
		assert.Equal(t, "10.0.0.0:6379", events[1].Server)
		assert.Greater(t, events[1].For, 13*time.Second)
		for _, code := range []string{"weir-call-failed", "weir-degraded", "weir-recovered"} {
			assert.Equal(t, 1, strings.Count(log, code), "%s:\n%s", code, log)
		}
	})
}

// A part whose only key comes once a night is still down when its server fails again.
func TestAnOutageEndsThoughAPartIsNotAskedForLong(t *testing.T) {
	for name, err := range map[string]error{"silent": errDown, "unusable": unusable("NOPERM")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, d := newServer(t, fine), &diary{}
				s := wrap(cluster{inner}, d.options(true))
				api := quota(t, "api", limiter.PerMinute(100_000), limiter.FailLocal)
				down := func(context.Context, string, []limiter.Charge) error { return err }
				for _, step := range []struct {
					mood   mood
					part   string
					quiet  time.Duration
					events int
				}{
					{down, "1", 0, 1}, // the quiet one
					{down, "0", 0, 1},
					{fine, "0", 0, 1},           // the quiet part may still be down
					{fine, "0", time.Minute, 2}, // no call has failed for a minute
					{down, "0", 0, 3},
					{fine, "0", time.Minute, 4},
					{down, "1", 0, 5}, // a probe failed
					{fine, "1", 0, 5},
					{fine, "1", time.Minute, 6},
				} {
					inner.is(step.mood)
					time.Sleep(step.quiet)
					for range 10 {
						time.Sleep(2 * time.Second)
						decide(t, s, charge(api, step.part))
					}
					assert.Len(t, d.read(), step.events, "%+v", step)
				}
				require.False(t, s.Health().Degraded)
				assert.Equal(t, 3, strings.Count(d.logged(), "\n"))
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
		panic(errors.New("oh no"))
	}
	return "a server", nil
}

func TestADiagnosisThatFailsHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, panics := range []bool{false, true} {
			inner, d := newServer(t, dead), &diary{}
			s := wrap(curious{writable{cluster{inner}}, panics}, d.options(true))
			c := charge(quota(t, "api", limiter.PerMinute(1000), limiter.FailLocal), "key")
			breakDown(t, s, c)
			inner.comeBack(t, s, c)
			endOutage(t, s, c)
			events := d.read()
			require.Len(t, events, 2)
			for _, e := range events {
				assert.Equal(t, errDown, e.Err)
			}
			assert.False(t, s.Health().Degraded)
		}
	})
}
