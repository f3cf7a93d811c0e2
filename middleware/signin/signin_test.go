package signin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/signin"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	m.Run()
}

var secret = []byte("at least thirty-two bytes, none of them at random")

// A site is a program with sign-ins. The password of each account is "right".
type site struct {
	t       require.TestingT
	options signin.Options
	config  middleware.Config
	s       *signin.SignIn
	limits  *middleware.RateLimit
	handler func(w http.ResponseWriter, r *http.Request) // nil: login

	epoch  atomic.Int64
	failed error // of Epoch
	asked  int   // Epoch
}

func newSite(t require.TestingT, edits ...func(*site)) *site {
	a := &site{t: t, options: signin.Options{
		Account: keyfunc.First(keyfunc.JSONField("account", 4096), keyfunc.FormField("account", 4096)), Secrets: [][]byte{secret},
	}}
	a.options.Epoch = func(_ context.Context, account string) (string, error) {
		a.asked++
		return fmt.Sprint(account, a.epoch.Load()), a.failed
	}
	for _, edit := range edits {
		edit(a)
	}
	var err error
	a.s, err = signin.New(a.options)
	require.NoError(t, err)
	a.config.ByRoute = map[string][]middleware.Rule{"POST /login": a.s.Rules()}
	a.config.Logger = slog.New(slog.DiscardHandler)
	a.limits, err = middleware.New(a.config)
	require.NoError(t, err)
	return a
}

func (a *site) login(w http.ResponseWriter, r *http.Request) {
	if a.handler != nil {
		a.handler(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	if r.FormValue("password") != "right" {
		fmt.Fprint(w, "Try again.")
		return
	}
	assert.NoError(a.t, a.s.Succeeded(w, r))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// A client has an address and a jar of cookies.
type client struct {
	*site
	address string
	cookie  string // of this name and value; empty: none
}

func (a *site) from(address string) *client { return &client{site: a, address: address} }

// try signs in, and returns the status: 200 for a wrong password, 303 for the right one.
func (c *client) try(account, password string) int {
	return c.send(url.Values{"account": {account}, "password": {password}}.Encode())
}

func (c *client) send(form string) int {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", c.login)
	r := httptest.NewRequest("POST", "/login", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = net.JoinHostPort(c.address, "1")
	if c.cookie != "" {
		r.Header.Set("Cookie", c.cookie)
	}
	w := httptest.NewRecorder()
	c.limits.Handler(mux).ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		c.cookie = cookie.Name + "=" + cookie.Value
	}
	return w.Code
}

// guess tries n wrong passwords, and returns how many reached the handler.
func (c *client) guess(account string, n int) (passed int) {
	for range n {
		if c.try(account, "wrong") == 200 {
			passed++
		}
	}
	return passed
}

// device returns a client that has signed in to jane.
func (a *site) device(address string) *client {
	c := a.from(address)
	require.Equal(a.t, 303, c.try("jane", "right"))
	require.NotEmpty(a.t, c.cookie)
	return c
}

func TestEachGroupHasItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		known := a.device("2001:db8::1")
		assert.Equal(t, 5, a.from("192.0.2.1").guess("jane", 9), "an account from a network")
		for i := range 9 {
			a.from(fmt.Sprintf("198.51.100.%d", i)).guess("jane", 5)
		}
		assert.Equal(t, 0, a.from("192.0.2.9").guess("jane", 1), "an account: 20 an hour")
		assert.Equal(t, 5, a.from("192.0.2.1").guess("joe", 9))
		c := a.from("192.0.2.2")
		for i := range 150 {
			c.try(fmt.Sprint("user", i), "wrong")
		}
		assert.Equal(t, 0, c.guess("joe", 1), "100 accounts from a network")
		assert.Equal(t, 200, c.try("user1", "wrong"), "an account that was counted")
		for i := range 12 {
			known.address = fmt.Sprintf("192.0.2.%d", 100+i)
			assert.Equal(t, i < 10, known.guess("jane", 1) == 1, "a known device, from any network")
		}
	})
}

func TestASuccessCostsNothingAndClearsItsNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		for range 300 { // a company behind one address, without cookies
			require.Equal(t, 303, a.from("192.0.2.1").try(fmt.Sprint("user", time.Now().UnixNano()), "right"))
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, 4, a.from("192.0.2.1").guess("jane", 4))
		assert.Equal(t, 4, a.from("192.0.2.2").guess("jane", 4))
		assert.Equal(t, 303, a.from("192.0.2.1").try("jane", "right"))
		assert.Equal(t, 5, a.from("192.0.2.1").guess("jane", 9), "cleared")
		assert.Equal(t, 1, a.from("192.0.2.2").guess("jane", 9), "only there")
		known := a.device("192.0.2.3")
		for range 50 {
			require.Equal(t, 303, known.try("jane", "right"))
		}
	})
}

// Strangers in the owner's own network, or in 2,000 others, cannot keep the owner from a device that is known.
func TestAKnownDeviceIsNotRefusedForWhatStrangersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		owner := a.device("192.0.2.1")
		for i := range 2000 {
			a.from(fmt.Sprintf("10.0.%d.%d", i/256, i%256)).guess("jane", 1)
			a.from("192.0.2.1").guess("jane", 1)
			a.from("192.0.2.1").guess(fmt.Sprint("user", i%300), 1)
			if i%100 == 0 {
				require.Equal(t, 1, owner.guess("jane", 1), "a slip of the owner's")
				require.Equal(t, 303, owner.try("Jane", "right"), i)
			}
			time.Sleep(24 * time.Hour / 2000)
		}
		assert.Equal(t, 429, a.from("192.0.2.7").try("jane", "right"), "a new device")
		w := httptest.NewRecorder()
		require.NoError(t, a.s.Remember(w, httptest.NewRequest("GET", "/login/code?code=7", nil), " JANE"))
		helped := a.from("192.0.2.7")
		helped.cookie = w.Result().Cookies()[0].Name + "=" + w.Result().Cookies()[0].Value
		assert.Equal(t, 303, helped.try("jane", "right"), "after a code by mail")
	})
}

func TestGuessesInParallelAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		address, account string // with an N for the number of the guess
		want             int64
	}{
		"from one network":         {"192.0.2.1", "jane", 5},
		"from many networks":       {"2001:db8:N::1", "jane", 20},
		"on many accounts":         {"192.0.2.1", "userN", 100},
		"on accounts and networks": {"2001:db8:N::1", "userN", 500},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reached atomic.Int64
				a := newSite(t)
				a.handler = func(http.ResponseWriter, *http.Request) {
					reached.Add(1)
					time.Sleep(time.Second) // a slow hash
				}
				var wg sync.WaitGroup
				for i := range 500 {
					number := strings.NewReplacer("N", fmt.Sprint(i))
					wg.Go(func() { a.from(number.Replace(test.address)).try(number.Replace(test.account), "wrong") })
				}
				wg.Wait()
				assert.Equal(t, test.want, reached.Load())
			})
		})
	}
}

func TestSpellingsOfAnAccountAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		passed := 0
		for _, name := range []string{"jané", "JANÉ", " jané", "jané\u00a0", "jane\u0301", "JANE\u0301", "Jane\u0301 ", "jANÉ"} {
			passed += a.from("192.0.2.1").guess(name, 5)
		}
		assert.Equal(t, 5, passed)
		c := a.from("192.0.2.2")
		require.Equal(t, 303, c.try("JANE\u0301", "right"))
		assert.Equal(t, 10, c.guess("jané", 20), "also for its device")
		a = newSite(t, func(a *site) { a.options.Normalize = func(s string) string { return strings.Trim(s, "x") } })
		assert.Equal(t, 5, a.from("192.0.2.1").guess("jane", 4)+a.from("192.0.2.1").guess("xjanex", 4))
	})
}

func TestARequestWithoutAnAccountIsABadRequest(t *testing.T) {
	a := newSite(t)
	a.handler = func(http.ResponseWriter, *http.Request) { t.Error("it reached the handler") }
	for name, form := range map[string]string{
		"nothing": "", "another field": "user=jane", "blanks": "account=+%20", "two": "account=jane&account=joe", "JSON": `{"user":"jane"}`,
		"two million bytes": "account=jane&x=" + strings.Repeat("x", 2e6), "two million fields": "account=jane" + strings.Repeat("&", 2e6),
	} {
		assert.Equal(t, 400, a.from("192.0.2.1").send(form), name)
	}
}

