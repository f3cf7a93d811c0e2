// Package signinrace attacks sign-ins behind limiters, for the table in docs/recipes.md. It is a test, as it needs a clock
// that is faked:
//
//	go -C _benchmarks test -v ./signinrace
package signinrace

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/signin"
)

const quarter = 15 * time.Minute

// address and account are keys of the other limiters.
func address(r *http.Request) (string, error) { return strings.TrimSuffix(r.RemoteAddr, ":1"), nil }
func account(r *http.Request) (string, error) { return r.FormValue("account"), nil }
func both(r *http.Request) (string, error) {
	return strings.TrimSuffix(r.RemoteAddr, ":1") + " " + r.FormValue("account"), nil
}

// A guard puts a limiter around a login handler. Succeeded is called after each success.
type guard func(t *testing.T, login func(succeeded func(http.ResponseWriter, *http.Request)) http.Handler) http.Handler

func weir(rules func(s *signin.SignIn) []middleware.Rule) guard {
	return func(t *testing.T, login func(func(http.ResponseWriter, *http.Request)) http.Handler) http.Handler {
		s, err := signin.New(signin.Options{
			Account: keyfunc.FormField("account", 4096), Secrets: [][]byte{[]byte(strings.Repeat("s", 32))},
			Epoch: func(context.Context, string) (string, error) { return "1", nil },
		})
		require.NoError(t, err)
		limits, err := middleware.New(middleware.Config{Rules: rules(s), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		return limits.Handler(login(func(w http.ResponseWriter, r *http.Request) { _ = s.Succeeded(w, r) }))
	}
}

// byHTTPRate is httprate's middleware, one around the other.
func byHTTPRate(limits ...func(http.Handler) http.Handler) guard {
	return func(_ *testing.T, login func(func(http.ResponseWriter, *http.Request)) http.Handler) http.Handler {
		h := login(func(http.ResponseWriter, *http.Request) {})
		for _, limit := range limits {
			h = limit(h)
		}
		return h
	}
}

func byTollbooth(key httprate.KeyFunc) guard {
	return func(_ *testing.T, login func(func(http.ResponseWriter, *http.Request)) http.Handler) http.Handler {
		l := tollbooth.NewLimiter(5/quarter.Seconds(), &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: 24 * time.Hour}).SetBurst(5)
		next := login(func(http.ResponseWriter, *http.Request) {})
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			of, _ := key(r)
			if err := tollbooth.LimitByKeys(l, []string{of}); err != nil {
				w.WriteHeader(err.StatusCode)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

var guards = []struct {
	name  string
	guard guard
}{
	{"weir signin", weir((*signin.SignIn).Rules)},
	{"weir, failures by account", weir(func(*signin.SignIn) []middleware.Rule {
		return []middleware.Rule{{Name: "account", Key: keyfunc.FormField("account", 4096), Limit: limiter.PerHour(20), Counts: middleware.Statuses(401)}}
	})},
	{"httprate, address", byHTTPRate(httprate.LimitBy(5, quarter, address))},
	{"httprate, account", byHTTPRate(httprate.LimitBy(5, quarter, account))},
	{"httprate, both and account", byHTTPRate(httprate.LimitBy(5, quarter, both), httprate.LimitBy(20, time.Hour, account))},
	{"tollbooth, address", byTollbooth(address)},
	{"tollbooth, account", byTollbooth(account)},
}

// A site counts the guesses that reach its login. The password is "right".
type site struct {
	handler http.Handler
	slow    time.Duration // the time of a hash
	guesses atomic.Int64
}

func newSite(t *testing.T, g guard) *site {
	s := &site{}
	s.handler = g(t, func(succeeded func(http.ResponseWriter, *http.Request)) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if time.Sleep(s.slow); r.FormValue("password") != "right" {
				s.guesses.Add(1)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			succeeded(w, r)
		})
	})
	return s
}

// try returns the status, and the cookie after it.
func (s *site) try(from, account, password, cookie string) (int, string) {
	r := httptest.NewRequest("POST", "/login", strings.NewReader(url.Values{"account": {account}, "password": {password}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = from + ":1"
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		cookie = c.Name + "=" + c.Value
	}
	return w.Code, cookie
}

func bot(i int) string { return fmt.Sprintf("10.0.%d.%d", i%2000/250, i%250) }

// evenly calls f n times in a day.
func evenly(n int, f func(i int)) {
	for i := range n {
		f(i)
		time.Sleep(24 * time.Hour / time.Duration(n))
	}
}

// A result has a day of each attack.
type result struct {
	stuffing, spraying, stolen, together int64 // guesses that reached the login
	known, fresh, nat                    int   // refusals of 24 sign-ins of the owner
	office                               int   // refusals of 300 people who sign in from one address
}

func attack(t *testing.T, g guard) (r result) {
	run := func(f func(s *site)) (guesses int64) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, g)
			f(s)
			guesses = s.guesses.Load()
		})
		return guesses
	}
	r.stuffing = run(func(s *site) { evenly(20_000, func(i int) { s.try(bot(i), "jane", "wrong", "") }) })
	r.spraying = run(func(s *site) { evenly(20_000, func(i int) { s.try("10.9.9.9", fmt.Sprint("user", i), "wrong", "") }) })
	r.stolen = run(func(s *site) {
		_, cookie := s.try("192.0.2.1", "jane", "right", "")
		evenly(20_000, func(i int) { s.try(bot(i), "jane", "wrong", cookie) })
	})
	r.together = run(func(s *site) {
		s.slow = time.Second
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() { s.try(bot(i), "jane", "wrong", "") })
		}
		wg.Wait()
	})
	owner := func(stranger, owner string, keeps bool) (refused int) {
		run(func(s *site) {
			_, cookie := s.try("192.0.2.1", "jane", "right", "")
			evenly(24*300, func(i int) {
				if from := stranger; from == "" {
					s.try(bot(i), "jane", "wrong", "")
				} else {
					s.try(from, "jane", "wrong", "")
				}
				if i%300 == 299 {
					given := cookie
					if !keeps {
						given = ""
					}
					status, next := s.try(owner, "jane", "right", given)
					if status != 200 {
						refused++
					}
					cookie = next
				}
			})
		})
		return refused
	}
	r.known = owner("", "192.0.2.1", true)
	r.nat = owner("192.0.2.1", "192.0.2.1", true)
	r.fresh = owner("", "192.0.2.2", false)
	run(func(s *site) {
		for i := range 300 {
			if status, _ := s.try("192.0.2.1", fmt.Sprint("user", i), "right", ""); status != 200 {
				r.office++
			}
			time.Sleep(2 * time.Second)
		}
	})
	return r
}

func TestSignInsUnderAttack(t *testing.T) {
	t.Logf("%-28s %9s %9s %9s %9s | %6s %6s %6s %7s", "", "stuffing", "spraying", "stolen", "at once", "known", "nat", "new", "office")
	for _, row := range guards {
		r := attack(t, row.guard)
		t.Logf("%-28s %9d %9d %9d %9d | %6d %6d %6d %7d", row.name, r.stuffing, r.spraying, r.stolen, r.together, r.known, r.nat, r.fresh, r.office)
		if row.name == "weir signin" {
			assert.LessOrEqual(t, r.stuffing, int64(100+20))
			assert.LessOrEqual(t, r.spraying, int64(24*100+100))
			assert.LessOrEqual(t, r.stolen, int64(96*10+10))
			assert.Equal(t, int64(20), r.together)
			assert.Zero(t, r.known+r.nat+r.office)
		}
	}
}
