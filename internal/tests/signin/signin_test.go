// Package signin tests sign-ins on routers, and with counters in Redis.
package signin_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/signin"
	"github.com/weirgo/weir/redis/redisstore"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redistest.Silent{})
	redistest.Main(m)
}

// A process is one of several that serve sign-ins. The password is "right".
type process struct {
	handler http.Handler
	reached atomic.Int64
	err     error // of the last Succeeded
}

func newProcess(t *testing.T, addr string, outage limiter.Outage, deadline time.Duration) *process {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	s, err := signin.New(signin.Options{Account: keyfunc.FormField("account", 4096), Secrets: [][]byte{bytes.Repeat([]byte("s"), 32)}})
	require.NoError(t, err)
	rules := s.Rules()
	for i := range rules {
		rules[i].OnOutage = outage
	}
	limits, err := middleware.New(middleware.Config{
		ByRoute: map[string][]middleware.Rule{"POST /login": rules},
		Store:   redisstore.New(client, redisstore.Options{Failover: failover.Options{Failures: 1, Deadline: deadline, OnDegraded: func(failover.Event) {}}}),
		Logger:  slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	p, mux := &process{}, http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		p.reached.Add(1)
		if r.FormValue("password") == "right" {
			p.err = s.Succeeded(w, r)
		}
	})
	p.handler = limits.Handler(mux)
	return p
}

func (p *process) try(address, account, password, cookie string) *http.Response {
	r := httptest.NewRequest("POST", "/login", strings.NewReader("account="+account+"&password="+password))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Cookie", cookie)
	r.RemoteAddr = address + ":1"
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w.Result()
}

func (p *process) guess(address, account, cookie string, n int) (passed int) {
	for range n {
		if p.try(address, account, "wrong", cookie).StatusCode == 200 {
			passed++
		}
	}
	return passed
}

func TestProcessesShareSignIns(t *testing.T) {
	server := redistest.Start(t)
	a, b := newProcess(t, server.Addr, limiter.FailLocal, redistest.Patience), newProcess(t, server.Addr, limiter.FailLocal, redistest.Patience)
	owner := a.try("192.0.2.1", "jane", "right", "")
	require.NoError(t, a.err)
	cookie := "__Host-signin=" + owner.Cookies()[0].Value

	assert.Equal(t, 4, a.guess("192.0.2.1", "jane", "", 4))
	b.try("192.0.2.1", "jane", "right", "")
	require.NoError(t, b.err)
	assert.Equal(t, 5, a.guess("192.0.2.1", "jane", "", 3)+b.guess("192.0.2.1", "jane", "", 9), "cleared by the success")
	var wg sync.WaitGroup
	before := a.reached.Load() + b.reached.Load()
	for i := range 200 {
		wg.Go(func() { []*process{a, b}[i%2].try(fmt.Sprintf("10.0.0.%d", i), "jane", "wrong", "") })
	}
	wg.Wait()
	assert.Equal(t, before+20-4-5, a.reached.Load()+b.reached.Load(), "in parallel, up to 20 by strangers")
	assert.Equal(t, 10, b.guess("192.0.2.1", "jane", cookie, 20), "a known device")

	for i := range 99 { // and jane
		require.Equal(t, 200, a.try("192.0.2.1", fmt.Sprint("user", i), "wrong", "").StatusCode, i)
		require.Equal(t, 200, b.try("192.0.2.2", fmt.Sprint("user", i), "right", "").StatusCode)
		require.NoError(t, b.err)
	}
	assert.Equal(t, 429, b.try("192.0.2.1", "last", "wrong", "").StatusCode, "100 accounts from a network")
	assert.Equal(t, 200, b.try("192.0.2.2", "last", "wrong", "").StatusCode, "successes do not count")
}

func TestInAnOutageOnOutageDecides(t *testing.T) {
	for outage, want := range map[limiter.Outage]int{limiter.FailOpen: 30, limiter.FailLocal: 5, limiter.FailClosed: 0} {
		t.Run(outage.String(), func(t *testing.T) {
			server := redistest.Start(t)
			p := newProcess(t, server.Addr, outage, time.Second)
			require.Equal(t, 200, p.try("192.0.2.1", "ann", "right", "").StatusCode)
			server.Kill()
			assert.Equal(t, want, p.guess("192.0.2.1", "jane", "", 30))
			if outage != limiter.FailClosed {
				assert.NotEmpty(t, p.try("192.0.2.2", "jane", "right", "").Cookies(), "the sign-in goes on")
				assert.ErrorContains(t, p.err, "could not be reset")
			}
		})
	}
}

// On every router Succeeded sees its request, and that the header was written.
func TestRoutersSignIn(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	type login = func(w http.ResponseWriter, r *http.Request)
	for name, route := range map[string]func(l *middleware.RateLimit, login login) http.Handler{
		"net/http": func(l *middleware.RateLimit, login login) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("POST /login", login)
			return l.Handler(mux)
		},
		"chi": func(l *middleware.RateLimit, login login) http.Handler {
			r := chi.NewRouter()
			r.Use(chilimit.New(l))
			r.Post("/login", login)
			return r
		},
		"gin": func(l *middleware.RateLimit, login login) http.Handler {
			g := gin.New()
			g.Use(ginlimit.New(l))
			g.POST("/login", func(c *gin.Context) { login(c.Writer, c.Request) })
			return g
		},
		"echo": func(l *middleware.RateLimit, login login) http.Handler {
			e := echo.New()
			e.Use(echolimit.New(l))
			e.POST("/login", func(c echo.Context) error {
				login(c.Response(), c.Request())
				return nil
			})
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := signin.Must(signin.New(signin.Options{Account: keyfunc.FormField("account", 4096), Secrets: [][]byte{bytes.Repeat([]byte("s"), 32)}}))
			l := middleware.Must(middleware.New(middleware.Config{ByRoute: map[string][]middleware.Rule{"POST /login": s.Rules()}}))
			p := &process{}
			p.handler = route(l, func(w http.ResponseWriter, r *http.Request) {
				switch r.FormValue("password") {
				case "late":
					_, _ = io.WriteString(w, "welcome")
					fallthrough
				case "right":
					p.err = s.Succeeded(w, r)
				}
			})
			cookies := p.try("192.0.2.1", "jane", "right", "").Cookies()
			require.NoError(t, p.err)
			require.Len(t, cookies, 1)
			assert.Empty(t, p.try("192.0.2.1", "jane", "late", "").Cookies())
			assert.ErrorContains(t, p.err, "the header was written")
			assert.Equal(t, 5, p.guess("192.0.2.1", "jane", "", 9))
			assert.Equal(t, 10, p.guess("192.0.2.1", "jane", cookies[0].Name+"="+cookies[0].Value, 20))
		})
	}
}
