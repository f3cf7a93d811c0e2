package failover

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/limiter"
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
	return log.String()
}

func TestAnOutageIsLoggedUnlessThereIsAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, hook := range []func(Event){nil, func(Event) {}} {
			log := logged(t, func() {
				inner := newServer(t, dead)
				s := New(inner, Options{OnDegraded: hook})
				api := quota(t, "api", limiter.PerMinute(1000), limiter.Local)
				breakDown(t, s, charge(api, "key"))
				inner.is(fine)
				time.Sleep(3 * time.Second)
				decide(t, s, charge(api, "key"))
				synctest.Wait()
			})
			if hook != nil {
				assert.Empty(t, log)
				continue
			}
			assert.Equal(t, ""+
				`level=WARN msg="weir: the store's server gives no answer, so the rules' OnOutage policies decide" code=weir-degraded part=0 error="connection refused"`+"\n"+
				`level=INFO msg="weir: the store's server is back" code=weir-recovered part=0 after=3s`+"\n", log)
		}
	})
}

func TestAHookMayUseTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newServer(t, dead)
		api := quota(t, "api", limiter.PerMinute(1000), limiter.Local)
		var s *Store
		var degraded []bool
		s = New(inner, Options{OnDegraded: func(e Event) {
			assert.Equal(t, e.Degraded, s.Stats().Degraded)
			degraded = append(degraded, decide(t, s, charge(api, "key"))[0].Degraded)
		}})
		breakDown(t, s, charge(api, "key"))
		synctest.Wait()
		inner.is(fine)
		time.Sleep(2 * time.Second)
		decide(t, s, charge(api, "key"))
		synctest.Wait()
		assert.Equal(t, []bool{true, false}, degraded)
	})
}

func TestASlowHookHoldsNothingUpAndHearsAllInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, heard := newServer(t, fine), &diary{}
		s := New(inner, Options{OnDegraded: func(e Event) {
			time.Sleep(time.Hour)
			heard.note(e)
		}})
		api := quota(t, "api", limiter.PerMinute(1000), limiter.Local)
		start := time.Now()
		for range 3 {
			inner.is(dead)
			breakDown(t, s, charge(api, "key"))
			inner.is(fine)
			time.Sleep(2 * time.Second)
			decide(t, s, charge(api, "key"))
			synctest.Wait()
		}
		assert.Equal(t, 6*time.Second, time.Since(start))
		assert.Empty(t, heard.read())
		time.Sleep(7 * time.Hour)
		for i, e := range heard.read() {
			assert.Equal(t, i%2 == 0, e.Degraded)
		}
		assert.Len(t, heard.read(), 6)
	})
}

func TestAHookThatPanicsEndsNoProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		log := logged(t, func() {
			inner := newServer(t, dead)
			s := New(inner, Options{OnDegraded: func(Event) {
				calls++
				panic("no pager")
			}})
			api := quota(t, "api", limiter.PerMinute(1000), limiter.Local)
			breakDown(t, s, charge(api, "key"))
			inner.is(fine)
			time.Sleep(2 * time.Second)
			decide(t, s, charge(api, "key"))
			synctest.Wait()
		})
		assert.Equal(t, 2, calls)
		assert.Contains(t, log, `level=ERROR msg="weir: OnDegraded panicked" code=weir-hook-panic panic="no pager"`)
	})
}
