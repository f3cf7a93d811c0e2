package pace_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace"
)

// A client that is told to come back in a minute does not ask again before: the caller hears
// at once how long it would be.
func Example() {
	thirdParty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer thirdParty.Close()

	client := &http.Client{Transport: pace.Must(pace.NewTransport(http.DefaultTransport, pace.Options{
		Rules:   []pace.Rule{{Host: "127.0.0.1", Key: pace.Token, Limit: limiter.PerSecond(10)}},
		MaxWait: 30 * time.Second,
		Retry:   pace.Retry{Attempts: 4},
	}))}

	resp, err := client.Get(thirdParty.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.Status)

	_, err = client.Get(thirdParty.URL)
	var tooLong *pace.WaitError
	if errors.As(err, &tooLong) {
		fmt.Println("not sent: again in", tooLong.RetryAfter().Round(time.Minute))
	}
	// Output:
	// 429 Too Many Requests
	// not sent: again in 1m0s
}

// A host with several quotas: the first rule that is for a request applies.
func ExampleRule() {
	rules := []pace.Rule{
		{
			Name: "search", Host: "api.github.com", Key: pace.Token, Limit: limiter.PerMinute(30),
			Match: func(r *http.Request) bool { return r.URL.Path == "/search/code" },
		},
		{Name: "core", Host: "api.github.com", Key: pace.Token, Limit: limiter.PerHour(4_900).WithBurst(100)},
	}
	_, err := pace.NewTransport(nil, pace.Options{Rules: rules})
	fmt.Println(err)
	// Output: <nil>
}
