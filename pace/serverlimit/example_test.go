package serverlimit_test

import (
	"fmt"
	"net/http"

	"github.com/weirgo/weir/pace/serverlimit"
)

// A refusal of GitHub's, and how long there is to wait.
func ExampleRead() {
	resp := &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}}
	resp.Header.Set("Date", "Mon, 13 Jun 2022 11:48:53 GMT")
	resp.Header.Set("X-RateLimit-Limit", "30")
	resp.Header.Set("X-RateLimit-Remaining", "0")
	resp.Header.Set("X-RateLimit-Reset", "1655120964")
	resp.Header.Set("X-RateLimit-Resource", "search")

	said := serverlimit.Read(resp)
	fmt.Println(said.Limited, said.Wait, said.Unsure)
	fmt.Println(said.Quota.Name, said.Quota.Remaining, said.Quota.Limit)
	// Output:
	// true 31s 1s
	// search 0 30
}

// One client of an API of models counts requests and tokens, and slows down before it is refused.
func ExampleReading() {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	resp.Header.Set("X-RateLimit-Limit-Requests", "60")
	resp.Header.Set("X-RateLimit-Remaining-Requests", "59")
	resp.Header.Set("X-RateLimit-Limit-Tokens", "150000")
	resp.Header.Set("X-RateLimit-Remaining-Tokens", "800")
	resp.Header.Set("X-RateLimit-Reset-Tokens", "6m0s")

	said := serverlimit.Read(resp)
	if q := said.Quota; q.Unit == "tokens" && q.Remaining != serverlimit.Unsaid && q.Remaining < 1000 {
		fmt.Printf("%d %s for %v\n", q.Remaining, q.Unit, q.Reset)
	}
	// Output:
	// 800 tokens for 6m0s
}
