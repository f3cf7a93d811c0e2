package gateway

import (
	"errors"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// forwarded are the fields in which proxies describe the client. The gateway removes them, unless a
// proxy that the rules file trusts sends them. If the file trusts a number of hops, every peer is one.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// unwanted are fields that only harm a service: a path that replaces the request's, and a field that CGI programs
// take for $HTTP_PROXY. A trusted proxy may pass a client's on, so it does not matter who sends them.
var unwanted = []string{"Proxy", "X-Original-Url", "X-Rewrite-Url"}

// removed returns why identified removes a field before rules read it, or "" if a trusted proxy may send it.
func removed(proxies *rules.Proxies, field string) string {
	named := proxies.Header()
	switch {
	case route.IsOfConnection(field) && field != "Upgrade":
		return "as it is of one connection"
	case slices.Contains(unwanted, field):
		return "as services may take it for the request's path or a proxy's address"
	case field == "Forwarded" && named != "Forwarded":
		return "as proxies pass a client's on: if yours replace it, name them in proxies.forwarded"
	case field == "X-Forwarded-For" && named == "Forwarded":
		return "as proxies.forwarded says that proxies write Forwarded"
	}
	return ""
}

// lacksField returns why identified removes a field before rules read it, or "" if it does not.
func (g *Gateway) lacksField(proxies *rules.Proxies, name string) string {
	field := route.PlainField(name)
	isForwarded := slices.Contains(forwarded, field)
	why := removed(proxies, field)
	switch {
	case why == "" && !isForwarded && !slices.Contains(g.asserted, field):
		return ""
	case field != name:
		return "needs " + name + ", which a gateway removes: services may read it as " + field
	case why != "":
		return "needs " + name + ", which a gateway removes, " + why
	case proxies.None() && !(isForwarded && proxies.Hops()):
		return "needs " + name + ", which a gateway removes, unless a proxy sends it: name the proxies in proxies.trusted"
	}
	return ""
}

// identified removes the fields that a client must not send, and puts the user and the tier that a
// trusted proxy sent into the context. If it returns false, it has answered the request.
func (g *Gateway) identified(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	// ReverseProxy would pass "h2c", and requests inside that tunnel would escape all limits
	// (golang/go#80416). If Connection does not list Upgrade, ReverseProxy removes it.
	up := r.Header["Upgrade"]
	switches := len(up) == 1 && strings.EqualFold(up[0], "websocket") && r.ProtoAtLeast(1, 1) && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade")
	if !switches {
		delete(r.Header, "Upgrade")
	}
	inForce := g.Watcher.Rules()
	for field := range route.Listed(r.Header) {
		switch reads, _ := inForce.ReadsField(field); {
		case slices.Contains(forwarded, field), slices.Contains(g.asserted, field):
			// A proxy passes a client's Connection on. If it is trusted, its own fields stay.
		case reads:
			w.Header().Set("Cache-Control", "no-store")
			http.Error(w, "Connection lists the field "+field+", which a proxy would remove.", http.StatusBadRequest)
			return nil, false
		default:
			delete(r.Header, field)
		}
	}
	delete(r.Header, "Http2-Settings") // of an Upgrade to h2c
	if delete(r.Header, "Connection"); switches {
		r.Header["Connection"] = []string{"Upgrade"}
	}
	for name := range r.Header {
		field := route.PlainField(name)
		isForwarded := slices.Contains(forwarded, field)
		if !isForwarded && !slices.Contains(g.asserted, field) && !slices.Contains(unwanted, field) {
			if reads, similar := inForce.ReadsField(name); similar && !reads {
				delete(r.Header, name)
			}
			continue
		}
		proxies := inForce.Proxies()
		isTrusted := proxies.Has(r.RemoteAddr) || isForwarded && proxies.Hops()
		if field != name || !isTrusted || removed(proxies, field) != "" {
			delete(r.Header, name)
		}
	}
	ctx := r.Context()
	for _, name := range g.asserted {
		values := r.Header[name]
		switch {
		case len(values) == 0 || values[0] == "" && len(values) == 1:
		case len(values) > 1:
			http.Error(w, "The field "+name+" occurs twice.", http.StatusBadRequest)
			return nil, false
		default:
			if name == http.CanonicalHeaderKey(g.options.UserHeader) {
				ctx = keyfunc.WithUser(ctx, values[0])
			}
			if name == http.CanonicalHeaderKey(g.options.TierHeader) {
				ctx = middleware.WithTier(ctx, values[0])
			}
		}
	}
	if ctx != r.Context() {
		g.options.Log.Identify(ctx)
		r = r.WithContext(ctx)
	}
	return r, true
}

// rewrite makes the request for the upstream.
func (g *Gateway) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(g.upstream)
	r.Out.Host = r.In.Host
	if b := billOf(r.In.Context()); b != nil && b.usage {
		r.Out.Header.Set("Accept-Encoding", "identity")
	}
	// identified has left only the fields of a trusted proxy.
	if list := r.In.Header["X-Forwarded-For"]; list != nil {
		r.Out.Header["X-Forwarded-For"] = slices.Clone(list)
	}
	r.SetXForwarded()
	for _, name := range forwarded {
		if values := r.In.Header[name]; values != nil && name != "X-Forwarded-For" {
			r.Out.Header[name] = values
		}
	}
}

// modify refuses a response that switches to another protocol than websocket, and has the others settle their request.
func modify(r *http.Response) error {
	if r.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(r.Request.Header.Get("Upgrade"), "websocket") {
		return errors.New("it switched to another protocol")
	}
	billOf(r.Request.Context()).settle(r)
	return nil
}
