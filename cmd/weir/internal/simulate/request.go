package simulate

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// Options say what a service knows about requests beside its rules.
type Options struct {
	// Routes are those of its router, and ServeMux says that this is an http.ServeMux.
	Routes   []string
	ServeMux bool

	// Headers are the names of the entries' Headers: those of HTTP, cookie:NAME, or key:NAME,
	// which [Key] reads.
	Headers []string

	// Client is the key that tells clients apart in what is counted: by their addresses, and by
	// what header fields say of those.
	Client keyfunc.Func

	// LeftOut are the names of rules that no request meets.
	LeftOut []string

	// HasTook says that entries say how long requests took. Else how many are in progress is not
	// known, and left out.
	HasTook bool
}

// Requests makes the requests of a log. It is for one goroutine.
type Requests struct {
	o      Options
	router *route.Router

	blank   map[string]*http.Request // by tier
	request http.Request             // and what it has, all of which the next has again
	url     url.URL
	header  http.Header
	agent   [1]string
}

// remoteAddr is the other end of a connection as net/http has it.
func remoteAddr(client string) string {
	switch {
	case client == accesslog.UnixSocket || client == "":
		return "@"
	case strings.IndexByte(client, ':') >= 0:
		return "[" + client + "]:1024"
	}
	return client + ":1024"
}

// NewRequests returns what makes them.
func NewRequests(o Options) *Requests {
	blank := &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody}
	return &Requests{o: o, router: route.NewRouter(o.Routes), blank: map[string]*http.Request{"": blank}, header: http.Header{}}
}

// Client is the client of the request that Of returned last, by Options.Client; empty: unknown.
func (s *Requests) Client() string {
	if s.o.Client == nil {
		return ""
	}
	key, err := s.o.Client(&s.request)
	if err != nil {
		return ""
	}
	key, _ = keyfunc.Classify(key)
	return key
}

// Of is the request that a server had. It is good until the next.
func (s *Requests) Of(e *accesslog.Entry) *http.Request {
	r := &s.request
	e.URL(&s.url)
	if len(s.header) > 0 {
		clear(s.header)
	}
	tier := e.Tier
	blank := s.blank[tier]
	if blank == nil {
		tier = strings.Clone(tier)
		blank = s.blank[""]
		blank = blank.WithContext(middleware.WithTier(blank.Context(), tier))
		s.blank[tier] = blank
	}
	*r = *blank
	r.Method, r.URL, r.RequestURI, r.Host, r.RemoteAddr = e.Method, &s.url, e.Target, e.Host, remoteAddr(e.Client)
	r.Header, r.ContentLength = s.header, -1
	r.Pattern = s.route(r)
	if e.UserAgent != "" {
		s.agent[0] = e.UserAgent
		r.Header["User-Agent"] = s.agent[:]
	}
	if e.ForwardedFor != "" {
		r.Header["X-Forwarded-For"] = []string{e.ForwardedFor}
	}
	for i, value := range e.Headers {
		if value != "" {
			s.setHeader(r, s.o.Headers[i], value)
		}
	}
	if e.User != "" {
		*r = *r.WithContext(keyfunc.WithUser(r.Context(), e.User))
	}
	return r
}

func (s *Requests) setHeader(r *http.Request, name, value string) {
	cookie, isCookie := strings.CutPrefix(name, "cookie:")
	switch {
	case isCookie:
		r.AddCookie(&http.Cookie{Name: cookie, Value: value, Quoted: strings.ContainsAny(value, " ,")})
	case name == "Content-Length":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			r.ContentLength = n
		}
	default:
		r.Header[name] = []string{value}
	}
}

// Key is a key of the application's own, as a log has it under key:NAME.
func Key(name string) keyfunc.Func {
	header := "key:" + name
	return func(r *http.Request) (string, error) {
		if values := r.Header[header]; len(values) > 0 {
			return name + ":" + values[0], nil
		}
		return "", keyfunc.ErrNoKey
	}
}

// route is what the service's router chooses.
func (s *Requests) route(r *http.Request) string {
	switch {
	case len(s.o.Routes) == 0:
		return ""
	case s.o.ServeMux:
		return s.router.OfMux(r)
	}
	return s.router.Route(r.Method, r.URL.Path)
}
