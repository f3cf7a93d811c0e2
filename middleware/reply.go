package middleware

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/internal/invalid"
)

// A Refusal changes the answer to requests that a rule refuses. The client still chooses the format: a
// problem object, plain JSON or text. The zero Refusal changes nothing.
type Refusal struct {
	// Status is the answer's status: from 400 to 599 if a limit is exceeded, and 403, 429 or 503 for
	// a rule with Deny. Zero: 429, or 403 with Deny.
	Status int

	// Type and Title are members of the problem object (RFC 9457). Type is a URI. If both are empty,
	// the problem type that fits sets them, such as quota-exceeded of the RateLimit draft. If only Type
	// is set, there is no title.
	Type, Title string

	// Message is a text of up to 1,000 bytes. {retry_after} stands for the time to wait in words ("12
	// seconds", "8 days"), {seconds} for that time in seconds, {rule} for the rule's name, and {limit}
	// for its limit ("100/1m"). If the refusal has no Retry-After, Weir's own sentence replaces a
	// message with {retry_after} or {seconds}. Empty: Weir's sentence.
	Message string

	// RetryAfter is the Retry-After of a rule with Deny, at most 366 days: until the end of a
	// maintenance, for example. As in every refusal, programs get 24 days at most. Zero: no Retry-After.
	RetryAfter time.Duration

	// Jitter is a percentage, from 1 to 100. Retry-After and the seconds in the body grow at random by
	// up to that much, or up to a second if that is more, so that clients refused together do not
	// return together. They never shrink, and the RateLimit fields stay exact. Retry-After is at most 24
	// days even with Jitter. Zero: no jitter.
	Jitter int

	// Paced is the longest time, at most 366 days, that is added to a wait so that clients return one after another, at
	// the rate of the limit: each refused client gets the next free place in a line. It needs a rule with the Key
	// [keyfunc.Global] and a rate. Config.Refusal sets it for all such rules. Each process has its own lines, one for
	// each tier of a rule, so with n processes clients return n times as fast. A client that does not wait takes a place
	// with each request, so that its flood moves everybody to the exact wait plus Paced: put a limiter by client in
	// front. A rule beside this one is not charged while this one refuses. The fields for reset, StopAbove, Usage and
	// Result stay exact. Jitter comes on top. Zero: not paced.
	Paced time.Duration

	// StopAbove is the longest wait, at most 366 days, that clients should wait out. A refusal with a longer one,
	// before Paced and Jitter, or for which waiting does not help, carries X-Should-Retry: false, for gRPC a negative
	// pushback; JSON and problem objects then have "retry": false. Many SDKs then return an error at once instead
	// of waiting for hours. Retry-After stays. That of Config.Refusal is also for bans, 400 and 401. Negative: never,
	// also where Config.Refusal has one. Zero: never.
	StopAbove time.Duration

	// Body is the form of JSON bodies. In Config.Refusal it also applies to bans, 400, 401, 503, and rules with Deny.
	// Zero: the Body of Config.Refusal, or BodyPlain.
	Body Body

	// Stream answers the EventSource of a browser, which a 429 closes for good, with an event stream that ends at once:
	// status 200 and "retry:" with the time to wait, after which the browser connects again. It is for a GET of HTTP/1.1
	// or later whose Accept is text/event-stream and nothing else, on a route that the rule's own Match names or its
	// pattern in Config.ByRoute, if a limit refuses it for at most 60 seconds and StopAbove has no objection. All other
	// refusals stay as they are. Logs, metrics and Counts see the status 429. The browser keeps the time for later
	// connections, so let handlers begin each stream with a "retry:" of their own. Put what sets the fields of CORS
	// around the limiter, as a browser does not read a stream without them.
	//
	// A proxy that asks about a request takes 200 for a yes. So a request with a field that such proxies set is
	// answered 429: X-Forwarded-Uri, X-Forwarded-Method, X-Original-*, X-Auth-Request-* and X-Envoy-*. nginx sets a field
	// only if told to: never set Stream for a route that a proxy asks. In Config.Refusal it is for all rules that name a
	// route. False: a stream is refused like any other request.
	Stream bool

	// Answer writes the answer instead of Weir. The header fields are set already, Retry-After
	// included. The status is result.Status unless Answer writes another. Nil: a short body in the
	// format that the client accepts.
	Answer func(w http.ResponseWriter, r *http.Request, result Result)
}

