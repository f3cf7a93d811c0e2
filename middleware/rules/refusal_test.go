package rules_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/middleware/rules"
)

func TestAFileSaysHowRefusalsAreAnswered(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		file := readText(t, "testdata/explain/refusal.yaml")
		s := openText(t, "headers: {send: legacy, limit: X-Rate-Limit, reset: delta, retry_after: true}\n"+file)
		says := func(c call) (int, http.Header, string) {
			answer := s.ask(c)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			return answer.StatusCode, answer.Header, string(body)
		}
		plain, problem := map[string]string{"Accept": "text/plain"}, map[string]string{"Accept": "application/problem+json"}
		_, h, _ := says(call{route: "GET /news"})
		require.Equal(t, []string{"2", "1", "3600", ""}, []string{h.Get("X-Rate-Limit-Limit"), h.Get("X-Rate-Limit-Remaining"), h.Get("X-Rate-Limit-Reset"), h.Get("RateLimit")})
		says(call{route: "GET /news"})
		status, _, body := says(call{route: "GET /news", header: plain})
		require.Equal(t, 503, status)
		require.Equal(t, "Slow down: 2/1h sliding-log, try again in 60 minutes.\n", body)
		for range 2 {
			says(call{route: "GET /login"})
		}
		status, _, body = says(call{route: "GET /login", header: problem})
		require.Equal(t, 429, status)
		require.Equal(t, `{"type":"https://example.org/slow","title":"Slow","status":429,"detail":"GET /login: 3600","violated-policies":["GET /login"]}`, body)
		says(call{route: "GET /feed"})
		seen := map[string]bool{}
		for range 50 {
			_, h, body = says(call{route: "GET /feed", header: plain})
			require.Equal(t, h.Get("Retry-After")+"\n", body)
			require.True(t, body >= "3600" && body <= "5400\n", body)
			seen[body] = true
		}
		require.Greater(t, len(seen), 10, "each is told another time")
		for range 4 {
			status, h, body = says(call{route: "POST /api/v1/upload", header: plain})
			require.Equal(t, 503, status)
			require.Equal(t, []string{"600", "600"}, []string{h.Get("Retry-After"), h.Get("X-Rate-Limit-Retry-After")})
			require.Equal(t, "Uploads are back in 10 minutes.\n", body)
		}
		require.Equal(t, 200, s.status(call{route: "POST /api/v1/upload", from: "10.0.0.9:1"}), "allow comes before deny")
		require.Equal(t, 403, s.status(call{route: "GET /other", tier: "free"}))
		s = openText(t, file)
		for range 3 {
			require.Equal(t, 200, s.status(call{route: "GET /api/v1/search"}), "the default's limit, as its own is off")
		}
		require.Equal(t, 503, s.status(call{route: "GET /api/v1/search"}))
	})
}

func TestAFileSaysWhenClientsGiveUp(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := openText(t, `
version: 1
proxies: {trusted: [127.0.0.1]}
refusal: {stop_above: 1m}
endpoints:
  "GET /all": {limit: 1/h}
  "GET /own": {limit: 1/h, refusal: {stop_above: 2h}}
  "GET /off": {limit: 1/h, refusal: {stop_above: off}}
`)
		for route, want := range map[string]string{"GET /all": "false", "GET /own": "", "GET /off": ""} {
			s.ask(call{route: route})
			assert.Equal(t, want, s.ask(call{route: route}).Header.Get("X-Should-Retry"), route)
		}
	})
}

func TestAFileSaysThatRefusalsAreForAIClients(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := openText(t, `
version: 1
proxies: {trusted: [127.0.0.1]}
refusal: {body: ai}
endpoints:
  "GET /all": {limit: 1/h}
  "GET /own": {limit: 1/h, refusal: {body: plain}}
`)
		for route, want := range map[string]string{"GET /all": `{"type":"error","error":{`, "GET /own": `{"error":"rate_limit_exceeded"`} {
			s.ask(call{route: route})
			body, err := io.ReadAll(s.ask(call{route: route}).Body)
			require.NoError(t, err)
			assert.Contains(t, string(body), want, route)
		}
	})
}

func TestAFilePacesClientsAndAnswersStreams(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := openText(t, `
version: 1
proxies: {trusted: [127.0.0.1]}
refusal: {stream: true, paced: 90s}
endpoints:
  "GET /all": {limit: 1/m sliding_log, key: global}
  "GET /short": {limit: 1/m sliding_log, key: global, refusal: {paced: 15s}}
  "GET /own": {limit: 1/m sliding_log}
`)
		for route, want := range map[string][]string{
			"GET /all": {"", "60", "120", "150", "150"}, "GET /short": {"", "60", "75", "75"}, "GET /own": {"", "60", "60"},
		} {
			for i, seconds := range want {
				answer := s.ask(call{route: route, header: map[string]string{"Accept": "text/event-stream"}})
				assert.Equal(t, seconds, answer.Header.Get("Retry-After"), route)
				status := 429
				if i == 0 || seconds == "60" {
					status = 200
				}
				assert.Equal(t, status, answer.StatusCode, "%s %d", route, i)
			}
		}
	})
}

// With all rules off nothing is limited, which is what the file says.
func TestAllRulesMayBeOff(t *testing.T) {
	r := parse(t, "version: 1\nglobal: {limit: 3/s, mode: off, key: global}\nendpoints: {\"/*\": {limit: 3/s, mode: off}}\ndefault: [{limit: 3/s, mode: off}, {limit: 5/s, key: user}]\n", rules.Options{})
	c := r.Config()
	assert.Empty(t, c.Rules)
	assert.Empty(t, c.ByRoute)
	assert.Equal(t, "default by user", c.Default[0].Name, "it has its name whether the first is on or not")
	open(t, parse(t, "version: 1\ndefault: {limit: 3/s, mode: off}\n", rules.Options{}))
}
