package main

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/observe/promlimit"
	"github.com/weirgo/weir/observe/sloglimit"
)

// An admin is the service for operators: health checks, metrics and the live page.
type admin struct {
	addr    string
	token   []byte // of the page; empty: only loopback may open the page
	ready   atomic.Bool
	metrics *promlimit.Metrics
	page    *dashboard.Dashboard
	limits  *limits

	*serving.Server // nil before Start
}

// observe makes the observers of requests. Without --admin it makes only the log of refusals.
func (f *serveFlags) observe(l *limits, config *middleware.Config) error {
	refused, err := sloglimit.New(sloglimit.Options{Logger: l.Logger, ShowKeys: f.showKeys, Secret: l.secret})
	if err != nil {
		return err
	}
	l.closes = append(l.closes, func() error { refused.Flush(); return nil })
	observers := []middleware.Observer{refused}
	if l.log != nil {
		observers = append(observers, l.log)
	}
	if f.admin != "" {
		a := &admin{addr: f.admin, limits: l}
		if a.token, err = readToken(f.adminToken); err != nil {
			return err
		}
		if a.metrics, err = promlimit.New(promlimit.Options{Store: l.Store}); err != nil {
			return err
		}
		a.page, err = dashboard.New(dashboard.Options{
			Authorize: a.authorize, Store: l.Store, Bans: config.Bans.List, ShowKeys: f.showKeys, Secret: l.secret, Logger: l.Logger,
		})
		if err != nil {
			return err
		}
		observers = append(observers, a.metrics, a.page)
		l.admin = a
	}
	l.Observer = middleware.Observers(observers...)
	config.Observer = l.Observer
	return nil
}

// readToken reads the token of the page from a file.
func readToken(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--admin-token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < 16 {
		return nil, errors.New("--admin-token-file: the token has fewer than 16 bytes, so it can be guessed")
	}
	return []byte(token), nil
}

// follow connects metrics and the page to the rules in force.
func (a *admin) follow(w *rules.Watcher) {
	a.page.Add(w.RateLimit)
	a.page.FollowRules(w)
	a.metrics.Follow(w)
	a.metrics.FollowLimiter(w.RateLimit)
}

// authorize reports whether a request has the token, as a bearer token or as the password of basic
// authentication. If no token is set, it reports whether the request comes from this machine and Host
// names this machine: a web site may resolve its own name to 127.0.0.1 (DNS rebinding).
func (a *admin) authorize(r *http.Request) bool {
	if len(a.token) == 0 {
		return isLoopback(r.RemoteAddr) && (isLoopback(r.Host) || hostname(r.Host) == "localhost")
	}
	_, given, ok := r.BasicAuth()
	if !ok {
		given, ok = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	return ok && subtle.ConstantTimeCompare([]byte(given), a.token) == 1
}

func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func isLoopback(hostport string) bool {
	ip, err := netip.ParseAddr(hostname(hostport))
	return err == nil && ip.Unmap().IsLoopback()
}

// Lacks implements serving.Service.
func (a *admin) Lacks(*rules.Proxies, rules.Need) string { return "" }

// Start implements serving.Service.
func (a *admin) Start(l serving.Limits, failed func(error)) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for name, lines := range a.limits.logs {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "weir_log_lines_dropped_total", Help: "Lines of a log that could not be written.", ConstLabels: prometheus.Labels{"log": name},
		}, func() float64 { dropped, _ := lines.Dropped(); return float64(dropped) }))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		if len(a.token) > 0 && !a.authorize(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="weir", charset="UTF-8"`)
			http.Error(w, "The page needs the token as the password.", http.StatusUnauthorized)
			return
		}
		a.page.ServeHTTP(w, r)
	})
	server, err := serving.Listen("--admin", a.addr, mux, l.Logger)
	if err != nil {
		return err
	}
	server.WriteTimeout = time.Minute
	a.Server = server
	server.Start(failed)
	return nil
}

// readyz answers 200 if a load balancer may send requests. It also does if the rules could not be
// reloaded, because the earlier rules are in force. It does not before the rules in Redis were loaded once.
func (a *admin) readyz(w http.ResponseWriter, _ *http.Request) {
	if !a.ready.Load() {
		http.Error(w, "not serving, or about to end", http.StatusServiceUnavailable)
		return
	}
	status := a.limits.Watcher.Status()
	if status.Fallback {
		http.Error(w, "The rules in Redis cannot be used yet: "+shownToAll(status.Err), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
	if status.Err != nil {
		fmt.Fprintf(w, "The rules were not reloaded, those before are in force: %v\n", shownToAll(status.Err))
	}
}

// mostShown is how many bytes of an error /readyz shows. The error may quote a whole line of a file.
const mostShown = 1 << 10

// shownToAll returns the text of an error for everybody who reaches --admin. The log has the whole text.
func shownToAll(err error) string {
	text := inWords(err)
	if len(text) > mostShown {
		text = strings.ToValidUTF8(text[:mostShown], "") + " ... (the log has the rest)"
	}
	return text
}
