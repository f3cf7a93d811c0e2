// Package operate is what the command and the dashboard share: how an operator names a key.
package operate

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirgo/weir/keyfunc"
)

// Key is the key that is counted where somebody writes an address: of an IPv6 client its
// /64. Anything else is a key as it is. A network is an error, as it is no client's key.
func Key(text string) (string, error) {
	text = strings.TrimSpace(text)
	if ip, err := netip.ParseAddr(text); err == nil {
		r := &http.Request{RemoteAddr: netip.AddrPortFrom(ip, 1).String()}
		return keyfunc.IP()(r)
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return text, nil
	}
	if prefix.Addr().Is6() && prefix == prefix.Masked() {
		return text, nil // as keyfunc writes it, for whatever length
	}
	return "", fmt.Errorf("%s is a network, and no key: networks go into ban.cidrs of a rules file", text)
}
