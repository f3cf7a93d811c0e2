package serving

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// A Log is an access log in JSON, which weir recommend and weir simulate read. As a
// middleware.Observer it learns which rule refused a request. A nil Log logs nothing.
type Log struct {
	digest keyfunc.Digester
	to     io.Writer
}

// NewLog returns a log. The writer must not block, and be safe for concurrent use, such as Lines.
func NewLog(to io.Writer, secret []byte) *Log {
	return &Log{keyfunc.NewDigester(secret), to}
}

// A line describes one request. Where nginx has a variable for a member, its name is nginx's.
type line struct {
	Time         string  `json:"time_iso8601"` // of the response
	Client       string  `json:"remote_addr"`  // the connection's peer
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
	Rule         string  `json:"weir_rule,omitempty"` // the rule that refused the request
	Key          string  `json:"weir_key,omitempty"`  // the digest of the key that the rule, or a ban, refused
}

type lineKey struct{}

func lineOf(ctx context.Context) *line {
	l, _ := ctx.Value(lineKey{}).(*line)
	return l
}

// Identify adds the user and the tier in ctx to the request's line.
func (l *Log) Identify(ctx context.Context) {
	if l == nil {
		return
	}
	if of := lineOf(ctx); of != nil {
		if user, err := keyfunc.User((&http.Request{}).WithContext(ctx)); err == nil {
			of.User = l.digestOf(user)
		}
		of.Tier = middleware.Tier(ctx)
	}
}

// digestOf returns the digest of a key, or "" for the key of all requests.
func (l *Log) digestOf(key string) string {
	if key == "" {
		return ""
	}
	text, _ := keyfunc.Classify(key)
	return l.digest.Digest(text).String()
}

// Observe implements middleware.Observer.
func (l *Log) Observe(o *middleware.Observation) {
	of := lineOf(o.Request.Context())
	if of == nil {
		return
	}
	of.Outcome, of.Route = o.Outcome.String(), o.Request.Pattern
	if o.Outcome == middleware.OutcomeBanned && o.Ban.ID() != "" {
		of.Key = l.digestOf(o.Ban.ID())
	}
	for i := range o.Rules {
		if rule := &o.Rules[i]; o.Outcome == middleware.OutcomeRefused && !rule.Allowed && rule.Rule.Mode != middleware.Shadow {
			of.Rule, of.Key = rule.Rule.Name, l.digestOf(rule.Key)
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
		of.ForwardedFor, of.UserAgent = strings.Join(r.Header["X-Forwarded-For"], ", "), r.UserAgent()
		of.Method, of.Target, of.Host = r.Method, r.RequestURI, r.Host
		of.Client, _, _ = net.SplitHostPort(r.RemoteAddr) // net/http's, of a connection over TCP
		of.Status = http.StatusInternalServerError        // unless next returns or answers
		defer func() {
			if counted.status != 0 {
				of.Status = counted.status
			}
			now := time.Now()
			of.Time, of.Took, of.Bytes = now.UTC().Format(time.RFC3339Nano), now.Sub(began).Seconds(), counted.bytes
			text, _ := json.Marshal(of) // of strings and numbers: it cannot fail
			_, _ = l.to.Write(append(text, '\n'))
		}()
		next.ServeHTTP(counted, r)
		of.Status = http.StatusOK // net/http's, if next writes nothing
	})
}

// A counted ResponseWriter keeps the status, and counts the bytes of the body.
type counted struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *counted) WriteHeader(status int) {
	if c.status == 0 && response.IsFinal(status) {
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

// RefusedAs is called before a refusal whose status line says 200: in gRPC, and in streams of Connect.
func (c *counted) RefusedAs(status int) { c.status = status }
