// Package http measures what limiters take of a request: of a whole server, which is a process of
// its own, and of ServeHTTP in a loop.
package http

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/benchmarks/peers"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A contestant is a middleware; peers are in package peers.
type contestant struct {
	peers.Peer
	only   string // the one stage; empty: both
	status int    // of its refusals; 0: 429
}

// The stages of a limit.
const (
	allowed = "allowed" // it is never used up
	refused = "refused" // it is used up
)

var contestants = func() []contestant {
	all := []contestant{
		{Peer: peers.Peer{Name: "floor-bare", Wrap: func(_ peers.Quota, next http.Handler) (http.Handler, error) { return next, nil }}, only: allowed},
		{Peer: peers.Peer{Name: "weir", Wrap: weirWith(nil)}},
		{Peer: peers.Peer{Name: "weir-both", Wrap: weirWith(func(c *middleware.Config) { c.Headers.Send = middleware.HeadersBoth })}},
		{Peer: peers.Peer{Name: "weir-none", Wrap: weirWith(func(c *middleware.Config) { c.Headers.Send = middleware.HeadersNone })}},
		{Peer: peers.Peer{Name: "weir-ban", Wrap: weirWith(banClient)}, only: refused, status: http.StatusForbidden},
		{Peer: peers.Peer{Name: "weir-rules=3", Wrap: weirWith(addRules)}, only: allowed},
		{Peer: peers.Peer{Name: "weir-gin", Wrap: wrapGin, Frame: func(next http.Handler) http.Handler { return withGin(next, func(*gin.Context) {}) }}},
		{Peer: peers.Peer{Name: "weir-echo", Wrap: wrapEcho, Frame: peers.FrameEcho}},
	}
	for _, p := range peers.All {
		all = append(all, contestant{Peer: p})
	}
	return all
}()

func limits(q peers.Quota, change func(*middleware.Config)) (*middleware.RateLimit, error) {
	config := middleware.Config{Rules: []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.Limit{
		Events: 1, Per: q.Every, Burst: q.Burst, Algorithm: limiter.TokenBucket,
	}}}}
	if change != nil {
		change(&config)
	}
	return middleware.New(config)
}

func weirWith(change func(*middleware.Config)) func(peers.Quota, http.Handler) (http.Handler, error) {
	return func(q peers.Quota, next http.Handler) (http.Handler, error) {
		l, err := limits(q, change)
		if err != nil {
			return nil, err
		}
		return l.Handler(next), nil
	}
}

func banClient(c *middleware.Config) {
	list := bans.Must(bans.New(bans.Options{}))
	if err := list.Ban(context.Background(), client, time.Hour); err != nil {
		panic(err)
	}
	c.Bans = middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.IP()}}
}

func addRules(c *middleware.Config) {
	for _, name := range []string{"second", "third"} {
		rule := c.Rules[0]
		rule.Name = name
		c.Rules = append(c.Rules, rule)
	}
}

func wrapGin(q peers.Quota, next http.Handler) (http.Handler, error) {
	l, err := limits(q, nil)
	if err != nil {
		return nil, err
	}
	return withGin(next, ginlimit.New(l)), nil
}

func withGin(next http.Handler, m gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/", m, gin.WrapH(next))
	return engine
}

func wrapEcho(q peers.Quota, next http.Handler) (http.Handler, error) {
	l, err := limits(q, nil)
	if err != nil {
		return nil, err
	}
	return peers.WithEcho(next, echolimit.New(l)), nil
}

// client is the address that requests come from.
const client = "127.0.0.1"

func newRequest() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = client + ":51234"
	return r
}

// The handlers that are compared.
const (
	limited  = iota // the contestant
	frame           // the same without the limiter: what it takes is net/http's, or a router's
	constant        // the frame around a handler that writes the response of limited as a constant
	roles
)

type handlers [roles]http.Handler

// statusOf is what a handler has to answer, or it is an error.
func (c contestant) statusOf(role int, stage string) int {
	if role == frame || stage == allowed {
		return http.StatusOK
	}
	return cmp.Or(c.status, http.StatusTooManyRequests)
}

// handlers makes those of c, its limit used up where the stage is refused.
func (c contestant) handlers(stage string) (h handlers, err error) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // warnings about a limit without a proxy
	quota := peers.Plenty
	if stage == refused {
		quota = peers.Single
	}
	framed := func(next http.Handler) http.Handler {
		if c.Frame == nil {
			return next
		}
		return c.Frame(next)
	}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	if h[limited], err = c.Wrap(quota, nothing); err != nil {
		return h, err
	}
	var answer *httptest.ResponseRecorder
	for range 100 { // as algorithms differ in how soon they refuse
		answer = httptest.NewRecorder()
		if h[limited].ServeHTTP(answer, newRequest()); answer.Code == c.statusOf(limited, stage) {
			h[frame], h[constant] = framed(nothing), framed(constantOf(answer))
			return h, nil
		}
	}
	return h, fmt.Errorf("%s answers %d where it should answer %d", c.Name, answer.Code, c.statusOf(limited, stage))
}

// constantOf writes this response again and again, as a plain handler would.
func constantOf(response *httptest.ResponseRecorder) http.Handler {
	names := slices.Sorted(maps.Keys(response.Header()))
	fields, status, body := response.Header(), response.Code, response.Body.Bytes()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range names {
			w.Header().Set(name, fields[name][0])
		}
		if status != http.StatusOK {
			w.WriteHeader(status)
		}
		if len(body) > 0 {
			_, _ = w.Write(body)
		}
	})
}

