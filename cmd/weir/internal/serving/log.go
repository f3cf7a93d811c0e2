package serving

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// A Log is an access log, in JSON that weir recommend and weir simulate read. A nil Log logs
// nothing. It is a middleware.Observer, for the rule that refused a request.
type Log struct {
	name   string // of the file; - is the standard output
	digest keyfunc.Digester

	mu   sync.Mutex
	to   io.Writer
	file *os.File // nil: the standard output
}

// NewLog opens the file called name, or takes out for "-".
func NewLog(name string, out io.Writer, secret []byte) (*Log, error) {
	l := &Log{name: name, digest: keyfunc.NewDigester(secret), to: out}
	return l, l.Reopen()
}

// Reopen opens the file again, as the one that was open may have been moved away.
func (l *Log) Reopen() error {
	if l.name == "-" {
		return nil
	}
	file, err := os.OpenFile(l.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.to = file, file
	return nil
}

// A line is one request. Its names are those of nginx's variables, as far as there are any.
type line struct {
	Time         string  `json:"time_iso8601"` // of the answer
	Client       string  `json:"remote_addr"`  // the other end of the connection
	ForwardedFor string  `json:"http_x_forwarded_for,omitempty"`
	Method       string  `json:"request_method"`
	Target       string  `json:"request_uri"`
	Host         string  `json:"host"`
	UserAgent    string  `json:"http_user_agent,omitempty"`
	Status       int     `json:"status"`
	Bytes        int64   `json:"body_bytes_sent"`
	Took         float64 `json:"request_time"`        // in seconds
	User         string  `json:"weir_user,omitempty"` // the digest of the user
	Tier         string  `json:"weir_tier,omitempty"`
	Route        string  `json:"weir_route,omitempty"`
	Outcome      string  `json:"weir_outcome,omitempty"`
	Rule         string  `json:"weir_rule,omitempty"` // that refused
}

type lineKey struct{}

func lineOf(ctx context.Context) *line {
	l, _ := ctx.Value(lineKey{}).(*line)
	return l
}

// Identify notes the user and the tier of a request, as they are in its context.
func (l *Log) Identify(ctx context.Context) {
	if l == nil {
		return
	}
	if of := lineOf(ctx); of != nil {
		if user, err := keyfunc.User((&http.Request{}).WithContext(ctx)); err == nil {
			text, _ := keyfunc.Classify(user)
			of.User = l.digest.Digest(text).String()
		}
		of.Tier = middleware.Tier(ctx)
	}
}

// Observe implements middleware.Observer.
func (l *Log) Observe(o *middleware.Observation) {
	of := lineOf(o.Request.Context())
	if of == nil {
		return
	}
	of.Outcome, of.Route = o.Outcome.String(), o.Request.Pattern
	for i := range o.Rules {
		if rule := &o.Rules[i]; o.Outcome == middleware.OutcomeRefused && !rule.Allowed && rule.Rule.Mode != middleware.Shadow {
			of.Rule = rule.Rule.Name
			break
		}
	}
}

// Handler logs the requests to next.
func (l *Log) Handler(next http.Handler) http.Handler {
	if l == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, of := time.Now(), &line{}
		counted := &counted{ResponseWriter: w}
		r = r.WithContext(context.WithValue(r.Context(), lineKey{}, of))
		of.ForwardedFor, of.UserAgent = r.Header.Get("X-Forwarded-For"), r.UserAgent()
		of.Client, of.Method, of.Target, of.Host = host(r.RemoteAddr), r.Method, r.RequestURI, r.Host
		of.Status = http.StatusInternalServerError // if next panics before it answers
		defer func() {
			if counted.status != 0 {
				of.Status = counted.status
			}
			now := time.Now()
			of.Time, of.Took, of.Bytes = now.UTC().Format(time.RFC3339Nano), now.Sub(began).Seconds(), counted.bytes
			l.write(of)
		}()
		next.ServeHTTP(counted, r)
		of.Status = http.StatusOK // of an answer without a body
	})
}

func (l *Log) write(of *line) {
	text, err := json.Marshal(of)
	if err != nil {
		return // it has nothing that could fail
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(append(text, '\n'))
}

// counted notes what is answered.
type counted struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *counted) WriteHeader(status int) {
	if c.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

// host is an address without its port.
func host(remoteAddr string) string {
	for i := len(remoteAddr) - 1; i >= 0; i-- {
		if remoteAddr[i] == ':' {
			if remoteAddr[0] == '[' && i > 2 {
				return remoteAddr[1 : i-1]
			}
			return remoteAddr[:i]
		}
	}
	return remoteAddr
}
