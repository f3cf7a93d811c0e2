package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/limiter"
)

// Of costs.
const (
	decision  race.Metric = "CPU ns of a decision in memory"
	above     race.Metric = "CPU ns above the transport"
	decisions race.Metric = "decisions above it"
	aboveSaid race.Metric = "CPU ns where fields are read"
)

var costMetrics = []race.Metric{decisions, above, aboveSaid, decision}

// turns is how often the loops of a measurement take turns, as what they differ by is little.
const turns = 20

// cost compares loops in this process: the medians of the turns.
func (f *field) cost(ctx context.Context, contestant string, _ kind) (race.Figures, error) {
	c, _ := named(contestant)
	silent := roundTripper(func(r *http.Request) (*http.Response, error) { return answer(r, silentFields), nil })
	said := roundTripper(func(r *http.Request) (*http.Response, error) { return answer(r, saidFields), nil })
	// Nothing is to wait, which takes a burst, and nothing is to be shared.
	t := &task{URL: "http://127.0.0.1:1/", Limit: 1_000_000, Burst: 1_000_000}
	loops := map[string]func() error{"silent": call(silent, t), "said": call(said, t), "decision": decide(ctx)}
	for name, base := range map[string]http.RoundTripper{"weir silent": silent, "weir said": said} {
		client, done, err := c.client(base, t)
		if err != nil {
			return nil, err
		}
		defer done()
		loops[name] = call(client.Transport, t)
	}
	times := map[string][]float64{}
	for range turns {
		for name, loop := range loops { // in a random order
			ns, err := lap(loop, f.Slice/(turns*time.Duration(len(loops))))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			times[name] = append(times[name], ns)
		}
	}
	median := func(name string) float64 {
		slices.Sort(times[name])
		return times[name][turns/2]
	}
	figures := race.Figures{
		decision:  median("decision"),
		above:     median("weir silent") - median("silent"),
		aboveSaid: median("weir said") - median("said"),
	}
	figures[decisions] = figures[above] / figures[decision]
	return figures, nil
}

// silentFields say nothing of limits.
var silentFields = http.Header{
	"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Content-Type": {"application/json"}, "Cache-Control": {"private"}, "Vary": {"Accept"},
}

// saidFields are those of GitHub.
var saidFields = http.Header{
	"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {"4999"}, "X-Ratelimit-Used": {"1"},
	"X-Ratelimit-Reset": {fmt.Sprint(time.Now().Add(time.Hour).Unix())}, "X-Ratelimit-Resource": {"core"},
	"Date": {time.Now().UTC().Format(http.TimeFormat)},
}

func answer(r *http.Request, fields http.Header) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: fields, Body: http.NoBody, Request: r}
}

// call is one request of a service that has a token, as those have that keys are of.
func call(transport http.RoundTripper, t *task) func() error {
	r, err := http.NewRequest(http.MethodGet, t.URL, nil)
	if err != nil {
		return func() error { return err }
	}
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 40))
	return func() error {
		response, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
}

// decide is one decision of the store in memory.
func decide(ctx context.Context) func() error {
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	quota, err := limiter.NewQuota("race", "", limiter.PerSecond(1_000_000).WithBurst(1_000_000))
	if err != nil {
		return func() error { return err }
	}
	charges, decided := []limiter.Charge{{Quota: quota, Key: "key", Cost: 1}}, make([]limiter.Decision, 1)
	return func() error { return store.Decide(ctx, charges, decided) }
}

// lap is the nanoseconds of CPU time that one call takes, of as many as there is time for. On a
// machine that is busy the clock on the wall would tell of the others.
func lap(loop func() error, long time.Duration) (float64, error) {
	const batch = 1000
	before, err := race.ClientCPU.Read()
	if err != nil {
		return 0, err
	}
	n := 0
	for began := time.Now(); time.Since(began) < long; n += batch {
		for range batch {
			if err := loop(); err != nil {
				return 0, err
			}
		}
	}
	after, err := race.ClientCPU.Read()
	return (after - before) * 1000 / float64(n), err
}