// A login handler that forgets to report, panics, or whose client leaves, has used up a guess.
func TestWhatIsNotReportedIsAFailure(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"nothing":     func(http.ResponseWriter, *http.Request) {},
		"a redirect":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusSeeOther) },
		"an odd code": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(999) },
		"an error":    func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a panic":     func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := 0
				a := newSite(t)
				a.handler = func(w http.ResponseWriter, r *http.Request) { reached++; handler(w, r) }
				for range 9 {
					func() {
						defer func() { _ = recover() }()
						a.from("192.0.2.1").try("jane", "right")
					}()
				}
				assert.Equal(t, 5, reached)
			})
		})
	}
}

func TestReportsThatCannotHoldAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		report := func(handler func(w http.ResponseWriter, r *http.Request)) *client {
			a.handler = handler
			c := a.from("192.0.2.1")
			c.try("jane", "right")
			return c
		}
		report(func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, a.s.Succeeded(w, r))
			assert.ErrorIs(t, a.s.Succeeded(w, r), limiter.ErrSettled)
			assert.ErrorIs(t, a.s.Failed(r), limiter.ErrSettled)
			assert.Len(t, w.Header()["Set-Cookie"], 1)
		})
		c := report(func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, a.s.Failed(r))
			assert.ErrorIs(t, a.s.Succeeded(w, r), limiter.ErrSettled)
		})
		assert.Empty(t, c.cookie)
		c = report(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("Welcome."))
			assert.ErrorContains(t, a.s.Succeeded(w, r), "the header was written")
		})
		assert.Empty(t, c.cookie)
		c = report(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			cancel() // the client leaves
			assert.NoError(t, a.s.Succeeded(w, r.WithContext(ctx)))
		})
		require.NotEmpty(t, c.cookie)
		report(func(w http.ResponseWriter, r *http.Request) {
			a.failed = errors.New("no database")
			defer func() { a.failed = nil }()
			assert.ErrorContains(t, a.s.Succeeded(w, r), "no database")
			assert.Empty(t, w.Header()["Set-Cookie"])
		})
		var late *http.Request
		report(func(w http.ResponseWriter, r *http.Request) { late = r })
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/other", nil)
		assert.ErrorIs(t, a.s.Succeeded(w, r), middleware.ErrNotApplied)
		assert.ErrorIs(t, a.s.Failed(r), middleware.ErrNotApplied)
		assert.Error(t, a.s.Remember(w, r, " "))
		assert.Empty(t, w.Header())
		assert.NoError(t, a.s.Succeeded(httptest.NewRecorder(), late), "after the request: it is refunded")
		a.handler = nil
		assert.Equal(t, 5, a.from("192.0.2.1").guess("jane", 9), "all of them cost nothing, but the failure, which was cleared")
	})
}

func TestConcurrentSuccessesSettleOnce(t *testing.T) {
	a := newSite(t, func(a *site) { a.options.Epoch = nil })
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		var settled atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := a.s.Succeeded(httptest.NewRecorder(), r); errors.Is(err, limiter.ErrSettled) {
					settled.Add(1)
				}
			})
			wg.Go(func() {
				if err := a.s.Failed(r); errors.Is(err, limiter.ErrSettled) {
					settled.Add(1)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, int64(39), settled.Load())
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() { a.from("192.0.2.1").try("jane", "right") })
	}
	wg.Wait()
}

func TestEpochIsAskedForKnownDevicesAlone(t *testing.T) {
	a := newSite(t)
	a.from("192.0.2.1").guess("jane", 3)
	assert.Equal(t, 0, a.asked)
	c := a.device("192.0.2.1")
	assert.Equal(t, 1, a.asked)
	c.guess("joe", 1)
	assert.Equal(t, 1, a.asked, "another account")
	c.guess("jane", 1)
	assert.Equal(t, 4, a.asked)
	a.failed = errors.New("no database")
	assert.Equal(t, 5, c.guess("jane", 9), "its error makes a stranger")
}

// Each rule asks Epoch for itself, so an answer may differ from the one before.
func TestAnUnsteadyEpochFreesNobody(t *testing.T) {
	for n := range 4 {
		synctest.Test(t, func(t *testing.T) {
			a := newSite(t)
			thief := a.device("192.0.2.1")
			asked := 0
			epoch := func(context.Context, string) (string, error) {
				if asked++; asked%4 == n || asked%3 == n {
					return "", errors.New("no database")
				}
				return "jane0", nil
			}
			a = newSite(t, func(a *site) { a.options.Epoch = epoch })
			thief.site = a
			assert.LessOrEqual(t, thief.guess("jane", 100), 10)
		})
	}
}

