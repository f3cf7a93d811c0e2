// Package ask answers proxies that ask about each request before they pass it on: nginx's
// auth_request, Caddy's forward_auth, Traefik's forwardAuth, and HAProxy in Lua.
package ask

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// handler decides about the request that X-Forwarded-Method, -Host, -Uri and -For describe:
//
//   - /forward answers 204, or the whole refusal, which the proxy passes on;
//   - /nginx answers 204, or 403 with the refusal's status in Weir-Status, because auth_request
//     turns other statuses into 500.
//
// All answers say no-store: a script of the proxy can distinguish them from the proxy's own.
//
// The last address of X-Forwarded-For is the proxy's peer. The peer sent the addresses before it. The
// answer has the quota fields.
//
// limited puts the rules in front of a handler. It does not learn how a request ends.
func handler(limited func(http.Handler) http.Handler) http.Handler {
	decide := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	answer := func(wrap func(http.ResponseWriter) http.ResponseWriter) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w = wrap(w)
			about, err := described(r)
			if err != nil { // the proxy is misconfigured
				http.Error(w, "weir: "+err.Error(), http.StatusBadRequest)
				return
			}
			if about.Method == http.MethodHead {
				w = withoutBody{w}
			}
			decide.ServeHTTP(w, about)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/forward", answer(func(w http.ResponseWriter) http.ResponseWriter { return w }))
	mux.Handle("/nginx", answer(func(w http.ResponseWriter) http.ResponseWriter { return &forNginx{ResponseWriter: w} }))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// described returns the request that the proxy asks about.
func described(r *http.Request) (*http.Request, error) {
	method, err := one(r, "X-Forwarded-Method")
	if err != nil {
		return nil, err
	}
	text, err := one(r, "X-Forwarded-Uri")
	if err != nil {
		return nil, err
	}
	target, err := url.ParseRequestURI(text)
	if err != nil {
		return nil, errors.New("X-Forwarded-Uri is not the target of a request")
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	peer, err := netip.ParseAddr(strings.TrimSpace(hops[len(hops)-1]))
	if err != nil {
		return nil, errors.New("X-Forwarded-For does not end with the address of the proxy's client")
	}
	host := r.Header.Get("X-Forwarded-Host")
	if host != "" || len(r.Header.Values("X-Forwarded-Host")) > 1 { // a client of HTTP/1.0 may have none
		if host, err = one(r, "X-Forwarded-Host"); err != nil {
			return nil, err
		}
	}
	about := r.WithContext(r.Context())
	about.Method, about.URL, about.RequestURI = method, target, text
	about.Host = host
	about.RemoteAddr = net.JoinHostPort(peer.String(), "0")
	about.Body, about.ContentLength, about.TransferEncoding = http.NoBody, 0, nil
	about.Header = maps.Clone(r.Header)
	for _, field := range ofQuestions {
		about.Header.Del(field)
	}
	if len(hops) > 1 {
		about.Header.Set("X-Forwarded-For", strings.Join(hops[:len(hops)-1], ","))
	}
	return about, nil
}

// ofQuestions are the fields that describe the request.
var ofQuestions = []string{"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-For", "X-Forwarded-Host"}

// one returns the value of a field that the proxy must send once.
func one(r *http.Request, field string) (string, error) {
	switch values := r.Header.Values(field); {
	case len(values) > 1:
		return "", fmt.Errorf("%s occurs %d times: the proxy must replace what its client sends", field, len(values))
	case len(values) == 0 || values[0] == "":
		return "", fmt.Errorf("%s is missing", field)
	default:
		return values[0], nil
	}
}

// withoutBody is for a proxy's GET about a HEAD request. The refusal of a HEAD request has a
// Content-Length and no body.
type withoutBody struct{ http.ResponseWriter }

func (w withoutBody) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

// forNginx turns every refusal into 403.
type forNginx struct {
	http.ResponseWriter
	refuses bool
}

func (w *forNginx) WriteHeader(status int) {
	if w.refuses = status >= 300; w.refuses {
		w.Header().Set("Weir-Status", strconv.Itoa(status))
		w.Header().Del("Content-Length")
		w.Header().Del("Content-Type")
		status = http.StatusForbidden
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *forNginx) Write(b []byte) (int, error) {
	if w.refuses { // auth_request reads no body
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
