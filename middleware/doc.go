// Package middleware limits HTTP requests, with one line around a handler:
//
//	handler := middleware.PerIP(limiter.PerMinute(100))(mux)
//
// around one route:
//
//	mux.Handle("POST /login", middleware.PerIP(limiter.PerMinute(5))(login))
//
// or with rules that are checked together, all or nothing:
//
//	limits, err := middleware.New(middleware.Config{
//		Rules: []middleware.Rule{
//			{Name: "global", Limit: limiter.PerSecond(5_000)},
//			{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(300)},
//			{Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()),
//				Limit: limiter.PerHour(100),
//				Tiers: middleware.Tiers{"premium": limiter.PerHour(10_000)}},
//			{Name: "search", Match: middleware.Route("GET /search"), Key: keyfunc.IP(),
//				Limit: limiter.PerMinute(30).WithBurst(10)},
//		},
//	})
//	handler := limits.Handler(mux)
//
// It is the middleware of net/http and of chi (add adapters/chilimit for rules that
// match routes); gin and echo have theirs in adapters.
//
// # What clients see
//
// Responses tell what is left, in the X-RateLimit fields and in the RateLimit fields
// of draft-ietf-httpapi-ratelimit-headers-11 (see [Headers]). A refusal is 429 with
// Retry-After, Cache-Control: no-store, and a body in the format the client accepts:
// application/problem+json (RFC 9457) if it asks for it, application/json, or text.
// A request with a cost that can never be met has no Retry-After.
//
// Limiters around each other, one for the router and one for a route, agree on one
// set of fields. Units that an outer one has taken stay taken when an inner one
// refuses; rules of one Config are all or nothing.
//
// # What handlers see
//
// [FromContext] has the decision. The ResponseWriter is the one that came in, so
// flushing, hijacking and http.ResponseController work as without Weir. Where a rule that
// applied has [Rule.Counts], it is wrapped and can do the same.
//
// # What a request really cost
//
// A rule is charged when a request comes. With [Rule.Counts] it gets back what answers took that
// do not count, so that a limit of five is one of five failed logins. With [Reserve] the
// handler says what the request cost, by [Settle].
//
// # What is never unlimited by accident
//
// A request without a key shares a counter with its like, or is refused (see [NoKey]).
// A store that cannot decide means 503. An invalid rule is an error from [New], and so are
// a pattern that no request matches and a fixed cost ([Units]) that a limit never
// allows. An answer of which the status is not known counts.
//
// Put the limiter inside CORS handling, or scripts cannot read a refusal, and behind
// authentication where it counts by user or tier.
package middleware
