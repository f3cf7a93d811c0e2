package rules_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

const refusalFile = `version: 1
proxies: {trusted: [127.0.0.1]}
allow: {cidrs: [10.0.0.0/8]}
refusal: {status: 503, message: "Slow down: {limit}, try again in {retry_after}."}
endpoints:
  "GET /news": {limit: 2/h sliding_log}
  "GET /login": {limit: 2/h sliding_log, refusal: {status: 429, type: "https://example.org/slow", title: Slow, message: "{rule}: {seconds}"}}
  "GET /api/v1/search": {mode: off, limit: 1/h sliding_log}
  "POST /api/v1/upload": {mode: deny, refusal: {status: 503, retry_after: 10m, message: "Uploads are back in {retry_after}."}}
tiers:
  free: {mode: deny, limit: 5/h}
default: {limit: 3/h sliding_log}
`

func TestEveryWayToRefuseWorksOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	holdOnEveryRouterAndStore(t, []lineClaim{
		{line: "refusal:", claim: "the file's words, or the rule's own, in each format", run: refusedInWords, file: refusalFile},
		{line: "mode: off", claim: "as if the rule were not there, until it is on", run: switchedOff, file: refusalFile},
		{line: "headers:", claim: "the legacy fields have the names and the form that clients know", run: ownHeaders, file: "headers: {send: legacy, limit: X-Rate-Limit, reset: delta}\n" + refusalFile},
		{line: "mode: deny", claim: "none pass, and nothing is counted", run: deniedAll, file: refusalFile},
	})
}

func (s *lineService) says(t *testing.T, request string, c lineClient) (status int, h http.Header, body string) {
	t.Helper()
	response := s.ask(t, request, c)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(text)
}

func refusedInWords(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1", accept: "text/plain"}
	s.passes(t, "GET /news", visitor, 2)
	status, h, body := s.says(t, "GET /news", visitor)
	require.Equal(t, 503, status)
	require.NotEmpty(t, h.Get("Retry-After"))
	require.Regexp(t, `^Slow down: 2/1h sliding-log, try again in (60|59) minutes\.\n$`, body)

	visitor.accept = "application/problem+json"
	s.passes(t, "GET /login", visitor, 2)
	status, h, body = s.says(t, "GET /login", visitor)
	require.Equal(t, 429, status)
	require.Equal(t, "application/problem+json", h.Get("Content-Type"))
	require.Regexp(t, `^{"type":"https://example.org/slow","title":"Slow","status":429,"detail":"GET /login: \d+","violated-policies":\["GET /login"\]}$`, body)
}

func switchedOff(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1"}
	h := s.passes(t, "GET /api/v1/search", visitor, 3)
	require.Contains(t, h.Get("RateLimit"), `"default";r=0`)
	s.edit(t, strings.Replace(refusalFile, "mode: off, ", "", 1))
	require.NoError(t, s.reloaded(t))
	s.passes(t, "GET /api/v1/search", visitor, 1)
	require.Equal(t, 503, s.ask(t, "GET /api/v1/search", visitor).StatusCode)
}

func deniedAll(t *testing.T, s *lineService) {
	visitor := lineClient{ip: "203.0.113.1", accept: "text/plain"}
	for range 4 {
		status, h, body := s.says(t, "POST /api/v1/upload", visitor)
		require.Equal(t, 503, status)
		require.Equal(t, "600", h.Get("Retry-After"))
		require.Equal(t, "Uploads are back in 10 minutes.\n", body)
		require.Empty(t, rateFields(h))
	}
	s.passes(t, "POST /api/v1/upload", lineClient{ip: "10.0.0.9"}, 1)
	require.Equal(t, 403, s.ask(t, "GET /news", lineClient{ip: "203.0.113.1", tier: "free"}).StatusCode)
	s.passes(t, "GET /news", visitor, 2)

	s.edit(t, strings.Replace(refusalFile, "mode: deny, refusal: {status: 503, ", "mode: deny, refusal: {status: 403, ", 1))
	require.NoError(t, s.reloaded(t))
	require.Equal(t, 403, s.ask(t, "POST /api/v1/upload", visitor).StatusCode)
}

func TestWhatRefusesIsExplained(t *testing.T) {
	r := parse(t, refusalFile, rules.Options{})
	says := func(q rules.Request) string {
		e, err := r.Explain(q)
		require.NoError(t, err)
		require.Equal(t, []string{`endpoints."GET /api/v1/search" is off (line 8)`}, e.Notes)
		last := e.Steps[len(e.Steps)-1]
		return last.Section + ": " + last.Says
	}
	assert.Equal(t, "endpoints: every request is denied: answered 503", says(rules.Request{Method: "POST", Path: "/api/v1/upload"}))
	assert.Equal(t, "tiers: every request is denied: answered 403", says(rules.Request{Path: "/news", Tier: "free"}))
	assert.Equal(t, `default: 3/1h sliding-log for "192.0.2.1"`, says(rules.Request{Path: "/api/v1/search"}))
}

// With all rules off nothing is limited, which is what the file says.
func TestAllRulesMayBeOff(t *testing.T) {
	r := parse(t, "version: 1\nglobal: {limit: 3/s, mode: off}\nendpoints: {\"/*\": {limit: 3/s, mode: off}}\ndefault: [{limit: 3/s, mode: off}, {limit: 5/s, key: user}]\n", rules.Options{})
	c := r.Config()
	assert.Empty(t, c.Rules)
	assert.Empty(t, c.ByRoute)
	assert.Equal(t, "default by user", c.Default[0].Name, "it has its name whether the first is on or not")
	open(t, parse(t, "version: 1\ndefault: {limit: 3/s, mode: off}\n", rules.Options{}))
}

func ownHeaders(t *testing.T, s *lineService) {
	h := s.passes(t, "GET /news", lineClient{ip: "203.0.113.1"}, 1)
	require.Len(t, rateFields(h), 0, "neither the usual names nor the other family")
	require.Equal(t, []string{"2", "1"}, []string{h.Get("X-Rate-Limit-Limit"), h.Get("X-Rate-Limit-Remaining")})
	require.Contains(t, []string{"3600", "3599"}, h.Get("X-Rate-Limit-Reset"))

	s.edit(t, strings.Replace(s.text, "X-Rate-Limit, reset: delta", "Ratelimit", 1))
	require.NoError(t, s.reloaded(t))
	h = s.passes(t, "GET /news", lineClient{ip: "203.0.113.1"}, 1)
	require.Equal(t, []string{"2", "0"}, []string{h.Get("RateLimit-Limit"), h.Get("RateLimit-Remaining")})
	reset, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), time.Unix(reset, 0), time.Minute)
}
