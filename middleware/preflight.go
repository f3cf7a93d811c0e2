package middleware

import (
	"net/http"
	"net/netip"

	"github.com/weirgo/weir/keyfunc"
)

// IsPreflight matches CORS preflights: OPTIONS with Origin and Access-Control-Request-Method. As
// [Config.Allow] it admits preflights uncounted. Use it if the limiter runs before the CORS handling:
// there a refused preflight would make the browser drop the call that follows it.
//
// Any client can send these two headers, with any query and body, as often as it likes. So IsPreflight
// is safe in Config.Allow only if no handler behind the limiter runs on OPTIONS: the CORS handling must
// answer every preflight itself, whatever the origin. A handler for all methods, such as
// mux.Handle("/x", h), runs on OPTIONS too. docs/routes.md says how to check.
var IsPreflight Match = MatchFunc(isPreflight)

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// preflightTag begins the key of a preflight that lacks the rule's key.
const preflightTag = "preflight:"

// mostAddressKeys bounds how many key functions a preflight calls.
const mostAddressKeys = 32

// addressKeys returns the key functions that preflightKey tries for the client's address: those of the
// rules for all requests first, and the TCP peer last.
func (set *ruleset) addressKeys() (keys []keyfunc.Func) {
	add := func(rules []*rule) {
		for _, r := range rules {
			if r.Key != nil {
				keys = append(keys, r.Key)
			}
		}
	}
	add(set.always)
	add(set.fallback)
	add(set.banKeys)
	add(set.all)
	return append(keys[:min(len(keys), mostAddressKeys)], keyfunc.IP())
}

// preflightKey returns the key of a preflight that lacks the rule's key: the first key that is an
// address, found with the proxies that its function trusts.
func (set *ruleset) preflightKey(r *http.Request) (key string) {
	for _, f := range set.addresses {
		var err error
		if key, _, err = read(f, r); err == nil && isAddress(key) {
			break
		}
	}
	return preflightTag + key // the last function's error is always nil
}

// isAddress reports whether a key is one of keyfunc.IP's.
func isAddress(key string) bool {
	if _, err := netip.ParseAddr(key); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(key)
	return err == nil
}
