package pace

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"
)

// A contestant is how a process calls a third party.
type contestant struct {
	name string

	// client makes the one of a process. Done is called when no caller uses it any more.
	client func(base http.RoundTripper, t task) (c *http.Client, done func(), err error)
}

// contestants are all of them. To add one, add it here.
var contestants = []contestant{
	{"weir", weirClient},
	{"time-rate", rateClient},          // in each process: Wait, then the request, which is not repeated
	{"retryablehttp", retryableClient}, // hashicorp's defaults, but for RetryMax 3 and waits of 100 ms to 1 s
	{"naive", naiveClient},             // repeats a request that failed, up to 4 in all, each after 100 ms
}

// attempts is how often a request is sent at most, by those that repeat it.
const attempts = 4

const retryWait = 100 * time.Millisecond

func rateClient(base http.RoundTripper, t task) (*http.Client, func(), error) {
	limit := rate.NewLimiter(rate.Limit(t.Limit), 1)
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if err := limit.Wait(r.Context()); err != nil {
			return nil, err
		}
		return base.RoundTrip(r)
	})}, func() {}, nil
}

func retryableClient(base http.RoundTripper, _ task) (*http.Client, func(), error) {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base}
	c.Logger = nil
	c.RetryMax = attempts - 1
	c.RetryWaitMin, c.RetryWaitMax = retryWait, time.Second
	return c.StandardClient(), func() {}, nil
}

func naiveClient(base http.RoundTripper, _ task) (*http.Client, func(), error) {
	return &http.Client{Transport: roundTripper(func(r *http.Request) (response *http.Response, err error) {
		for range attempts - 1 {
			response, err = base.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusOK {
				return response, nil
			}
			if err == nil {
				_ = response.Body.Close()
			}
			time.Sleep(retryWait)
		}
		return base.RoundTrip(r)
	})}, func() {}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
