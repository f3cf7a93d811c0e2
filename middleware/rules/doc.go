// Package rules reads limits from a file, so that operators change them without a deploy:
//
//	limits, err := rules.Watch(ctx, "limits.yaml", rules.Options{})
//	...
//	r.Use(chilimit.New(limits.RateLimit))   // and so for the other routers
//
// The file, in YAML or JSON:
//
//	version: 1
//	proxies: {trusted: [10.0.0.0/8]}
//	ban: {cidrs: [198.51.100.0/24]}                          # 403, before anything else
//	allow: {cidrs: [192.0.2.0/28], routes: ["GET /healthz"]} # never limited
//	global: 10_000/s
//	tiers:
//	  free: 100/h
//	  premium: {limit: 10_000/h, key: user}
//	endpoints:
//	  "GET /search": {limit: 30/1m, algorithm: token_bucket, burst: 10, key: user|ip}
//	  "POST /login": {limit: 5/1m, on_outage: closed, escalate: {after: 3, within: 10m, ban: 1m}}
//	  "/beta/*": {limit: 10/s, mode: shadow}
//	default: {requests: 100, window: 60s}
//	soft: {at: 80%}                                         # a warning header before the wall
//
// The page docs/rules.md has a table of all fields, [Schema] is for editors to complete them by, and
// the command cmd/weir checks and explains files.
//
// # Order
//
// A request is checked in this order: the ban list, the allow list, the global rule, the rule
// of its tier, and that of its endpoint, or the default where no endpoint matches. Endpoints
// are compared with the route that the router has chosen, so the router's adapter is needed;
// their order in the file does not matter. An endpoint for the request's host,
// "example.org/*", goes before "*.example.org/*", and that before one for any host; then the
// longest path decides, then a method. All rules of a request are charged in one call of the
// store, all or none.
//
// A host is what the client writes into its request. A request for a host without endpoints
// is decided by those for any host, or by the default: have one, or a global rule.
//
// # Mistakes
//
// A file is refused with everything that is wrong with it: line, column and what to write
// instead. While a service runs, a file that is refused changes nothing.
//
// # Changes
//
// A change is in force within two seconds, see [Watch]. Counters belong to a rule's name,
// which is its endpoint unless the file gives another, and to its key. Where a limit changes,
// what was used stays used; a rule with another name or another key begins anew. Bans stay,
// also where the rule that led to them goes; see [Watcher.Bans].
package rules
