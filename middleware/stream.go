package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/route"
)

// With Refusal.Stream the EventSource of a browser, which a 429 closes for good, gets an event stream that ends at once
// and says when to connect again. Its status is 200, which a proxy that asks about a request takes for a yes.

// streams returns a Match for the routes on which a rule answers with a stream, or nil. Its own Match names them, or
// its pattern in ByRoute. A Stream of the Config is only for the rules that can have it.
func (c *compiler) streams(at invalid.Place, given Rule, all Refusal, pattern string) Match {
	var named []string
	for _, text := range append(route.PatternsOf(given.Match), pattern) {
		p, err := route.ParseRule(text)
		if isNamed := strings.Trim(route.WithoutParameters(p.Path), "/*{}") != ""; err == nil && isNamed && p.Takes(http.MethodGet) {
			named = append(named, text)
		}
	}
	const wrong = "is true: it needs "
	own, at := given.Refusal.Stream, at.Of("Refusal.Stream")
	switch {
	case !all.Stream:
	case given.Mode == Deny:
		c.reject(own, at, wrong+"a limit, as other refusals are not answered with a stream")
	case all.Status != 0 && all.Status != http.StatusTooManyRequests:
		c.reject(own, at, wrong+"the Status 429, which is %d", all.Status)
	case len(named) == 0:
		c.reject(own, at, wrong+`the route of the stream, as in Match: Route("GET /events"), in files endpoints: "GET /events"`)
	default:
		return Route(named...)
	}
	return nil
}

// checkStreams reports a Stream of the Config that no rule inherits.
func (c *compiler) checkStreams() {
	c.reject(c.refusal.Stream && !slices.ContainsFunc(c.set.all, func(r *rule) bool { return r.streams != nil }),
		inConfig.Of("Refusal.Stream"), "is true: no rule names the route of a stream")
}

// longestStreamWait is the longest wait, in seconds, that is answered with a stream. The client keeps it for all later
// connections.
const longestStreamWait = 60

// streams reports whether r, which a limit refuses, is answered with a stream.
func (no *refusal) streams(r *http.Request, facts *answer.Facts) bool {
	accept := r.Header["Accept"]
	return no.limit != nil && no.rule.streams != nil && facts.Status == http.StatusTooManyRequests &&
		facts.Seconds > 0 && facts.Seconds <= longestStreamWait && !facts.Stop && r.Method == http.MethodGet &&
		len(accept) == 1 && accept[0] == "text/event-stream" && r.ProtoAtLeast(1, 1) && !isQuestion(r.Header) && no.rule.streams.Matches(r)
}

// isQuestion reports whether a proxy that asks about a request may have set one of these fields: Traefik, Caddy, Envoy,
// and nginx, HAProxy and Ingress controllers as their manuals configure them. nginx asks in HTTP/1.0 by default, and
// may set no field.
func isQuestion(h http.Header) bool {
	for name := range h {
		switch name {
		case "X-Forwarded-Uri", "X-Forwarded-Method":
			return true
		}
		for _, prefix := range [...]string{"X-Envoy-", "X-Original-", "X-Auth-Request-"} {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// stream answers with a stream. For limiters further out, logs and metrics the status stays.
func (no *refusal) stream(w http.ResponseWriter, r *http.Request, facts *answer.Facts) {
	w.Header()["Content-Type"] = []string{"text/event-stream"}
	countsAs(w, r, facts.Status)
	writeBody(w, r, http.StatusOK, []byte("retry: "+strconv.FormatInt(facts.Wait()*1000, 10)+"\n\n"))
}
