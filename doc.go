// Package weir limits how many requests each client of an HTTP service may send, in one process or in a
// fleet. It has the names that most programs need; each stands for a name in one of the packages below.
//
//	package main
//
//	import (
//		"fmt"
//		"log"
//		"net/http"
//
//		"github.com/weirgo/weir"
//	)
//
//	func main() {
//		hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
//		limited := weir.PerIP(weir.PerMinute(100))(hello)
//		log.Fatal(http.ListenAndServe("127.0.0.1:8080", limited))
//	}
//
// Every client address has 100 requests a minute. Responses say what is left, in the X-RateLimit
// fields; the 101st request is answered 429 with Retry-After. If the service is behind a proxy, name
// the proxy (keyfunc.TrustProxies), or all clients share the proxy's limit.
//
// The tutorial, https://weirgo.github.io/weir/start, goes on from here, step by step.
//
// [PerIP] is a middleware of net/http and chi, for all routes or for one. [New] makes a limiter of
// several rules, which are checked together: all of them are charged for a request, or none. Counters
// are in memory; give [Config] a Store for a service of several processes.
//
// # The fields of Rule and Config
//
// A [Rule] is one limit on some requests, with a counter for each key:
//
//	Name       required; the counters are stored under it, and clients see it
//	Key        required; returns who is counted, such as keyfunc.IP()
//	Limit      required; such as PerMinute(100), AtOnce(5), or All of several
//	Tiers      limits that replace Limit for the tiers of WithTier
//	Overrides  limits of single keys
//	Match      the requests that the rule applies to; see Route. Nil: all
//	Distinct   counts different values instead of requests
//	Cost       the units that a request takes: Units, CostOf, Reserve. Zero: 1
//	Counts     the answers that use up the limit: Statuses, StatusClass, Not. Zero: all
//	NoKey      what happens to a request without a key. Zero: such requests share a counter
//	OnOutage   what happens while the store does not answer. Zero: FailLocal
//	SoftAt     the percentage of the limit at which warnings begin. Zero: none
//	Escalate   bans a key that is refused again and again. Zero: none
//	Mode       Enforce, Shadow or Deny. Zero: Enforce
//	Refusal    the answer to refused requests. Zero: that of the Config
//
// A [Config] has the rules of a limiter, and what they share:
//
//	Rules      rules for every request that they match
//	ByTier     rules for the requests of a tier
//	ByRoute    rules by route; the most specific pattern applies
//	Default    rules for requests that ByTier and ByRoute have no rules for
//	Allow      requests that are never limited
//	Bans       clients that are locked out
//	Refusal    the answer to refused requests
//	Shadow     all rules decide and count, and refuse nothing
//	Overload   bounds the requests in flight by the capacity of the service
//	Store      has the counters. Nil: memory
//	Headers    the header fields of responses
//	Results    handlers find the decision with FromContext
//	Observer   sees each outcome, for metrics
//	Logger     receives warnings. Nil: slog.Default()
//
// # Packages
//
//	middleware    rules, what is counted and what is answered; its adapters are in adapters
//	  rules       limits as a YAML file, reloaded while the service runs
//	  bans        clients that are locked out
//	keyfunc       what is counted by: address, user, API key, ..., and how they combine
//	limiter       may this happen now? limits, algorithms, counters in memory; without HTTP
//	redis         all that speaks Redis: counters, leases, bans, rules
//	adapters      for gin and echo, and for chi if rules match by its routes
//	pace          the other side: an http.RoundTripper that keeps to the limits of other services
//	observe       metrics, traces, logs, top offenders, a live page
//	cmd/weir      checks and explains rules, operates on a Redis, and is a gateway for services in any language
package weir
