// Package pace keeps a client, and all processes of it together, within the limits of the servers
// that it calls:
//
//	client := &http.Client{Transport: pace.Must(pace.NewTransport(http.DefaultTransport, pace.Options{
//		Rules: []pace.Rule{{Host: "api.github.com", Key: pace.Token, Limit: limiter.PerHour(5_000)}},
//		Retry: pace.Retry{Attempts: 4},
//	}))}
//
// A [Transport] is an http.RoundTripper over another one.
package pace
