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
// Every client address has 100 requests a minute. Responses say what is left, in the X-RateLimit and
// RateLimit fields; the 101st request is answered 429 with Retry-After. If the service is behind a
// proxy, name the proxy (keyfunc.TrustProxies), or all clients share the proxy's limit.
//
// [PerIP] is a middleware of net/http and chi, for all routes or for one. [New] makes a limiter of
// several rules, which are checked together: all of them are charged for a request, or none. Counters
// are in memory; give [Config] a Store for a service of several processes.
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
