package pace_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/pace"
)

// Requests wait for a slot in order, and no longer than MaxWait, whatever the queue's own bound.
func TestRequestsWaitForASlotInOrder(t *testing.T) {
	for _, limit := range []limiter.Concurrency{limiter.AtOnce(2), limiter.AtOnce(2).Queue(100, time.Minute)} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(nil)
			s.took = time.Second
			transport := newTransport(t, s, pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: limit}}, MaxWait: 4 * time.Second})
			failed := 0
			for _, err := range together(t, 20, transport, api) {
				var tooLong *pace.WaitError
				if errors.As(err, &tooLong) {
					require.Positive(t, tooLong.Wait)
					failed++
				}
			}
			for i, at := range s.times() {
				require.Equal(t, time.Duration(i/2)*time.Second, at)
			}
			require.Equal(t, 20, failed+s.count())
			require.GreaterOrEqual(t, s.count(), 8)
			require.LessOrEqual(t, slices.Max(s.times()), 4*time.Second)
			require.Zero(t, transport.Stats()[0].InFlight)
			require.Zero(t, transport.Stats()[0].Waiting)
		})
	}
}

// A burst is not let out at the end of a cooldown.
func TestACooldownDoesNotEndWithABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(refuseFirst("Retry-After", "10"))
		all := fleet(t, 2, s, pace.Options{Rules: rules(limiter.PerSecond(10).WithBurst(11))})
		mustGet(t, all[0])
		var group sync.WaitGroup
		for _, process := range all {
			group.Go(func() { require.NoError(t, errors.Join(together(t, 10, process, api)...)) })
		}
		group.Wait()
		for i, at := range s.times()[1:] {
			require.Equal(t, 10*time.Second+time.Duration(i)*100*time.Millisecond, at)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		require.NoError(t, errors.Join(together(t, 10, all[0], api)...))
		require.Zero(t, time.Since(began), "later on it is there again")
	})
}

// A panic of the program's own code, which the program may recover from, leaves no slot taken.
func TestAPanicReleasesTheSlot(t *testing.T) {
	for name, o := range map[string]pace.Options{
		"base": {}, "observer": {Observer: panicking{}}, "list": {Cooldowns: panickingList{newBans(t)}},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := round(func(*http.Request) (*http.Response, error) {
				if name == "base" {
					panic("base")
				}
				return respond(429, "Retry-After", "1"), nil
			})
			o.Rules = []pace.Rule{{Host: "api.example.org", Limit: limiter.AtOnce(1)}, {Host: "b.example.org", Limit: limiter.PerSecond(10)}}
			transport := newTransport(t, base, o)
			for i, url := range []string{api, "https://b.example.org/"} {
				for range 3 {
					require.PanicsWithValue(t, name, func() { _, _ = get(t, transport, url) })
					time.Sleep(10 * time.Second)
				}
				require.Zero(t, transport.Stats()[i].InFlight, name)
			}
		})
	}
}

type panicking struct{}

func (panicking) ObserveAttempt(*pace.Observation) { panic("observer") }

type panickingList struct{ *bans.Memory }

func (panickingList) Ban(context.Context, string, time.Duration, ...bans.Note) error { panic("list") }

// A caller that forgets the body has the slot until the request's context ends, as it has the
// connection.
func TestASlotIsHeldUntilTheBodyOrTheContextEnds(t *testing.T) {
	for name, end := range map[string]func(r *http.Response){
		"read":    func(r *http.Response) { _, _ = io.ReadAll(r.Body) },
		"closed":  func(r *http.Response) { _ = r.Body.Close() },
		"context": func(*http.Response) { time.Sleep(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newTransport(t, newServer(nil), pace.Options{Rules: []pace.Rule{{Host: "api.example.org", Limit: limiter.AtOnce(1)}}})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				first, err := transport.RoundTrip(request(t, "GET", api).WithContext(ctx))
				require.NoError(t, err)
				time.Sleep(time.Second)
				require.EqualValues(t, 1, transport.Stats()[0].InFlight)
				began := time.Now()
				time.AfterFunc(time.Second, func() { end(first) })
				mustGet(t, transport)
				require.Equal(t, map[bool]time.Duration{true: 2 * time.Second, false: time.Second}[name == "context"], time.Since(began))
				require.Zero(t, transport.Stats()[0].InFlight)
				_ = first.Body.Close() // once more is allowed
				require.Zero(t, transport.Stats()[0].InFlight)
			})
		})
	}
}