// A Body is a form of the JSON in refusals. Problem objects, text, JSON-RPC, gRPC and Connect do not depend on it.
type Body uint8

const (
	// BodyPlain is {"error": code, "message": text, "retry_after": seconds}.
	BodyPlain Body = iota + 1

	// BodyAI is an error that the SDKs of OpenAI, Anthropic and Stripe parse, with retry_after beside it:
	// {"type": "error", "error": {"type": "rate_limit_error", "code": ..., "message": ..., "param": null}}. The other
	// types are permission_error, invalid_request_error, authentication_error and overloaded_error, for a 503.
	BodyAI
)

// mostMessage bounds the texts of a Refusal, in bytes.
const mostMessage = 1000

// Validate returns everything that is wrong with r, joined, or nil. [New] checks the further conditions
// of a rule with Deny.
func (r Refusal) Validate() error {
	var errs []error
	reject := func(wrong bool, field, format string, args ...any) {
		if wrong {
			errs = append(errs, invalid.Field("middleware", field, format, args...))
		}
	}
	_, err := url.Parse(r.Type)
	title, message := wrongText(r.Title), wrongText(r.Message)
	reject(r.Status != 0 && (r.Status < 400 || r.Status > 599), "Refusal.Status",
		"is %d: it must be from 400 to 599", r.Status)
	reject(err != nil || strings.ContainsFunc(r.Type, notInURI), "Refusal.Type", "is %.100q: it is not a URI", r.Type)
	reject(title != "", "Refusal.Title", "%s", title)
	reject(message != "", "Refusal.Message", "%s", message)
	reject(message == "" && !answer.IsMessage(r.Message),
		"Refusal.Message", "has a { that begins none of {retry_after}, {seconds}, {rule}, {limit}")
	reject(r.RetryAfter < 0 || r.RetryAfter > 366*24*time.Hour, "Refusal.RetryAfter",
		"is %v: it must be from 0 to 366 days", r.RetryAfter)
	reject(r.Paced < 0 || r.Paced > 366*24*time.Hour, "Refusal.Paced", "is %v: it must be from 0 to 366 days", r.Paced)
	reject(r.StopAbove > 366*24*time.Hour, "Refusal.StopAbove",
		"is %v: it must be at most 366 days", r.StopAbove)
	reject(r.Body > BodyAI, "Refusal.Body", "is %d: there is no such choice", r.Body)
	reject(r.Jitter < 0 || r.Jitter > 100, "Refusal.Jitter",
		"is %d: it must be from 1 to 100 percent, or 0 for none", r.Jitter)
	return errors.Join(errs...)
}

// inherited returns the Refusal of a rule, with what it inherits from the Config's.
func (c *compiler) inherited(at invalid.Place, given Rule) Refusal {
	r := given.Refusal
	if !c.check(at, r.Validate()) {
		return r
	}
	r.Body, r.Paced = cmp.Or(r.Body, c.refusal.Body), c.paced(at, given)
	if given.Mode != Deny {
		c.reject(r.RetryAfter != 0, at.Of("Refusal.RetryAfter"),
			"is %v: it is only for a rule that denies, as a limit computes it", r.RetryAfter)
		r.inherit(c.refusal)
		return r
	}
	if _, isOfMCP := given.Match.(beforeMCP); isOfMCP {
		return r
	}
	switch r.Status = cmp.Or(r.Status, http.StatusForbidden); r.Status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		c.report(at.Of("Refusal.Status"), "is %d: it must be 403, 429 or 503 for a rule that denies", r.Status)
	}
	return r
}

// inherit fills the zero fields of r from the Refusal of the Config.
func (r *Refusal) inherit(general Refusal) {
	r.Status = cmp.Or(r.Status, general.Status)
	if r.Type == "" && r.Title == "" { // Type and Title belong together
		r.Type, r.Title = general.Type, general.Title
	}
	r.Message = cmp.Or(r.Message, general.Message)
	r.Jitter = cmp.Or(r.Jitter, general.Jitter)
	r.StopAbove = cmp.Or(r.StopAbove, general.StopAbove)
	r.Stream = r.Stream || general.Stream
}

func notInURI(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"<>\^{|}`+"`", c) }

func wrongText(text string) string {
	switch {
	case len(text) > mostMessage:
		return "has " + strconv.Itoa(len(text)) + " bytes: at most 1,000 are possible"
	case !utf8.ValidString(text):
		return "is not UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "has a control character, such as the end of a line"
	}
	return ""
}
