package simulate

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// Options say what a service knows about requests, beside its rules.
type Options struct {
	// Routes are the router's routes. ServeMux says that it is an http.ServeMux.
	Routes   []string
	ServeMux bool

	// Headers are the names of the entries' Headers: headers, cookie:NAME, or key:NAME, which [Key]
	// reads. "" is a header that would name clients, and that nobody reads: see [Peers].
	Headers []string

	// Trust, if set, finds the client before the rules meet a request, as their proxies section would. It
	// is from [keyfunc.NewIP], with an IPv6Prefix of 128.
	Trust keyfunc.Func

	// Client returns the key of a client in the tally, from its address and the header fields that
	// name addresses.
	Client keyfunc.Func

	// LeftOut names rules that no request meets.
	LeftOut []string

	// Answers makes decisions with the header fields of responses, for [Simulation.Serve].
	Answers bool
}

// Requests makes requests of a log's entries. Only one goroutine may use it.
type Requests struct {
	o      Options
	router *route.Router

	client string // see Client
	peers  Peers

	request http.Request // with its parts, which the next request reuses
	url     url.URL
	header  http.Header
}

// remoteAddr returns an address as net/http writes it.
func remoteAddr(client string) string {
	if client == accesslog.UnixSocket || client == "" {
		return "@"
	}
	return net.JoinHostPort(client, "1024")
}

// NewRequests returns Requests for these options.
func NewRequests(o Options) *Requests {
	return &Requests{o: o, router: route.NewRouter(o.Routes), header: http.Header{}}
}

// Client returns the client of the request that Of returned last, by Options.Client; "": unknown.
func (s *Requests) Client() string { return s.client }

// Peers are numbers of requests that count as their TCP peer's, though another may be the client.
type Peers struct {
	Unnamed int64 // from a trusted proxy that does not name the client
	Unread  int64 // with a header that nobody reads; see Options.Headers
}

// Peers returns the numbers so far.
func (s *Requests) Peers() Peers { return s.peers }

// findClient sets the client of r, and with Trust its address.
func (s *Requests) findClient(r *http.Request) {
	if address, class := s.keyOf(s.o.Trust, r); class == keyfunc.Own && address != "" {
		r.RemoteAddr = remoteAddr(strings.TrimSuffix(address, "/128"))
		delete(r.Header, "X-Forwarded-For")
	}
	s.client, _ = s.keyOf(s.o.Client, r)
}

// keyOf returns a key, and counts the request if its proxy does not name the client.
func (s *Requests) keyOf(f keyfunc.Func, r *http.Request) (text string, class keyfunc.Class) {
	if f == nil {
		return "", keyfunc.Own
	}
	key, err := f(r)
	if err != nil {
		return "", keyfunc.Own
	}
	if text, class = keyfunc.Classify(key); class == keyfunc.InDoubt {
		s.peers.Unnamed++
	}
	return text, class
}

// Of returns an entry's request as a server receives it. It is valid until the next call.
func (s *Requests) Of(e *accesslog.Entry) *http.Request {
	r := &s.request
	e.URL(&s.url)
	if len(s.header) > 0 {
		clear(s.header)
	}
	ctx := context.Background()
	if e.Tier != "" {
		ctx = middleware.WithTier(ctx, e.Tier)
	}
	if e.User != "" {
		ctx = keyfunc.WithUser(ctx, e.User)
	}
	*r = http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Method: e.Method, URL: &s.url, RequestURI: e.Target, Host: e.Host,
		RemoteAddr: remoteAddr(e.Client), Header: s.header, Body: http.NoBody, ContentLength: -1,
	}
	if ctx != context.Background() {
		*r = *r.WithContext(ctx)
	}
	r.Pattern = s.route(r)
	for i, value := range e.Headers {
		if value != "" {
			s.setHeader(r, s.o.Headers[i], value)
		}
	}
	s.findClient(r)
	return r
}

func (s *Requests) setHeader(r *http.Request, name, value string) {
	cookie, isCookie := strings.CutPrefix(name, "cookie:")
	switch {
	case name == "":
		s.peers.Unread++
	case isCookie:
		r.Header.Add("Cookie", cookie+"="+value)
	case name == "Content-Length":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			r.ContentLength = n
		}
	default:
		r.Header[name] = strings.Split(value, "\n")
	}
}

// Key returns the application's key that a log has as key:NAME.
func Key(name string) keyfunc.Func {
	header := "key:" + name
	return func(r *http.Request) (string, error) {
		if values := r.Header[header]; len(values) > 0 {
			return name + ":" + values[0], nil
		}
		return "", keyfunc.ErrNoKey
	}
}

// route returns the route that the service's router chooses.
func (s *Requests) route(r *http.Request) string {
	switch {
	case len(s.o.Routes) == 0:
		return ""
	case s.o.ServeMux:
		return s.router.OfMux(r)
	}
	return s.router.Route(r.Method, r.URL.Path)
}