func each(b *testing.B, run func(b *testing.B, c contestant, stage string)) {
	for _, stage := range []string{allowed, refused} {
		b.Run(stage, func(b *testing.B) {
			for _, c := range contestants {
				if c.only == "" || c.only == stage {
					b.Run(c.Name, func(b *testing.B) {
						if os.Getenv("RACE_LIST") == "" {
							run(b, c, stage)
						}
					})
				}
			}
		})
	}
}

// BenchmarkInProcess calls a handler with one request again and again. What the frame takes is
// subtracted.
func BenchmarkInProcess(b *testing.B) {
	each(b, func(b *testing.B, c contestant, stage string) {
		h, err := c.handlers(stage)
		if err != nil {
			b.Fatal(err)
		}
		template, r, w := newRequest(), new(http.Request), &peers.Nowhere{Fields: http.Header{}}
		serve := func(role int) {
			clear(w.Fields)
			w.Status = http.StatusOK
			*r = *template // as adapters change it
			if h[role].ServeHTTP(w, r); w.Status != c.statusOf(role, stage) {
				b.Fatalf("it answers %d", w.Status)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			serve(limited)
		}
		n, began := max(b.N, 1000), time.Now()
		for range n {
			serve(frame)
		}
		b.ReportMetric(float64(b.Elapsed())/float64(b.N)-float64(time.Since(began))/float64(n), "ns/op")
	})
}

// BenchmarkServer is the CPU time of a server's process per request, in user and system mode, asked
// over 8 connections: above a handler that does nothing, and above one that writes the same
// response as a constant. The handlers take turns, as the differences are small.
func BenchmarkServer(b *testing.B) {
	each(b, func(b *testing.B, c contestant, stage string) {
		s := start(b, c.Name, stage)
		const turns = 32
		figures := map[string][]float64{}
		for b.Loop() {
			for range turns {
				var cpu [roles]float64
				for _, role := range rand.Perm(roles) {
					before := s.cpu(b)
					n := s.load(b, role, c.statusOf(role, stage), 4*time.Millisecond)
					cpu[role] = (s.cpu(b) - before) / float64(n)
				}
				for unit, figure := range map[string]float64{
					"above-bare-µs": cpu[limited] - cpu[frame], "above-constant-µs": cpu[limited] - cpu[constant], "bare-µs": cpu[frame], "constant-above-bare-µs": cpu[constant] - cpu[frame],
				} {
					figures[unit] = append(figures[unit], figure)
				}
			}
		}
		b.ReportMetric(0, "ns/op")
		for unit, of := range figures {
			slices.Sort(of)
			b.ReportMetric(of[len(of)/2], unit)
		}
	})
}

// serverEnv names the contestant and the stage that this process, started again, is to serve.
const serverEnv = "RACE_SERVER"

func TestMain(m *testing.M) {
	if name, stage, ok := strings.Cut(os.Getenv(serverEnv), "/"); ok {
		if err := serve(name, stage); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve prints the addresses of its handlers, and then its CPU time in µs for each line that it
// reads, until there are no more.
func serve(name, stage string) error {
	i := slices.IndexFunc(contestants, func(c contestant) bool { return c.Name == name })
	h, err := contestants[i].handlers(stage)
	if err != nil {
		return err
	}
	var addresses [roles]string
	for role, handler := range h {
		l, err := net.Listen("tcp", client+":0")
		if err != nil {
			return err
		}
		addresses[role] = l.Addr().String()
		go func() { _ = (&http.Server{Handler: handler}).Serve(l) }()
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(addresses); err != nil {
		return err
	}
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		if err := out.Encode(float64(u.Utime.Nano()+u.Stime.Nano()) / 1000); err != nil {
			return err
		}
	}
	return nil
}

// A server is a contestant's process, seen from the client.
type server struct {
	in          io.Writer
	out         *json.Decoder
	connections [roles][]*connection
}

// A connection is kept alive, and used by one goroutine.
type connection struct {
	net.Conn
	reader *bufio.Reader
}

func start(b *testing.B, name, stage string) *server {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), program)
	cmd.Env, cmd.Stderr = append(os.Environ(), serverEnv+"="+name+"/"+stage), os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := cmp.Or(errIn, errOut, cmd.Start()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	s := &server{in: in, out: json.NewDecoder(out)}
	var addresses [roles]string
	if err := s.out.Decode(&addresses); err != nil {
		b.Fatal(err)
	}
	for role, address := range addresses {
		for range 8 {
			c, err := net.Dial("tcp", address)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
			s.connections[role] = append(s.connections[role], &connection{c, bufio.NewReader(c)})
		}
	}
	return s
}

func (s *server) cpu(b *testing.B) (micros float64) {
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		b.Fatal(err)
	}
	if err := s.out.Decode(&micros); err != nil {
		b.Fatal(err)
	}
	return micros
}

// load has each connection ask for that long, as soon as it has an answer.
func (s *server) load(b *testing.B, role, status int, d time.Duration) int64 {
	var requests atomic.Int64
	var group sync.WaitGroup
	for _, c := range s.connections[role] {
		group.Go(func() {
			n := int64(0)
			for began := time.Now(); time.Since(began) < d; n++ {
				if got, err := c.ask(); err != nil || got != status {
					b.Errorf("it answers %d, %v", got, err)
					return
				}
			}
			requests.Add(n)
		})
	}
	group.Wait()
	return max(requests.Load(), 1)
}

func (c *connection) ask() (status int, err error) {
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: race.example\r\nUser-Agent: race\r\nAccept: */*\r\n\r\n"); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, err
}
