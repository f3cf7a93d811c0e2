package middleware_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

func TestTheBodyIsWhatTheClientAskedFor(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		const problem, plain, text = "application/problem+json", "application/json", "text/plain; charset=utf-8"
		tests := []struct {
			accept []string
			want   string
		}{
			{nil, plain},
			{[]string{""}, plain},
			{[]string{"*/*"}, plain},
			{[]string{"application/json"}, plain},
			{[]string{"application/*"}, plain},
			{[]string{"application/problem+json"}, problem},
			{[]string{"Application/Problem+JSON"}, problem},
			{[]string{"application/json, application/problem+json"}, problem},
			{[]string{"application/json", "application/problem+json"}, problem},
			{[]string{"application/json, application/problem+json;q=0.5"}, plain},
			{[]string{"application/problem+json;q=0, */*"}, plain},
			{[]string{"application/problem+json;q=0"}, plain},
			{[]string{"application/json, text/plain, */*"}, plain},
			{[]string{"text/plain"}, text},
			{[]string{"text/*"}, text},
			{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, text},
			{[]string{"text/html;q=0.1, application/json;q=0.2"}, plain},
			{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"}, text},
			{[]string{"application/json;q=0, */*"}, text},
			{[]string{"text/html;q=0, text/plain"}, text},
			{[]string{"text/html;q=0.1, application/json;q=0.5, text/plain"}, text},
			{[]string{"image/png"}, plain},
			{[]string{"text/plain;q=nonsense, application/json;q=0.1"}, plain},
			{[]string{"text/plain; charset=utf-8 ; q=1"}, text},
			{[]string{",,;;q,/,*"}, plain},
		}
		for _, test := range tests {
			l := newLimit(t, middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1)})
			serve(l.Handler(ok), request())
			w := serve(l.Handler(ok), request(func(r *http.Request) { r.Header["Accept"] = test.accept }))
			require.Equal(t, 429, w.Code)
			require.Equal(t, test.want, w.Header().Get("Content-Type"), "Accept: %q", test.accept)
			if test.want != text {
				require.True(t, json.Valid(w.Body.Bytes()))
			}
		}
	})
}

