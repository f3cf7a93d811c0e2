// Package operate reads keys as people write them, and writes numbers for people. It is for the command, the
// dashboard and rules files.
package operate

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/keyfunc"
)

// No error of this package quotes the text: it may be a credential, and errors are logged.
var (
	ErrNetwork = errors.New("this is a network, and no key: networks go into ban.cidrs of a rules file")
	ErrQuotes  = errors.New("the key begins with a quotation mark, and is not a string in quotation marks")
	ErrNoKey   = errors.New("no request can have this key: want an address (203.0.113.7, 2001:db8::1); or what the key is, a colon and its text (user:42, apikey:KEY, bearer:TOKEN, header:X-Tenant:acme, cookie:session:8f3a, path:id:42, query:tenant:acme, host:example.com, method:GET, route:GET /search, tool:search), or join:, hash: or fp: as weir explain shows them; or a key of the application's own, in quotation marks")
)

// Key returns the key that a person means by text:
//
//   - for an address, the address, or for IPv6 its /64
//   - for a network that [keyfunc.IP] can return, the text
//   - for a key of a kind of package keyfunc, the key as requests spell it
//   - for one of own, the application's own kinds, and a colon, the text
//   - for a Go string in quotation marks, its value
//
// The empty text is the key of rules without a Key. Any other text is an error.
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
		return ofAddress(ip)
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		own, err := ofAddress(prefix.Addr())
		if err != nil {
			return "", err
		}
		isIPv4 := !strings.Contains(own, ":") // of an address under 2002::/16, too
		if isNetwork(text, prefix) && isIPv4 == prefix.Addr().Is4() {
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
	case kind != text && slices.Contains(own, kind): // the application's
		return text, nil
	case isMade(text):
		return text, nil
	}
	spelled, err := Spelled(text)
	if err != nil || !strings.EqualFold(withoutSpaces(spelled), withoutSpaces(text)) {
		return "", ErrNoKey // also if only a part of text is a key
	}
	return spelled, nil
}

func ofAddress(ip netip.Addr) (string, error) {
	return keyfunc.IP()(&http.Request{RemoteAddr: netip.AddrPortFrom(ip, 1).String()})
}

// isNetwork reports whether text is spelled as [keyfunc.IP] spells a network.
func isNetwork(text string, prefix netip.Prefix) bool {
	least, most := 32, 128
	if prefix.Addr().Is4() {
		least, most = 8, 31
	}
	return prefix.Bits() >= least && prefix.Bits() <= most && prefix.Masked().String() == text
}

// ClaimedNote is the caveat for who bans a key of the class [keyfunc.Claimed].
const ClaimedNote = "Any client can send this key: the ban locks out its owner, and the client that sent it can send another."

// BanNote returns a caveat for the operator who bans these keys, or "".
func BanNote(keys ...string) string {
	for _, key := range keys {
		if _, class := keyfunc.Classify(key); class == keyfunc.Claimed {
			return ClaimedNote + " To stop that client, ban its address."
		}
		if IsNetwork(key) {
			return "A ban on a network holds where a rule counts networks of that length, as key: ip/24/48 does. List the network in ban.cidrs to ban it everywhere."
		}
	}
	return ""
}

// IsNetwork reports whether the key is a network, which only rules with such networks as keys count, and not an
// address or the /64 of one.
func IsNetwork(key string) bool {
	prefix, err := netip.ParsePrefix(key)
	return err == nil && prefix.Bits() != 64
}

// Ends returns when an override or a ban ends, and why there is one: ` until 2026-12-24, because "scraper"`.
func Ends(until time.Time, because string) (text string) {
	if !until.IsZero() {
		text = " until " + strings.TrimSuffix(until.UTC().Format(time.RFC3339), "T00:00:00Z")
	}
	if because != "" {
		text += ", because " + strconv.Quote(because)
	}
	return text
}

func withoutSpaces(text string) string { return strings.ReplaceAll(text, " ", "") }

// isMade reports whether text is a key that keyfunc makes from other keys.
func isMade(text string) bool {
	switch kind, _, rest := keyfunc.KindOf(text); kind {
	case "hash", "fp":
		sum, err := base64.RawURLEncoding.Strict().DecodeString(rest)
		return err == nil && len(sum) == 32
	}
	return Parts(text) != nil
}

// Parts returns the keys in a joined key, or nil if text is no joined key. In text, each part
// follows its length and a colon. A part that the request lacked is empty.
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

// Spelled returns the key of a request with the user, header or other value that text names.
// The key differs from text if no request's key is spelled like text.
func Spelled(text string) (string, error) {
	kind, source, value := keyfunc.KindOf(text)
	if kind == "apikey" {
		source = "apikey:X-Api-Key" // the key does not name its header
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

// request returns a request with such a key.
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
	case "tool":
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "=?base64?"+base64.StdEncoding.EncodeToString([]byte(value))+"?=")
	case "param":
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set(keyfunc.ParamField+name, "=?base64?"+base64.StdEncoding.EncodeToString([]byte(value))+"?=")
	case "host":
		r.Host = value
	case "route":
		r.Pattern = value
	case "query":
		r.URL = &url.URL{Path: "/", RawQuery: url.Values{name: {value}}.Encode()}
	case "path":
		r.Pattern, r.URL = "/{"+name+"...}", &url.URL{Path: "/" + value}
	case "form":
		r.Method = http.MethodPost
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Body = io.NopCloser(strings.NewReader(url.Values{name: {value}}.Encode()))
	case "body":
		text, _ := json.Marshal(value)
		for _, field := range slices.Backward(strings.Split(name, ".")) {
			text, _ = json.Marshal(map[string]json.RawMessage{field: text})
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
	}
	return r
}
