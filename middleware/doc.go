// Package middleware limits HTTP requests, with one line around a handler:
//
//	handler := middleware.PerIP(limiter.PerMinute(100))(mux)
//
// around one route:
//
//	mux.Handle("POST /login", middleware.PerIP(limiter.PerMinute(5))(login))
//
// or with rules that are checked together, so that all are charged or none is:
//
//	limits, err := middleware.New(middleware.Config{
//		Rules: []middleware.Rule{
//			{Name: "global", Key: keyfunc.Global, Limit: limiter.PerSecond(5_000)}, // one counter for all
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
// This is the middleware for net/http and chi. Chi needs adapters/chilimit for rules that match routes;
// gin and echo have adapters of their own.
//
// # What clients see
//
// Responses report what is left in the X-RateLimit fields (see [Headers]). A refusal is 429 with
// Retry-After, Cache-Control: no-store, and a body in the format that the client accepts: application/problem+json
// (RFC 9457) if it asks for it, application/json, or text. If a request costs more than the limit ever
// allows at once, the refusal has no Retry-After.
//
// Nested limiters, one for the router and one for a route, agree on one set of fields. If the inner
// limiter refuses, the outer limiter's charge stays, but for what a rule with [Reserve] reserved. Within one Config, all rules are charged or none
// is. A limiter charges a request each time the request passes it.
//
// # What handlers see
//
// With Config.Results, [FromContext] returns the decision. Handlers get the server's own ResponseWriter, so that flushing,
// hijacking and http.ResponseController work as without Weir. If a rule with [Rule.Counts] applied, or
// Config.Overload is set, the ResponseWriter is wrapped and keeps these methods.
//
// # What a request really cost
//
// A rule is charged when a request comes. With [Rule.Counts], requests whose answers do not count are
// refunded: a limit of five is then one of five failed logins, for example. With [Reserve], the handler
// says by [Settle] what the request really cost.
//
// # No request is unlimited by accident
//
// Requests without a key share a counter, or are refused (see [NoKey]). If the store cannot decide, the
// answer is 503. [New] returns an error for an invalid rule, for a pattern that no request matches, and
// for a fixed cost ([Units]) that a limit never allows. With [Rule.Counts], an answer of unknown status
// counts.
//
// Put the limiter inside the CORS handling, or scripts cannot read a refusal. Put it behind your
// authentication if it counts by user or tier.
package middleware