// Bodies are written by hand, and are what encoding/json makes.
func TestBodiesAreTheJSONThatEncodingWrites(t *testing.T) {
	type plain struct {
		Error      string `json:"error"`
		Message    string `json:"message"`
		RetryAfter int64  `json:"retry_after,omitempty"`
	}
	type problem struct {
		Type     string   `json:"type,omitempty"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Detail   string   `json:"detail"`
		Violated []string `json:"violated-policies,omitempty"`
	}
	phase.Test(t, func(*testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			var rules []middleware.Rule
			var names []string
			for i := range rapid.IntRange(1, 6).Draw(t, "rules") {
				name := strconv.Itoa(i) + rapid.StringMatching(`[ -~]{0,8}[!-~]`).Draw(t, "name")
				per := time.Duration(rapid.Int64Range(1, 1<<33).Draw(t, "per")) * time.Millisecond
				limit := limiter.Limit{Events: 1, Per: min(per, 30*24*time.Hour), Algorithm: limiter.SlidingLog}
				rules, names = append(rules, middleware.Rule{Name: name, Key: keyfunc.Global, Limit: limit}), append(names, name)
			}
			units := rapid.Int64Range(1, 2).Draw(t, "units")
			rules[0].Cost = middleware.CostOf(func(*http.Request) int64 { return units })
			h := middleware.Must(middleware.New(middleware.Config{Rules: rules, Logger: quiet})).Handler(noop)
			if units == 1 {
				serve(h, request())
			} else {
				names = names[:1] // it asks for more than there ever is
			}

			w := serve(h, request())
			require.Equal(t, 429, w.Code)
			seconds, _ := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
			message := "The request costs more than the limit ever allows at once."
			if units == 1 {
				wait, unit, units := time.Duration(seconds)*time.Second, time.Second, "seconds"
				switch {
				case wait == time.Second:
					units = "second"
				case wait >= 48*time.Hour:
					unit, units = 24*time.Hour, "days"
				case wait >= 2*time.Hour:
					unit, units = time.Hour, "hours"
				case wait >= 2*time.Minute:
					unit, units = time.Minute, "minutes"
				}
				message = fmt.Sprintf("Too many requests. Try again in %d %s.", wait.Round(unit)/unit, units)
			}
			require.Equal(t, encoded(plain{"rate_limit_exceeded", message, seconds}), w.Body.String())

			w = serve(h, request(header("Accept", "application/problem+json")))
			require.Equal(t, encoded(problem{"https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota Exceeded", 429, message, names}), w.Body.String())
		})
	})
}

func encoded(body any) string {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(body)
	return strings.TrimSuffix(text.String(), "\n")
}

// A refusal has to be cheap, whatever the client sends.
func TestAnAcceptFieldWithoutEndIsNotRead(t *testing.T) {
	const problem = "application/problem+json"
	h := middleware.PerIP(limiter.PerDay(1))(noop)
	h.ServeHTTP(nobody{http.Header{}}, request())
	refuse := func(accept ...string) (contentType string, allocs float64) {
		r, w := request(func(r *http.Request) { r.Header["Accept"] = accept }), nobody{http.Header{}}
		allocs = testing.AllocsPerRun(10, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		})
		return w.header.Get("Content-Type"), allocs
	}
	_, least := refuse()
	long := func(text string, n int) string { return strings.Repeat(text, n/len(text)) }
	for name, accept := range map[string][]string{
		"one line":    {problem + long(",A/B", 1<<20)},
		"a last line": {long(",A/B", 1<<20), problem},
		"many lines":  append(slices.Repeat([]string{"A/B"}, 1<<18), problem),
		"empty lines": append(make([]string, 1<<18), problem),
		"no elements": {problem, long("A", 1<<20)},
		"parameters":  {problem + long(";A=B", 1<<20)},
		"commas":      {problem + long(",", 1<<20)},
	} {
		contentType, allocs := refuse(accept...)
		assert.Equal(t, "application/json", contentType, "%s: it is answered like one that says nothing", name)
		assert.LessOrEqual(t, allocs, least+5, "%s: what it has is not looked at", name)
	}
	contentType, _ := refuse("text/html,"+long("image/png,", 500), problem)
	assert.Equal(t, problem, contentType, "more than any client sends is read")
}

func TestRefusalsSayWhatClientsNeed(t *testing.T) {
	inMinute(t, func(t *testing.T) {
		h := newLimit(t, middleware.Rule{Name: "login", Key: keyfunc.Global, Limit: limiter.PerMinute(1).With(limiter.FixedWindow)}).Handler(ok)
		serve(h, request())

		w := serve(h, request(header("Accept", "text/plain")))
		assert.Equal(t, "Too many requests. Try again in 50 seconds.\n", w.Body.String())
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))

		w = serve(h, request(func(r *http.Request) { r.Method = http.MethodHead }))
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, "50", w.Header().Get("Retry-After"))
		assert.Empty(t, w.Body.String(), "HEAD has no body")
		assert.Equal(t, "104", w.Header().Get("Content-Length"), "but the length of GET's")
	})
}

func TestOwnAnswersToRefusals(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		var seen middleware.Result
		list := bansOf(t)
		l, err := middleware.New(middleware.Config{
			Bans: middleware.Bans{List: list, Keys: byIP},
			Rules: []middleware.Rule{
				{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1)},
				{Name: "key", NoKey: middleware.NoKeyUnauthorized, Limit: limiter.PerHour(1),
					Match: middleware.MatchFunc(func(r *http.Request) bool { return r.Method == http.MethodPut }),
					Key:   func(*http.Request) (string, error) { return "", nil }},
				{Name: "own", Mode: middleware.Deny, Match: middleware.MatchFunc(func(r *http.Request) bool { return r.Method == http.MethodPatch }),
					Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request, result middleware.Result) { w.WriteHeader(result.Status) }}},
			},
			Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, r *http.Request, result middleware.Result) {
				seen = result
				w.WriteHeader(http.StatusTeapot)
			}},
		})
		require.NoError(t, err)
		h := l.Handler(ok)
		require.Equal(t, 200, serve(h, request()).Code)

		w := serve(h, request())
		assert.Equal(t, http.StatusTeapot, w.Code)
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.Equal(t, 429, seen.Status)
		assert.Equal(t, "r", seen.Rule)
		assert.Positive(t, seen.RetryAfter)

		serve(h, request(func(r *http.Request) { r.Method = http.MethodPut }))
		assert.Equal(t, 401, seen.Status)
		assert.Empty(t, seen.Rule)
		assert.Equal(t, 403, serve(h, request(func(r *http.Request) { r.Method = http.MethodPatch })).Code, "its own goes before Config's")

		_, err = list.Escalate(t.Context(), "192.0.2.1", "login", bans.Escalation{Ban: time.Second, Factor: 1, Max: time.Second})
		require.NoError(t, err)
		serve(h, request())
		assert.Equal(t, middleware.Result{Rule: "login", Status: 403, Banned: true, Decision: limiter.Decision{RetryAfter: time.Second}}, seen)
	})
}
