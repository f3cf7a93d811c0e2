package middleware_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// answersOf is what a request is answered in each format, by what it accepts.
func answersOf(t *testing.T, h http.Handler) map[string]*httptest.ResponseRecorder {
	t.Helper()
	answers := map[string]*httptest.ResponseRecorder{}
	for name, accept := range map[string]string{"problem": "application/problem+json", "json": "application/json", "text": "text/plain"} {
		w := serve(h, request(header("Accept", accept)))
		if name != "text" {
			require.True(t, json.Valid(w.Body.Bytes()), w.Body)
		}
		answers[name] = w
	}
	return answers
}

func TestARefusalIsInTheApplicationsWordsInEachFormat(t *testing.T) {
	var told middleware.Result
	c := middleware.Config{
		Refusal: middleware.Refusal{Status: 420, Message: `Easy, "{rule}" <is> {limit}: back in {retry_after} ({seconds}).`, Type: "https://example.org/slow", Title: `Größe "x"`},
		Rules:   []middleware.Rule{{Name: `a"b`, Key: keyfunc.Global, Limit: logOf(1, time.Hour)}},
	}
	h := limited(t, c).Handler(ok)
	require.Equal(t, 200, serve(h, request()).Code)
	for format, w := range answersOf(t, h) {
		assert.Equal(t, 420, w.Code, format)
		assert.Equal(t, "3600", w.Header().Get("Retry-After"), format)
		var body map[string]any
		message := `Easy, "a"b" <is> 1/1h sliding-log: back in 60 minutes (3600).`
		switch _ = json.Unmarshal(w.Body.Bytes(), &body); format {
		case "text":
			assert.Equal(t, message+"\n", w.Body.String())
		case "json":
			assert.Equal(t, map[string]any{"error": "rate_limit_exceeded", "message": message, "retry_after": 3600.}, body)
		default:
			assert.Equal(t, map[string]any{"type": "https://example.org/slow", "title": `Größe "x"`, "status": 420., "detail": message, "violated-policies": []any{`a"b`}}, body)
		}
	}
	c.Refusal.Answer = func(w http.ResponseWriter, _ *http.Request, result middleware.Result) { told = result }
	h = limited(t, c).Handler(ok)
	serve(h, request())
	serve(h, request())
	assert.Equal(t, 420, told.Status)
}

func TestJitterMakesRetryAfterLaterAndNeverSooner(t *testing.T) {
	for _, test := range []struct {
		general, own, retryAfter int
		most                     string
	}{{0, 0, 3600, "3600"}, {20, 0, 3600, "4320"}, {100, 1, 3600, "3636"}, {1, 0, 7, "8"}} {
		synctest.Test(t, func(t *testing.T) {
			period := time.Duration(test.retryAfter) * time.Second
			h := limited(t, middleware.Config{
				Headers: bothHeaders,
				Refusal: middleware.Refusal{Jitter: test.general, Message: "{seconds}"},
				Rules:   []middleware.Rule{{Name: "a", Key: keyfunc.Global, Limit: logOf(1, period), Refusal: middleware.Refusal{Jitter: test.own}}},
			}).Handler(ok)
			serve(h, request())
			least, most, seen := strconv.Itoa(test.retryAfter), test.most, map[string]bool{}
			for range 400 {
				w := serve(h, request(header("Accept", "text/plain")))
				seen[w.Header().Get("Retry-After")] = true
				require.Equal(t, w.Header().Get("Retry-After")+"\n", w.Body.String())
				require.Contains(t, w.Header().Get("RateLimit"), ";t="+least, "the field stays exact")
			}
			all := slices.Sorted(maps.Keys(seen))
			assert.GreaterOrEqual(t, all[0], least)
			assert.LessOrEqual(t, all[len(all)-1], most)
			if n, _ := strconv.Atoi(most); n-test.retryAfter <= 1 {
				assert.Len(t, all, n-test.retryAfter+1, "all of the room is used")
			} else {
				assert.Greater(t, len(all), 20)
			}
		})
	}
	_, err := middleware.New(middleware.Config{Refusal: middleware.Refusal{Jitter: 101}, Rules: []middleware.Rule{{Name: "a", Key: keyfunc.Global, Limit: logOf(1, time.Hour), Refusal: middleware.Refusal{Jitter: -1}}}})
	assert.ErrorContains(t, err, "Refusal.Jitter is 101: it must be from 1 to 100 percent")
	assert.ErrorContains(t, err, "Refusal.Jitter is -1")
}

