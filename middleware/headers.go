package middleware

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/weirgo/weir/internal/invalid"
)

// Headers says which header fields report quotas to clients, and how. Retry-After does not depend on
// it: a refusal has Retry-After if waiting helps.
type Headers struct {
	// Send says which fields responses carry. Zero: HeadersLegacy.
	Send Dialect

	// Prefix begins the names of the HeadersLegacy fields, before -Limit, -Remaining, -Reset and
	// -Retry-After: X-Rate-Limit or RateLimit, for example. Empty: X-RateLimit.
	Prefix string

	// Delta makes X-RateLimit-Reset a number of seconds from now. False: it is a time, in seconds since
	// 1970.
	Delta bool

	// RetryAfter repeats Retry-After, in each refusal that has it, as a HeadersLegacy field with Prefix:
	// X-RateLimit-Retry-After. False: no such field.
	RetryAfter bool
}

// A Dialect is a family of header fields. All but HeadersNone also send X-RateLimit-Warning for rules that
// have reached SoftAt.
type Dialect uint8

const (
	// HeadersLegacy sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset of the
	// strictest limit. They leave out AtOnce, because nobody knows when a slot becomes free: a request
	// that met nothing but AtOnce has none. Reset is in seconds since 1970, as at GitHub.
	//
	// It is the default because clients read X-RateLimit: of 90 HTTP clients and set-ups tested in
	// November 2026, three wait until X-RateLimit-Reset, and none uses the fields of HeadersDraft11.
	HeadersLegacy Dialect = iota

	// HeadersBoth sends HeadersLegacy and HeadersDraft11. Package pace reads in RateLimit when the next
	// unit comes, and in X-RateLimit-Reset only when all are free.
	HeadersBoth

	// HeadersDraft11 sends RateLimit-Policy and RateLimit, which list every rule, as in
	// draft-ietf-httpapi-ratelimit-headers-11, which expired in November 2026. They show each client the
	// names and numbers of all rules that it meets, and make Weir a quarter slower. Without the
	// HeadersLegacy fields, Octokit's throttling does not retry, and go-github sends requests that are
	// refused.
	HeadersDraft11

	// HeadersNone sends none of these fields.
	HeadersNone
)

// Validate returns what is wrong with f, or nil.
func (f Headers) Validate() error {
	const most = 64
	if f.Send > HeadersNone {
		return invalid.Field("middleware", "Headers.Send", "is %d: there is no such choice", f.Send)
	}
	if (f.Prefix != "" || f.Delta || f.RetryAfter) && (f.Send == HeadersDraft11 || f.Send == HeadersNone) {
		return invalid.Field("middleware", "Headers.Send", "excludes the legacy fields, and their prefix, reset or retry-after is set")
	}
	if len(f.Prefix) > most || strings.ContainsFunc(f.Prefix, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-')
	}) {
		return invalid.Field("middleware", "Headers.Prefix", "is %.64q: it must be up to 64 letters, digits and -", f.Prefix)
	}
	// X-Rate-Limit is a prefix, and X-Rate-Limit-Limit the name of a field.
	name := strings.ToLower(f.Prefix)
	whole, isLimit := strings.CutSuffix(name, "-limit")
	if isLimit && strings.HasSuffix(whole, "limit") || strings.HasSuffix(name, "-remaining") ||
		strings.HasSuffix(name, "-reset") || strings.HasSuffix(name, "-retry-after") {
		return invalid.Field("middleware", "Headers.Prefix", "is %q, a whole field name: it must be the prefix of the names, such as %q",
			f.Prefix, f.Prefix[:strings.LastIndexByte(strings.TrimSuffix(name, "-after"), '-')])
	}
	return nil
}

// name returns the name of a field, in canonical form.
func (f Headers) name(end string) string {
	return http.CanonicalHeaderKey(cmp.Or(f.Prefix, "X-RateLimit") + end)
}

// The fields' names in net/http's canonical form, under which Header.Get finds them.
const (
	fieldPolicy    = "Ratelimit-Policy"
	fieldRateLimit = "Ratelimit"
	fieldWarning   = "X-Ratelimit-Warning"
)
