// Package pace keeps a client, and all processes of it together, within the limits of the servers
// that it calls:
//
//	client := &http.Client{Transport: pace.Must(pace.NewTransport(http.DefaultTransport, pace.Options{
//		Rules: []pace.Rule{{Host: "api.github.com", Key: pace.Token, Limit: limiter.PerHour(5_000)}},
//		Retry: pace.Retry{Attempts: 4},
//	}))}
//
// A [Transport] is an http.RoundTripper over another one. With Options.Store and
// Options.Cooldowns in Redis, processes pace together; without, each by itself.
//
// # Before a request is sent
//
// Each attempt waits for three things: that no cooldown is in force for its key, that it is its
// turn, and that there is a place ([limiter.AtOnce]). Turns are places in the queue of a leaky
// bucket, so that requests of all processes leave evenly, and each knows at once how long it
// would wait. One for which that is too long fails without waiting, gives its turn back, and
// says how long it would have been ([WaitError]). Every wait ends with the request's context.
//
// # After it
//
// What the server says is read, whatever its dialect (package serverlimit):
//
//   - A refusal is a cooldown of its key, in all processes: none sends anything until the server
//     wants requests again, and then they leave evenly. If it does not say until when, it is
//     for as long as ten requests take, from 100 ms to 10 s, and twice as long with each refusal
//     in a row, up to 5 minutes. A response that was served and says that nothing remains is a
//     cooldown too, if that is for more than a second.
//   - Less remains than our limit would use until the quota begins anew, as others use it
//     too: then requests leave more slowly, so that what remains lasts. The same if the server
//     names a lower limit for the same period. A quota of another period, of tokens, of a few
//     requests only, or with a time that is in doubt slows nothing down.
//
// # Sent again
//
// A request that was refused, or that failed, is sent again if that is safe and there is a budget
// for it ([Retry]): never before the server wants it, at a random time after, and only when it
// is its turn. Else the response is returned as it came, as any other status is.
//
// # What passes by
//
// Requests to a host without a rule are sent unpaced. As a name may be misspelt, each such host
// is logged once; with [Options.RefuseUnmatched] they fail.
//
// Caches belong outside of pace, so that what they answer takes no turn. What sets a token
// belongs inside, or outside: see [Token].
package pace
