package middleware_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A timer of JavaScript that is longer fires at once.
const mostWait = 2_073_600

// longRefusals refuse for longer than mostWait.
func longRefusals(t *testing.T) map[string]middleware.Config {
	list := bansOf(t)
	require.NoError(t, list.Ban(t.Context(), "192.0.2.1", 60*24*time.Hour))
	return map[string]middleware.Config{
		"a limit": {Headers: bothHeaders, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: logOf(1, 30*24*time.Hour)}}},
		"jitter": {Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: logOf(1, 20*24*time.Hour)}},
			Refusal: middleware.Refusal{Jitter: 100}},
		"a ban": {Bans: middleware.Bans{List: list, Keys: byIP}},
		"deny": {Rules: []middleware.Rule{{Name: "r", Mode: middleware.Deny,
			Refusal: middleware.Refusal{RetryAfter: 366 * 24 * time.Hour}}}},
	}
}

func TestNoRefusalAsksForMoreThan24Days(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		for name, config := range longRefusals(t) {
			for _, delta := range []bool{false, true} {
				config.Headers.Delta = delta
				h := limited(t, config).Handler(ok)
				serve(h, request())
				for range 20 { // jitter is random
					h := serve(h, request()).Header()
					seconds, err := strconv.Atoi(h.Get("Retry-After"))
					require.NoError(t, err, name)
					require.LessOrEqual(t, seconds, mostWait, name)
					if name != "jitter" {
						require.Equal(t, mostWait, seconds, name)
					}
					reset, _ := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
					if !delta {
						reset -= time.Now().Unix()
					}
					require.LessOrEqual(t, reset, int64(mostWait+1), name)
					if name == "a limit" {
						require.Equal(t, `"r";r=0;t=2073600`, h.Get("RateLimit"))
					}
				}
			}
		}
	})
}

func TestOnlyTheSentenceSaysThatItIs30Days(t *testing.T) {
	const sentence = "Too many requests. Try again in 30 days."
	phase.Test(t, func(t *testing.T) {
		h := limited(t, longRefusals(t)["a limit"]).Handler(ok)
		passed := serve(h, request()).Header()
		assert.Equal(t, `"r";r=0;t=2592000`, passed.Get("RateLimit"), "what passes has exact times")
		for want, edit := range map[string]func(*http.Request){
			`{"error":"rate_limit_exceeded","message":"` + sentence + `","retry_after":2073600}`:                                          header("Accept", "*/*"),
			`{"jsonrpc":"2.0","error":{"code":429,"message":"` + sentence + `","data":{"retryAfterMs":2073600000,"retryAfter":2073600}}}`: header("Mcp-Method", "tools/call"),
			sentence + "\n": header("Accept", "text/plain"),
		} {
			assert.Equal(t, want, serve(h, request(edit)).Body.String())
		}
		w := serve(h, rpc("application/grpc"))
		assert.Equal(t, fmt.Sprint(mostWait*1000), w.Header().Get("Grpc-Retry-Pushback-Ms"))
		details, err := base64.RawStdEncoding.DecodeString(w.Header().Get("Grpc-Status-Details-Bin"))
		require.NoError(t, err)
		duration := string(binary.AppendUvarint([]byte{1 << 3}, mostWait))
		assert.True(t, strings.HasSuffix(string(details), duration), "the RetryInfo is at the end")
		assert.Contains(t, string(details), sentence)
	})
}

// shortRefusals refuse for less than a second, or for an unknown time.
func shortRefusals(t *testing.T) map[string]middleware.Config {
	list := bansOf(t)
	require.NoError(t, list.Ban(t.Context(), "192.0.2.1", time.Millisecond))
	configs := map[string]middleware.Config{
		"a ban":        {Bans: middleware.Bans{List: list, Keys: byIP}},
		"a ban as 429": {Bans: middleware.Bans{List: list, Keys: byIP, Status: 429}},
		"concurrency":  {Rules: []middleware.Rule{exports(1)}},
		"overload":     {Rules: []middleware.Rule{exports(9)}, Overload: roomFor(1)},
		"a late turn": {Rules: []middleware.Rule{
			{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1).With(limiter.LeakyBucket)}}},
		"no store": {Store: brokenStore{}, Rules: perIP(limiter.PerHour(1), 1)},
		"no key": {Rules: []middleware.Rule{
			{Name: "r", Key: failingKey, OnOutage: limiter.FailClosed, Limit: limiter.PerHour(1)}}},
		"no value": {Rules: []middleware.Rule{
			{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1), Distinct: failingKey, OnOutage: limiter.FailClosed}}},
		"no key of a ban": {Bans: middleware.Bans{List: list, Keys: []keyfunc.Func{failingKey}}},
	}
	for _, status := range []int{403, 429, 503} {
		configs[fmt.Sprint("deny ", status)] = middleware.Config{Rules: []middleware.Rule{
			{Name: "r", Mode: middleware.Deny, Refusal: middleware.Refusal{Status: status, RetryAfter: time.Nanosecond}}}}
	}
	for _, algorithm := range waitless {
		configs[algorithm.String()] = middleware.Config{Rules: []middleware.Rule{
			{Name: "r", Key: keyfunc.Global, Limit: limiter.Limit{Events: 1, Per: 7 * time.Millisecond, Algorithm: algorithm}}}}
	}
	return configs
}

func failingKey(*http.Request) (string, error) { return "", errors.New("the database is down") }

// Clients misread dates, retry at once after 0, and guess if there is nothing.
func TestRetryAfterIsSecondsAndNeverZeroOrADate(t *testing.T) {
	asks := map[string]func() *http.Request{
		"JSON":    func() *http.Request { return request() },
		"text":    func() *http.Request { return request(header("Accept", "text/plain")) },
		"problem": func() *http.Request { return request(header("Accept", "application/problem+json")) },
		"MCP":     func() *http.Request { return request(header("Mcp-Method", "tools/call")) },
		"gRPC":    func() *http.Request { return rpc("application/grpc") },
		"Connect": func() *http.Request { return rpc("application/connect+json") },
	}
	synctest.Test(t, func(t *testing.T) {
		for name, config := range shortRefusals(t) {
			blocks := make(chan struct{})
			h := limited(t, config).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-blocks }))
			go serve(h, request())
			synctest.Wait()
			for format, ask := range asks {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				w := serve(h, ask().WithContext(ctx))
				cancel()
				is := name + ", " + format
				seconds := w.Header().Get("Retry-After")
				require.Len(t, w.Header()["Retry-After"], 1, is)
				require.Regexp(t, `^[1-9][0-9]*$`, seconds, is)
				switch format {
				case "JSON":
					require.Contains(t, w.Body.String(), `"retry_after":`+seconds, is)
				case "MCP":
					require.Contains(t, w.Body.String(), `"retryAfter":`+seconds, is)
				case "gRPC":
					require.Equal(t, seconds+"000", w.Header().Get("Grpc-Retry-Pushback-Ms"), is)
				}
			}
			close(blocks)
		}
	})
}