func TestARulesOwnRefusalGoesBeforeThatForAll(t *testing.T) {
	general := middleware.Refusal{Status: 503, Message: "Later.", Type: "https://example.org/all", Title: "All"}
	for _, c := range []struct {
		own  middleware.Refusal
		want string
	}{
		{middleware.Refusal{}, `{"type":"https://example.org/all","title":"All","status":503,"detail":"Later.","violated-policies":["r"]}`},
		{middleware.Refusal{Message: "Now."}, `{"type":"https://example.org/all","title":"All","status":503,"detail":"Now.","violated-policies":["r"]}`},
		{middleware.Refusal{Type: "https://example.org/own", Status: 429}, `{"type":"https://example.org/own","status":429,"detail":"Later.","violated-policies":["r"]}`},
	} {
		h := limited(t, middleware.Config{Refusal: general, Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: logOf(1, time.Hour), Refusal: c.own}}}).Handler(ok)
		serve(h, request())
		assert.Equal(t, c.want, serve(h, request(header("Accept", "application/problem+json"))).Body.String())
	}
}

func TestAMessageThatTellsATimeIsNotUsedWhereThereIsNone(t *testing.T) {
	r := middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: logOf(1, time.Hour), Cost: middleware.CostOf(func(*http.Request) int64 { return 2 }), Refusal: middleware.Refusal{Message: "In {seconds} seconds."}}
	w := serve(newLimit(t, r).Handler(ok), request(header("Accept", "text/plain")))
	assert.Equal(t, "The request costs more than the limit ever allows at once.\n", w.Body.String())
	assert.Empty(t, w.Header().Get("Retry-After"))
}

func TestARuleThatDeniesRefusesAllAndCountsNothing(t *testing.T) {
	var heard []string
	l := limited(t, middleware.Config{
		Observer: observer(func(o *middleware.Observation) {
			heard = append(heard, o.Outcome.String()+" by "+o.Rules[0].Rule.Name+" "+o.Rules[0].Rule.LimitText())
		}),
		Allow: middleware.MatchFunc(func(r *http.Request) bool { return r.Header.Get("Ops") != "" }),
		Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: plenty}},
		ByRoute: map[string][]middleware.Rule{
			"/closed": {{Name: "closed", Mode: middleware.Deny, Key: constant, Limit: plenty}},
			"/later":  {{Name: "later", Mode: middleware.Deny, Refusal: middleware.Refusal{Status: 503, RetryAfter: 10 * time.Minute, Message: "Back in {retry_after}."}}},
		},
	})
	answer := func(pattern string) (status int, retryAfter, body string) {
		w, _ := check(l, request(routedBy(pattern), header("Accept", "text/plain")))
		return w.Code, w.Header().Get("Retry-After"), w.Body.String()
	}
	status, retryAfter, body := answer("/closed")
	assert.Equal(t, []any{403, "", "This request is not accepted.\n"}, []any{status, retryAfter, body})
	status, retryAfter, body = answer("/later")
	assert.Equal(t, []any{503, "600", "Back in 10 minutes.\n"}, []any{status, retryAfter, body})
	assert.Equal(t, []string{"refused by closed none", "refused by later none"}, heard)

	shadow := limited(t, middleware.Config{Logger: quiet, Shadow: true, Rules: []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: plenty}, {Name: "closed", Mode: middleware.Deny}}})
	_, result := check(shadow, request())
	assert.True(t, result.Allowed, "all is in shadow")
	_, result = check(l, request(routedBy("/open")))
	assert.Equal(t, plenty.Events-1, result.Remaining, "what was denied was not counted")
	assert.Len(t, result.Rules, 1)
	assert.Equal(t, middleware.Explanation{Status: 403, Denied: "closed"}, l.Explain(request(routedBy("/closed"))))
	assert.True(t, l.Explain(request(routedBy("/closed"), header("Ops", "1"))).Exempt)
	assert.Len(t, l.Rules(), 3)
	require.NoError(t, l.Reset(t.Context(), "all", ""))
	require.ErrorIs(t, l.Reset(t.Context(), "closed", ""), middleware.ErrNoRule, "it has no counters")
}