func TestAFailureCountsIfALimiterFurtherInRefuses(t *testing.T) {
	inner, err := middleware.New(middleware.Config{Rules: []middleware.Rule{{Name: "page", Key: keyfunc.IP(), Limit: limiter.PerHour(1)}}})
	require.NoError(t, err)
	a, checked := newSite(t), 0
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		checked++
		assert.NoError(t, a.s.Failed(r))
		inner.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	}
	a.from("192.0.2.1").guess("jane", 30)
	assert.Equal(t, 5, checked)
}

func TestFailedCountsAsUnauthorized(t *testing.T) {
	a := newSite(t, func(a *site) {
		a.config.Rules = []middleware.Rule{{Name: "failures", Key: keyfunc.IP(), Limit: limiter.PerHour(3), Counts: middleware.Statuses(401)}}
	})
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, a.s.Failed(r))
		_, _ = io.WriteString(w, "Try again.")
	}
	assert.Equal(t, 3, a.from("192.0.2.1").guess("jane", 9))
}

// A store in an outage.
type broken struct{ limiter.Store }

func (broken) Decide(context.Context, []limiter.Charge) error     { return errors.New("no store") }
func (broken) Settle(context.Context, []limiter.Settlement) error { return errors.New("no store") }
func (broken) Reset(context.Context, []limiter.Charge) error      { return errors.New("no store") }
func (broken) Supports(limiter.Outage) bool                       { return true }

func TestWithoutAStoreNobodySignsInUnlimited(t *testing.T) {
	a := newSite(t, func(a *site) { a.config.Store = broken{} })
	assert.Equal(t, 503, a.from("192.0.2.1").try("jane", "right"))
}

// If the application's functions fail, requests are counted together, and reports are errors.
func TestAKeyThatFailsIsNoWayAround(t *testing.T) {
	fails := func(*http.Request) (string, error) { return "", errors.New("no database") }
	none := func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }
	for name, edit := range map[string]func(*site){
		"Account":    func(a *site) { a.options.Account = fails },
		"Network":    func(a *site) { a.options.Network = fails },
		"no network": func(a *site) { a.options.Network = none },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := 0
				a := newSite(t, edit)
				a.handler = func(w http.ResponseWriter, r *http.Request) {
					if reached++; name == "Account" {
						assert.ErrorContains(t, a.s.Succeeded(w, r), "the account of the request could not be read")
						assert.Error(t, a.s.Failed(r))
						assert.Empty(t, w.Header()["Set-Cookie"])
					}
				}
				for i := range 9 {
					a.from(fmt.Sprintf("192.0.2.%d", i)).try("jane", "right")
				}
				assert.Equal(t, 5, reached)
				a.handler = nil
				if name != "Account" {
					time.Sleep(time.Hour)
					a.device("192.0.2.1")
				}
			})
		})
	}
}

func TestWrongOptionsAreErrors(t *testing.T) {
	account := keyfunc.FormField("account", 10)
	for want, o := range map[string]signin.Options{
		"signin: Account is required":                               {Secrets: [][]byte{secret}},
		"signin: Secrets has no secret":                             {Account: account},
		"signin: Secrets[1] has 31 bytes: it must have at least 32": {Account: account, Secrets: [][]byte{secret, secret[:31]}},
		"signin: Secrets[0] has 0 bytes":                            {Account: account, Secrets: [][]byte{{}}},
		`signin: Name is "a b": it must be at most 64 letters`:      {Account: account, Secrets: [][]byte{secret}, Name: "a b"},
	} {
		s, err := signin.New(o)
		assert.ErrorContains(t, err, want)
		assert.Nil(t, s)
	}
}

// A rule by address refuses a client before its form is read.
func TestARefusedClientsFormIsNotRead(t *testing.T) {
	a := newSite(t, func(a *site) {
		a.config.Rules = []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(1)}}
	})
	c := a.from("192.0.2.1")
	require.Equal(t, 1, c.guess("jane", 1))
	r := httptest.NewRequest("POST", "/login", io.NopCloser(iotest.ErrReader(errors.New("it was read"))))
	r.Pattern = "POST /login"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	a.limits.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	assert.Equal(t, 429, w.Code)
}
