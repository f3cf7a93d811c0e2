package middleware

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weirgo/weir/limiter"
)

// refusal is what is told about a refused request. s is nil when nothing was decided.
func (s *scope) refusal(status int) (result Result) {
	if s != nil {
		result = s.result()
	}
	result.Status = status
	return result
}

// refuse answers a request that must go no further.
func (set *ruleset) refuse(w http.ResponseWriter, r *http.Request, result Result) {
	if result.Status == statusClientClosedRequest {
		w.WriteHeader(result.Status)
		return
	}
	h := w.Header()
	result.writeHeaders(h)
	if set.OnRefused != nil {
		set.OnRefused(w, r, result)
		return
	}
	contentType, body := result.body(r.Header["Accept"])
	h["Content-Type"] = []string{contentType}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(result.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

// writeHeaders sets the fields of every refusal.
func (r *Result) writeHeaders(h http.Header) {
	h["Cache-Control"] = []string{"no-store"}
	if seconds := r.retryAfter(); seconds > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(seconds, 10)}
	}
	if r.Status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", "Bearer")
	}
}

// retryAfter is in whole seconds; 0 if there is no telling, or no use in coming back.
func (r *Result) retryAfter() int64 {
	if r.RetryAfter == limiter.Never || !r.Banned && r.Status != http.StatusTooManyRequests {
		return 0
	}
	return secondsUp(r.RetryAfter)
}

// A kind is what clients are told about refusals of one status.
type kind struct {
	problem string // RFC 9457; empty: no registered type, about:blank
	title   string
	code    string // the error member of the JSON body
	message string
}

// registry is where draft-11 registers its problem types.
const registry = "https://iana.org/assignments/http-problem-types#"

var kinds = map[int]kind{
	http.StatusTooManyRequests: {
		problem: registry + "quota-exceeded",
		title:   "Quota Exceeded",
		code:    "rate_limit_exceeded",
		message: "Too many requests.",
	},
	http.StatusServiceUnavailable: {
		problem: registry + "temporary-reduced-capacity",
		title:   "Temporary Reduced Capacity",
		code:    "temporary_reduced_capacity",
		message: "The service is temporarily unable to take this request.",
	},
	http.StatusForbidden: {
		title:   "Forbidden",
		code:    "banned",
		message: "Requests from this client are not accepted.",
	},
	http.StatusBadRequest: {
		title:   "Bad Request",
		code:    "key_required",
		message: "The request does not say which client it comes from.",
	},
	http.StatusUnauthorized: {
		title:   "Unauthorized",
		code:    "key_required",
		message: "The request does not say which client it comes from.",
	},
}

// problem is an RFC 9457 object. The name of its last member is draft-11's and may
// still change.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

// plain is the JSON body for clients that did not ask for a problem object.
type plain struct {
	Error      string `json:"error"`
	Message    string `json:"message"`
	RetryAfter int64  `json:"retry_after,omitempty"`
}

// body is the answer in the format that the client accepts.
func (r *Result) body(accept []string) (contentType string, body []byte) {
	kind := kinds[r.Status]
	message, seconds := kind.message, r.retryAfter()
	switch {
	case seconds > 0:
		message += " Try again in " + inWords(seconds) + "."
	case r.Status == http.StatusTooManyRequests && !r.Banned:
		message = "The request costs more than the limit ever allows at once."
	}
	// Marshalling strings and integers cannot fail.
	switch negotiate(accept) {
	case formatProblem:
		body, _ = json.Marshal(problem{kind.problem, kind.title, r.Status, message, r.violated()})
		return "application/problem+json", body
	case formatText:
		return "text/plain; charset=utf-8", []byte(message + "\n")
	default:
		body, _ = json.Marshal(plain{kind.code, message, seconds})
		return "application/json", body
	}
}

// violated is the names of the rules that refused, and meant it.
func (r *Result) violated() []string {
	var names []string
	for i := range r.Rules {
		if !r.Rules[i].Allowed && !r.Rules[i].Rule.Shadow {
			names = append(names, r.Rules[i].Rule.Name)
		}
	}
	return names
}

func inWords(seconds int64) string {
	if seconds == 1 {
		return "1 second"
	}
	if seconds < 120 {
		return fmt.Sprintf("%d seconds", seconds)
	}
	return (time.Duration(seconds) * time.Second).String()
}
