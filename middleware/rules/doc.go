// Package rules reads limits from a file, so that operators can change them without a deploy:
//
//	limits, err := rules.Watch(ctx, "weir.yaml", rules.Options{})
//	...
//	handler := limits.RateLimit.Handler(mux) // of net/http; adapters of routers take limits.RateLimit
//
// The file, in YAML or JSON:
//
//	version: 1
//	proxies: {trusted: [10.0.0.0/8]}
//	ban: {cidrs: [198.51.100.0/24]}                          # 403, before anything else
//	allow: {cidrs: [192.0.2.0/28], routes: ["GET /healthz"]} # never limited
//	global: {limit: 10_000/s, key: global}
//	tiers:
//	  free: 100/h
//	  premium: {limit: 10_000/h, key: user}
//	endpoints:
//	  "GET /search": {limit: 30/1m, algorithm: token_bucket, burst: 10, key: user|ip}
//	  "POST /login": {limit: 5/1m, on_outage: closed, escalate: {after: 3, within: 10m, ban: 1m}}
//	  "/beta/*": {limit: 10/s, mode: shadow}
//	default: {requests: 100, window: 60s}
//	soft: {at: 80%}                                         # a warning header before the limit
//
// The page docs/fields.md lists all fields. Editors complete fields by [Schema]. The command
// cmd/weir checks and explains files.
//
// # Order
//
// A request is checked against the ban list, the allow list, the global rules, the rules of its tier,
// and the rules of its endpoint, in this order. The default rules apply only if neither the tier nor an
// endpoint has rules for the request.
// Endpoints are compared with the route that the router has chosen, so use the router's adapter. Their
// order in the file does not matter. Endpoints for the request's host ("example.org/*") come first,
// then endpoints for its domain ("*.example.org/*"), then endpoints for any host. Among these the
// longest path wins, and then an endpoint with a method. All rules of a request are charged in one call
// of the store, all or none.
//
// A client can send any host. If a host has no endpoints, the endpoints for any host apply, or else the
// default rules. So write a default or a global rule.
//
// # Mistakes
//
// The error for a file lists everything that is wrong with it: line, column and what to write instead.
// While a service runs, a wrong file changes nothing.
//
// # Changes
//
// A change is in force within two seconds; see [Watch]. A counter belongs to the name and key of a
// rule. The name is the endpoint, unless the file sets one. If a limit changes, what was used stays
// used. A rule with another name or key begins anew. Bans stay, even if their rule is removed; see
// [Watcher.Bans].
package rules
