package middleware

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/invalid"
)

// A Refusal is what clients are answered that a rule refuses, where that is not what Weir
// answers by itself. The format is still the one that the client accepts: a problem object,
// plain JSON or text, each with the message in its place. The zero Refusal changes nothing.
type Refusal struct {
	// Status is the answer's: from 400 to 599 for a limit that is exceeded, and 403, 429 or 503
	// for a rule with Deny. Zero: 429, and 403 with Deny.
	Status int

	// Type and Title are those of the problem object (RFC 9457). Type is a URI. Empty: those of
	// the registered problem, or no title where there is a Type.
	Type, Title string

	// Message is a text of up to 1,000 bytes, in which {retry_after} stands for the time to wait
	// in words ("12 seconds", "8 days"), {seconds} for the seconds as a number, {rule} for the rule's name
	// and {limit} for its limit ("100/1m"). A message with one of the first two is not used where
	// there is no such time. Empty: a sentence of Weir's.
	Message string

	// RetryAfter is the Retry-After of a rule with Deny, as for the end of a maintenance, up to
	// a year. Zero: there is none.
	RetryAfter time.Duration

	// Jitter makes Retry-After, and the seconds in the body, later by up to so many percent at
	// random, and by up to a second at least: clients that were refused together come back apart.
	// They are never told to come back sooner, and the RateLimit fields stay exact. From 1 to 100.
	// Zero: none.
	Jitter int

	// Answer writes the answer in place of Weir. The header fields, Retry-After among them, are set
	// already. The status is result.Status unless Answer writes another. Nil: a short body in the
	// format that the client accepts.
	Answer func(w http.ResponseWriter, r *http.Request, result Result)
}

// mostMessage is how long a text of a Refusal may be.
const mostMessage = 1000

// Validate returns everything that is wrong with r, joined, or nil. What a rule with Deny can
// answer is checked where the rule is.
func (r Refusal) Validate() error {
	var errs []error
	report := func(field invalid.Name, format string, args ...any) {
		errs = append(errs, invalid.New("middleware", "%v "+format, append([]any{field}, args...)...))
	}
	if r.Status != 0 && (r.Status < 400 || r.Status > 599) {
		report("Refusal.Status", "is %d: it must be from 400 to 599", r.Status)
	}
	if _, err := url.Parse(r.Type); err != nil || strings.ContainsFunc(r.Type, notInURI) {
		report("Refusal.Type", "is %.100q: it is not a URI", r.Type)
	}
	if wrong := wrongText(r.Title); wrong != "" {
		report("Refusal.Title", wrong)
	}
	if wrong := wrongText(r.Message); wrong != "" {
		report("Refusal.Message", wrong)
	} else if strings.Contains(placeholders.Replace(r.Message), "{") {
		report("Refusal.Message", "has a { that begins none of {retry_after}, {seconds}, {rule}, {limit}")
	}
	if r.RetryAfter < 0 || r.RetryAfter > 366*24*time.Hour {
		report("Refusal.RetryAfter", "is %v: it must be from 0 to 366 days", r.RetryAfter)
	}
	if r.Jitter < 0 || r.Jitter > 100 {
		report("Refusal.Jitter", "is %d: it must be from 1 to 100 percent, or 0 for none", r.Jitter)
	}
	return errors.Join(errs...)
}

// A reply is a Refusal that was checked, in the form in which it is written.
type reply struct {
	Refusal
	kind   kind
	atOnce kind // for want of a slot
}

// reply is what a rule answers which it refuses; nil where that is what Weir says by itself.
func (c *compiler) reply(at string, given Rule) *reply {
	r := &reply{Refusal: given.Refusal, kind: tooMany, atOnce: tooManyAtOnce}
	if err := r.Validate(); err != nil {
		c.report("%s: %w", at, err)
		return nil
	}
	if given.Mode == Deny {
		r.Status = cmp.Or(r.Status, http.StatusForbidden)
		kind, ok := denials[r.Status]
		if !ok {
			c.report("%s: %v is %d: of a rule that denies it must be 403, 429 or 503", at, invalid.Name("Refusal.Status"), r.Status)
		}
		r.kind = kind
	} else {
		if r.RetryAfter != 0 {
			c.report("%s: %v is %v: it is for a rule that denies, as a limit knows by itself", at, invalid.Name("Refusal.RetryAfter"), r.RetryAfter)
		}
		r.inherit(c.refusal)
		if r.isZero() {
			return nil
		}
	}
	for _, kind := range []*kind{&r.kind, &r.atOnce} {
		if r.Type != "" {
			kind.problem, kind.title = r.Type, ""
		}
		if r.Title != "" {
			kind.title = escaped(r.Title)
		}
	}
	return r
}

func (r *Refusal) isZero() bool {
	return r.Status == 0 && r.Type == "" && r.Title == "" && r.Message == "" && r.RetryAfter == 0 && r.Jitter == 0 && r.Answer == nil
}

// inherit takes what r does not say from a Refusal for all rules.
func (r *reply) inherit(general Refusal) {
	r.Status = cmp.Or(r.Status, general.Status)
	if r.Type == "" && r.Title == "" { // which belong together
		r.Type, r.Title = general.Type, general.Title
	}
	r.Message = cmp.Or(r.Message, general.Message)
	r.Jitter = cmp.Or(r.Jitter, general.Jitter)
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

// escaped is text as part of a JSON string.
func escaped(text string) string {
	quoted, _ := json.Marshal(text) // which text can always be
	return string(quoted[1 : len(quoted)-1])
}

// denials are what clients are told where a rule denies.
var denials = map[int]kind{
	http.StatusForbidden: {
		title:   "Forbidden",
		code:    "denied",
		message: "This request is not accepted.",
	},
	http.StatusTooManyRequests: {
		title:   "Too Many Requests",
		code:    "denied",
		message: "This request is not accepted now.",
	},
	http.StatusServiceUnavailable: *kinds[http.StatusServiceUnavailable],
}

// placeholders are all that a message may have.
var placeholders = strings.NewReplacer("{retry_after}", "", "{seconds}", "", "{rule}", "", "{limit}", "")

// tellsTime reports whether a message has a place for the time to wait.
func tellsTime(message string) bool {
	return strings.Contains(message, "{retry_after}") || strings.Contains(message, "{seconds}")
}

// own is the message of the rule that refuses, or empty where it has none.
func (no *refusal) own(seconds int64) string {
	if no.reply == nil || no.reply.Message == "" || seconds == 0 && tellsTime(no.reply.Message) {
		return ""
	}
	return strings.NewReplacer("{retry_after}", string(appendDuration(nil, seconds)), "{seconds}", strconv.FormatInt(seconds, 10),
		"{rule}", no.rule, "{limit}", no.limit()).Replace(no.reply.Message)
}
