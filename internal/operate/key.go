// Package operate is what the command, the dashboard and rules files share: how people write
// a key.
package operate

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/keyfunc"
)

// No error of this package has the text in it: it may be a credential, and errors are logged.
var (
	ErrNetwork = errors.New("this is a network, and no key: networks go into ban.cidrs of a rules file")
	ErrQuotes  = errors.New("the key begins with a quotation mark, and is not a string in quotation marks")
	ErrNoKey   = errors.New("no request can have this key: want an address (203.0.113.7, 2001:db8::1); or what the key is, a colon and its text (user:42, apikey:KEY, bearer:TOKEN, header:X-Tenant:acme, cookie:session:8f3a, path:id:42, query:tenant:acme, host:example.com, method:GET, route:GET /search), or join:, hash: or fp: as weir explain shows them; or a key of the application's own, in quotation marks")
)

// Key is the key that is counted where a person writes text:
//
//   - an address is the key that it is counted under: of an IPv6 client its /64
//   - a network is itself
//   - a key of a kind of package keyfunc is spelled as a request has it
//   - a key that begins with one of own, the application's own kinds, and a colon is itself
//   - what is in quotation marks, a string of Go, is taken to the letter
//
// No text stands for the counter of all clients. Anything else no request can have.
func Key(text string, own ...string) (string, error) {
	text, _ = keyfunc.Classify(text)
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, `"`) {
		key, err := strconv.Unquote(text)
		if err != nil {
			return "", ErrQuotes
		}
		return key, nil
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		r := &http.Request{RemoteAddr: netip.AddrPortFrom(ip, 1).String()}
		return keyfunc.IP()(r)
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if isNetwork(text, prefix) {
			return text, nil
		}
		return "", ErrNetwork
	}
	kind, rest, _ := strings.Cut(text, ":")
	if kind == "preflight" && kind != text { // a preflight is counted on the client's address
		address, err := Key(rest)
		return kind + ":" + address, err
	}
	switch {
	case text == "", text == "global", text == "no-ip":
		return text, nil
	case kind != text && slices.Contains(own, kind):
		return text, nil
	case isMade(text):
		return text, nil
	}
	spelled, err := Spelled(text)
	if err != nil || !strings.EqualFold(withoutSpaces(spelled), withoutSpaces(text)) {
		return "", ErrNoKey // which may also be a part of what was written
	}
	return spelled, nil
}

// isNetwork reports whether text is spelled as [keyfunc.IP] spells a network.
func isNetwork(text string, prefix netip.Prefix) bool {
	least, most := 32, 128
	if prefix.Addr().Is4() {
		least, most = 8, 31
	}
	return prefix.Bits() >= least && prefix.Bits() <= most && prefix.Masked().String() == text
}

// BanNote is what an operator should know of a ban on these keys, or "".
func BanNote(keys ...string) string {
	for _, key := range keys {
		if prefix, err := netip.ParsePrefix(key); err == nil && prefix.Bits() != 64 {
			return "A ban on a network holds where a rule counts networks of that length, as key: ip/24/48 does. List the network in ban.cidrs to ban it everywhere."
		}
	}
	return ""
}

func withoutSpaces(text string) string { return strings.ReplaceAll(text, " ", "") }

// isMade reports whether text is built as keyfunc builds keys of other keys.
func isMade(text string) bool {
	switch kind, _, rest := keyfunc.KindOf(text); kind {
	case "hash", "fp":
		sum, err := base64.RawURLEncoding.Strict().DecodeString(rest)
		return err == nil && len(sum) == 32
	}
	return Parts(text) != nil
}

// Parts are the keys that a joined key is made of, or nil if text is no joined key. Each has its
// length and a colon in front; one that the request does not have is empty.
func Parts(text string) (parts []string) {
	text, ok := strings.CutPrefix(text, "join:")
	for ok && text != "" {
		digits, rest, _ := strings.Cut(text, ":")
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > len(rest) || digits != strconv.Itoa(n) {
			return nil
		}
		parts, text = append(parts, rest[:n]), rest[n:]
	}
	return parts
}

// Spelled is the key of a request that has what such a text says: a user, or a header with
// that value. It differs from the text where that is spelled as no request's key is.
func Spelled(text string) (string, error) {
	kind, source, value := keyfunc.KindOf(text)
	if kind == "apikey" {
		source = "apikey:X-Api-Key" // the key does not say of which header
	}
	f, err := keyfunc.Parse(source, nil)
	if err != nil {
		return "", ErrNoKey
	}
	_, name, _ := strings.Cut(source, ":")
	if kind != "user" && strings.ContainsFunc(value, isControl) {
		return "", ErrNoKey // net/http refuses it
	}
	key, err := f(request(kind, name, value))
	spelled, _ := keyfunc.Classify(key)
	return spelled, err
}

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// request is one with a key of that kind.
func request(kind, name, value string) *http.Request {
	r := &http.Request{Header: http.Header{}}
	switch kind {
	case "user":
		r = r.WithContext(keyfunc.WithUser(r.Context(), value))
	case "bearer":
		r.Header.Set("Authorization", "Bearer "+value)
	case "header", "apikey":
		r.Header.Set(name, value)
	case "cookie":
		r.Header.Set("Cookie", name+"="+value)
	case "method":
		r.Method = value
	case "host":
		r.Host = value
	case "route":
		r.Pattern = value
	case "query":
		r.URL = &url.URL{Path: "/", RawQuery: url.Values{name: {value}}.Encode()}
	case "path":
		r.Pattern, r.URL = "/{"+name+"...}", &url.URL{Path: "/" + value}
	}
	return r
}
