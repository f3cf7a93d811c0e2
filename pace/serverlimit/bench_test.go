package serverlimit_test

import (
	"testing"

	"github.com/weirgo/weir/pace/serverlimit"
)

// usual are the fields of a response that tell nothing of limits.
const usual = `
	Date: Mon, 13 Jun 2022 11:48:53 GMT
	Content-Type: application/json; charset=utf-8
	Cache-Control: private, max-age=60, s-maxage=60
	Vary: Accept, Authorization, Cookie, X-GitHub-OTP
	ETag: W/"644b5b0155e6404a9cc4bd9d8b1ae730"
	X-GitHub-Media-Type: github.v3; format=json
	Access-Control-Allow-Origin: *
	Strict-Transport-Security: max-age=31536000
	X-Frame-Options: deny
	X-Content-Type-Options: nosniff
	Content-Security-Policy: default-src 'none'
	Server: github.com`

// of says what a client most often meets.
var of = map[string]struct{ status, fields string }{
	"nothing":     {"200 OK", ""},
	"GitHub":      {"200 OK", "X-RateLimit-Limit: 30\nX-RateLimit-Remaining: 14\nX-RateLimit-Reset: 1655120964\nX-RateLimit-Used: 16\nX-RateLimit-Resource: search"},
	"draft 11":    {"200 OK", "RateLimit-Policy: \"default\";q=100;w=60\nRateLimit: \"default\";r=50;t=30"},
	"Retry-After": {"429 Too Many Requests", "Retry-After: 30"},
	"OpenAI": {"200 OK", "X-RateLimit-Limit-Requests: 60\nX-RateLimit-Limit-Tokens: 150000\nX-RateLimit-Remaining-Requests: 59\n" +
		"X-RateLimit-Remaining-Tokens: 149984\nX-RateLimit-Reset-Requests: 1s\nX-RateLimit-Reset-Tokens: 6m0s"},
	"all dialects": {"429 Too Many Requests", "Retry-After: 30\nRetry-After-Ms: 29500\nX-Should-Retry: true\n" +
		"RateLimit-Policy: \"default\";q=100;w=60\nRateLimit: \"default\";r=0;t=30\n" +
		"X-RateLimit-Limit: 30\nX-RateLimit-Remaining: 14\nX-RateLimit-Reset: 1655120964\nX-RateLimit-Resource: search\n" +
		"Anthropic-RateLimit-Tokens-Limit: 50000\nAnthropic-RateLimit-Tokens-Remaining: 49500\nAnthropic-RateLimit-Tokens-Reset: 2022-06-13T11:49:53Z"},
}

func BenchmarkRead(b *testing.B) {
	for name, response := range of {
		b.Run(name, func(b *testing.B) {
			r := parse(b, response.status, usual+"\n"+response.fields)
			b.ReportAllocs()
			for b.Loop() {
				serverlimit.Read(r)
			}
		})
	}
}

// A client reads all its responses, most of which say nothing.
func TestReadingNothingDoesNotAllocate(t *testing.T) {
	r := parse(t, of["nothing"].status, usual)
	if n := testing.AllocsPerRun(100, func() { serverlimit.Read(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
