package middleware

import (
	"net/http"
	"net/netip"

	"github.com/weirgo/weir/keyfunc"
)

// IsPreflight matches CORS preflights: OPTIONS with Origin and Access-Control-Request-Method. As [Config.Allow] it lets preflights pass uncounted, for a limiter
// outside of the CORS handling, where a refused preflight breaks the call that it asks for.
//
// Any client can send these two headers, with any query and body, as often as it likes. So it is
// safe only if no handler behind the limiter runs on OPTIONS: the CORS handling must answer every
// preflight itself, whatever the origin. See docs/http.md for how to check. A handler for all
// methods, such as mux.Handle("/x", h), runs on OPTIONS too.
var IsPreflight Match = preflights{}

type preflights struct{}

func (preflights) Matches(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// preflightTag begins the key of a preflight in a rule with a key that it does not have.
const preflightTag = "preflight:"

// mostAddressKeys bounds what a preflight costs.
const mostAddressKeys = 32

// addressKeys are the keys among which preflightKey looks for the client's address: those of
// the rules for all requests first, and the TCP peer at last.
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
	for _, key := range set.banKeys {
		keys = append(keys, key.read)
	}
	add(set.all)
	return append(keys[:min(len(keys), mostAddressKeys)], keyfunc.IP())
}

// preflightKey is what a preflight counts under in a rule with a key that it does not have: the
// client's address, as the first key that is one says, with the proxies that it trusts.
func (set *ruleset) preflightKey(r *http.Request) (key string) {
	for _, f := range set.addresses {
		var err error
		if key, _, err = read(f, r); err == nil && isAddress(key) {
			break
		}
	}
	return preflightTag + key // the last function's error is always nil
}

// isAddress reports whether a key is what keyfunc.IP makes of an address.
func isAddress(key string) bool {
	if _, err := netip.ParseAddr(key); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(key)
	return err == nil
}
