// Package pace keeps a client, and all processes of it together, within the limits of the servers that
// it calls:
//
//	client := &http.Client{Transport: pace.Must(pace.NewTransport(http.DefaultTransport, pace.Options{
//		Rules: []pace.Rule{{Host: "api.github.com", Key: pace.Token, Limit: limiter.PerHour(5_000)}},
//		Retry: pace.Retry{Attempts: 4},
//	}))}
//
// A [Transport] wraps an http.RoundTripper. With Options.Store and Options.Cooldowns in Redis, all
// processes pace together. Without Redis, each process paces its own requests.
//
// # Before a request is sent
//
// Each attempt waits until no cooldown is in force for its key, until its turn comes, and for a slot if
// the rule has [limiter.AtOnce]. Turns are positions in the queue of a leaky bucket. So the requests of
// all processes leave evenly, and each request knows at once how long it would wait. If that is too
// long, the request fails without waiting, returns its turn, and reports the wait ([WaitError]). Every
// wait ends when the request's context ends.
//
// # After a response
//
// Package serverlimit reads what the server says about its limits, in any dialect:
//
//   - A refusal begins a cooldown of its key, in all processes. No request of the key is sent until the
//     server accepts requests again. Then requests leave evenly. If the server does not say how long to
//     wait, the cooldown lasts as long as ten requests take at the rule's rate, from 100 ms to 10 s. It
//     doubles with each refusal in a row, up to 5 minutes. A cooldown also begins if a request was
//     served, but the response says that the quota is used up and resets in more than a second.
//   - If less remains than the rule's limit would use until the quota resets, other clients must be
//     using the quota too. Then requests leave more slowly, so that the rest lasts. The same happens if
//     the server names a lower limit for the same period. A quota slows nothing down if its period
//     differs from the period of the rule's limit, if it counts tokens, if it applies to a few requests
//     only, or if its reset time may be wrong by much ([serverlimit.Quota]).
//
// # Retries
//
// A request that was refused or failed is sent again if that is safe and the budget allows it
// ([Retry]): never earlier than the server asks, after a random extra pause, and only in its turn.
// Otherwise RoundTrip returns the response unchanged, like any other response.
//
// # Requests without a rule
//
// Requests to a host without a rule are sent unpaced. As a name may be misspelt, each such host is
// logged once. With [Options.RefuseUnmatched] these requests fail.
//
// A cache must wrap the Transport, so that cached responses take no turn. [Token] says where to put a
// transport that sets a token.
package pace
