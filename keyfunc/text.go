package keyfunc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/invalid"
)

// Parse reads a key written as text, in a file, a flag or the environment:
//
//	ip                the client's address, as [IP]
//	ip/24/48          its network, as IP with [Prefixes]
//	user              [User]; likewise bearer, route, method, host, tool, global, fingerprint
//	apikey:X-Api-Key  [APIKey] of that header; likewise header:X-Tenant, cookie:session
//	path:id           [PathValue] of that parameter
//	query:tenant      [Query] of that parameter
//	param:Account     [ToolParam] of that argument
//	json:model        [JSONField] of that field or path, in a body of up to 8 MiB; a longer one is answered 413
//	form:account      [FormField] of that field, in a body of up to 8 MiB; a longer one is answered 413
//	user|ip           the first of these that the request has, as [First]
//
// named has functions of your own by their names in the text: letters, digits, - and _. They take
// precedence over the names above. named may be nil. opts say how ip, ip/24/48 and fingerprint find the
// client's address.
//
// The error says which of the keys between bars is wrong, and does not quote it: it may be a
// credential.
func Parse(text string, named map[string]Func, opts ...IPOption) (Func, error) {
	var fs []Func
	for choice := range strings.SplitSeq(text, "|") {
		f, err := parseOne(strings.TrimSpace(choice), named, opts)
		if err != nil && strings.Contains(text, "|") {
			return nil, invalid.New("keyfunc", "choice %d of the key %w", len(fs)+1, err)
		}
		if err != nil {
			return nil, invalid.New("keyfunc", "the key %w", err)
		}
		fs = append(fs, f)
	}
	if len(fs) == 1 {
		return fs[0], nil
	}
	return First(fs...), nil
}

// plainKeys are the keys that are written as one word.
var plainKeys = map[string]Func{
	"user": User, "bearer": Bearer, "route": Route, "method": Method, "host": Host, "tool": Tool, "global": Global,
}

// keysOf are the keys that are written as a word, a colon and a name.
var keysOf = map[string]func(name string) (Func, error){
	"apikey": newAPIKey,
	"header": newHeader,
	"cookie": newCookie,
	"path":   newPathValue,
	"query":  newQuery,
	"param":  newToolParam,
	"json":   newJSON,
	"form":   newForm,
}

func parseOne(text string, named map[string]Func, opts []IPOption) (Func, error) {
	if f := named[text]; f != nil && isName(text) {
		return f, nil
	}
	if f := plainKeys[text]; f != nil {
		return f, nil
	}
	switch widths, isNetwork := strings.CutPrefix(text, "ip/"); {
	case text == "ip":
		return NewIP(opts...)
	case text == "fingerprint":
		return newFingerprint(opts)
	case isNetwork:
		return newNetwork(widths, opts)
	}
	kind, of, colon := strings.Cut(text, ":")
	switch newKey := keysOf[kind]; {
	case newKey == nil:
	case !colon || strings.TrimSpace(of) == "":
		return nil, fmt.Errorf("is of kind %s and has no name: want something like %s:X-Name", kind, kind)
	default:
		f, err := newKey(strings.TrimSpace(of))
		if err != nil {
			return nil, fmt.Errorf("is of kind %s and has a wrong name: %w", kind, errors.Unwrap(err))
		}
		return f, nil
	}
	return nil, fmt.Errorf("is not one of %s", strings.Join(keyNames(named), ", "))
}

// newNetwork is the key "ip/" and these widths.
func newNetwork(widths string, opts []IPOption) (Func, error) {
	first, second, _ := strings.Cut(widths, "/")
	ipv4, err := strconv.Atoi(first)
	ipv6, wrong := strconv.Atoi(second)
	if err != nil || wrong != nil || strconv.Itoa(ipv4)+"/"+strconv.Itoa(ipv6) != widths {
		return nil, errors.New("is a network without its two lengths: want something like ip/24/48, for IPv4 and IPv6")
	}
	prefixes := Prefixes(ipv4, ipv6)
	if _, err := NewIP(prefixes); err != nil {
		return nil, errors.New("is a network with a wrong length: want from 8 to 32 bits for IPv4, and from 32 to 128 for IPv6, as in ip/24/48")
	}
	return NewIP(append(slices.Clone(opts), prefixes)...)
}

// KindOf splits the text of a key (see [Classify]) into its kind, such as "header", its source as
// [Parse] reads it, such as "header:X-Tenant", and its value. Keys of the kinds apikey, join, hash
// and fp do not have their source in them: source is "". Other texts, such as addresses, have no kind.
func KindOf(text string) (kind, source, value string) {
	kind, rest, ok := strings.Cut(text, ":")
	if !ok {
		return "", "", text
	}
	switch kind + ":" {
	case headerTag, cookieTag, pathTag, queryTag, paramTag, formTag:
		name, value, _ := strings.Cut(rest, ":")
		return kind, kind + ":" + name, value
	case bodyTag:
		name, value, _ := strings.Cut(rest, ":")
		return kind, "json:" + name, value
	case userTag, bearerTag, routeTag, methodTag, hostTag, toolTag:
		return kind, kind, rest
	case apiKeyTag, joinTag, hashTag, fingerprintTag:
		return kind, "", rest
	}
	return "", "", text
}

// keyNames are all keys that can be written.
func keyNames(named map[string]Func) []string {
	names := map[string]bool{"ip": true, "ip/24/48": true, "fingerprint": true}
	for name, f := range named {
		if f != nil && isName(name) {
			names[name] = true
		}
	}
	for name := range plainKeys {
		names[name] = true
	}
	for kind := range keysOf {
		names[kind+":NAME"] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// isName reports whether s can be the name of a key in named.
func isName(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
