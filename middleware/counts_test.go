package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// answering answers with a status.
func answering(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// ask is the status that l, around a handler that answers with that one, lets a client see.
func ask(l *middleware.RateLimit, status int, edits ...func(*http.Request)) int {
	w := httptest.NewRecorder()
	l.Handler(answering(status)).ServeHTTP(w, request(edits...))
	return w.Code
}

// left is what a key has left of a rule.
func left(t *testing.T, l *middleware.RateLimit, rule, key string) int64 {
	t.Helper()
	found, err := l.Peek(t.Context(), rule, key)
	require.NoError(t, err)
	return found[0].Remaining
}

func TestOnlyAnswersThatCountUseUpALimit(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{
			{Name: "login", Key: keyfunc.IP(), Limit: limiter.PerMinute(2), Counts: middleware.Statuses(401, 403)},
			{Name: "signup", Key: keyfunc.IP(), Limit: limiter.PerHour(3), Counts: middleware.StatusClass(2)},
			{Name: "all", Key: keyfunc.IP(), Limit: limiter.PerHour(100)},
		}})
		for range 2 {
			assert.Equal(t, 404, ask(l, 404), "what does not count is without end")
		}
		assert.Equal(t, 401, ask(l, 401))
		assert.Equal(t, 200, ask(l, 200))
		assert.Equal(t, 201, ask(l, 201))
		assert.Equal(t, 403, ask(l, 403))
		assert.Equal(t, http.StatusTooManyRequests, ask(l, 200), "two wrong ones are all")
		const client = "192.0.2.1"
		assert.EqualValues(t, 1, left(t, l, "signup", client), "the refused request used nothing up")
		assert.EqualValues(t, 94, left(t, l, "all", client), "a rule beside it counts all of them")
	})
}

func TestLoginsInFlightHoldWhatTheirAnswersMayCount(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{
		{Name: "login", Key: keyfunc.Global, Limit: perHour(2), Counts: middleware.Statuses(401)},
	}})
	through(l, func(http.ResponseWriter, *http.Request) {
		through(l, func(w http.ResponseWriter, _ *http.Request) {
			assert.Equal(t, http.StatusTooManyRequests, ask(l, 200), "two are in flight, and both may fail")
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	assert.Equal(t, 401, ask(l, 401), "one has failed")
	assert.Equal(t, http.StatusTooManyRequests, ask(l, 200), "two have failed")
}

func TestAnAdapterTellsHowARequestEnds(t *testing.T) {
	l := limited(t, middleware.Config{Results: true, Rules: []middleware.Rule{
		{Name: "login", Key: keyfunc.Global, Limit: limiter.PerHour(1).With(limiter.SlidingLog), Counts: middleware.Statuses(401), Match: middleware.Route("POST /login")},
		{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(100)},
	}})
	w := http.ResponseWriter(httptest.NewRecorder())
	entered := l.Enter(w, request(routedBy("/other")), nil)
	require.NotNil(t, entered)
	assert.Same(t, w, entered.Writer, "no rule that applied awaits the end")
	entered.End(200)

	login := func() *http.Request {
		return request(routedBy("/login"), func(r *http.Request) { r.Method = http.MethodPost })
	}
	r := login()
	entered = l.Enter(w, r, nil)
	require.NotNil(t, entered)
	assert.NotEqual(t, w, entered.Writer)
	result, ok := middleware.FromContext(entered.Request.Context())
	assert.True(t, ok)
	assert.Equal(t, "login", result.Rule)
	entered.End(200)
	entered.End(401) // the first counts

	entered = l.Enter(w, login(), nil)
	require.NotNil(t, entered)
	entered.End(401)

	told, refused := refusal(l, httptest.NewRecorder(), login())
	assert.True(t, refused)
	assert.Equal(t, http.StatusTooManyRequests, told.Status)
}

func TestCountsAreText(t *testing.T) {
	for text, want := range map[string]middleware.Counts{
		"401":              middleware.Statuses(401),
		"401, 403":         middleware.Statuses(403, 401),
		"2xx":              middleware.StatusClass(2),
		"1xx, 301, 4xx":    parsed(middleware.ParseCounts("301", "4xx", "1xx")),
		"all but 5xx":      middleware.Not(middleware.StatusClass(5)),
		"all but 429, 503": middleware.Not(middleware.Statuses(429, 503)),
		"all":              {},
	} {
		assert.Equal(t, text, want.String())
	}
	assert.Equal(t, middleware.Statuses(401, 403), parsed(middleware.ParseCounts("401", "403")))
	assert.Equal(t, middleware.StatusClass(2, 3), parsed(middleware.ParseCounts("2xx", "3xx")))
	assert.Equal(t, middleware.Not(middleware.StatusClass(5)), parsed(middleware.ParseCounts("!5xx")))
	assert.Equal(t, middleware.Not(middleware.Statuses(404)), parsed(middleware.ParseCounts("!404")))
	for _, wrong := range [][]string{{}, {""}, {"600"}, {"99"}, {"0xx"}, {"6xx"}, {"xx"}, {"!"}, {"ok"}, {"!5xx", "404"}, {"2xx", "!404"}, {"+2xx"}, {"+401"}, {"0401"}, {"02xx"}, {" 401"}, {"-1"}} {
		_, err := middleware.ParseCounts(wrong...)
		assert.Error(t, err, "%q", wrong)
	}
}

func parsed(c middleware.Counts, _ error) middleware.Counts { return c }

func TestCountsIsOfItsStatusesAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		statuses := rapid.SliceOfN(rapid.IntRange(100, 599), 1, 20).Draw(rt, "statuses")
		asked := rapid.IntRange(100, 999).Draw(rt, "asked")
		named := false
		var texts []string
		for _, status := range statuses {
			named = named || status == asked
			texts = append(texts, strconv.Itoa(status))
		}
		counts, err := middleware.ParseCounts(texts...)
		require.NoError(rt, err)
		for _, c := range []struct {
			counts middleware.Counts
			want   bool
		}{{counts, named}, {middleware.Not(counts), !named}} {
			l := limited(rt, middleware.Config{Rules: []middleware.Rule{
				{Name: "some", Key: keyfunc.Global, Limit: limiter.PerHour(10).With(limiter.SlidingLog), Counts: c.counts},
			}})
			l.Enter(httptest.NewRecorder(), request(), nil).End(asked)
			found, err := l.Peek(t.Context(), "some", "")
			require.NoError(rt, err)
			require.Equal(rt, c.want, found[0].Remaining == 9, "%v of %d", c.counts, asked)
		}
	})
}

// A sender is a ResponseWriter that notes what it reads from.
type sender struct {
	*httptest.ResponseRecorder
	from io.Reader
}

func (s *sender) ReadFrom(r io.Reader) (int64, error) {
	s.from = r
	return io.Copy(struct{ io.Writer }{s.ResponseRecorder}, r)
}

func TestARuleThatCountsAnswersAloneHandsOnWhatIsReadFrom(t *testing.T) {
	from := struct{ io.Reader }{strings.NewReader("whole")}
	l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "a", Key: keyfunc.Global, Limit: perHour(5), Counts: middleware.Statuses(401)}}})
	to := &sender{ResponseRecorder: httptest.NewRecorder()}
	l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, from) })).ServeHTTP(to, request())
	assert.Equal(t, "whole", to.Body.String())
	assert.Equal(t, from, to.from, "nobody asks when it waits")
}

func TestACostAboveTheLimitNeverPassesAfterwardsEither(t *testing.T) {
	cost := int64(6)
	rule := middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: perHour(5), Counts: middleware.Statuses(200).Afterwards(), Cost: middleware.CostOf(func(*http.Request) int64 { return cost })}
	h := limited(t, middleware.Config{Rules: []middleware.Rule{rule}}).Handler(ok)
	w := serve(h, request())
	assert.Equal(t, 429, w.Code)
	assert.Empty(t, w.Header().Get("Retry-After"), "no wait helps")
	cost = 5
	assert.Equal(t, 200, serve(h, request()).Code)
	assert.Equal(t, 429, serve(h, request()).Code)
}

// A failingBody ends with an error, as when a client breaks off, or with what it has sent of its length so far.
type failingBody struct {
	io.Reader
	err error
}

func (b *failingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		err = b.err
	}
	return n, err
}

func (b *failingBody) Close() error { return nil }

// Otherwise a client would try passwords, or use tokens, and get a 5xx in place of the bill.
func TestAClientThatHoldsItsBodyBackIsCharged(t *testing.T) {
	readAll := func(r *http.Request) { _, _ = io.ReadAll(r.Body) }
	read := func(n int) func(*http.Request) {
		return func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, n)) }
	}
	for name, test := range map[string]struct {
		length int64
		err    error
		read   func(*http.Request)
		status int
		left   int64
	}{
		"whole":                             {4, io.EOF, readAll, 503, 10},
		"not read":                          {8, io.EOF, read(0), 503, 10},
		"broken off":                        {8, io.ErrUnexpectedEOF, readAll, 503, 9},
		"broken off, which is not a 5xx":    {8, io.ErrUnexpectedEOF, readAll, 400, 9},
		"held back":                         {8, io.ErrUnexpectedEOF, read(3), 504, 9},
		"held back, which is not the doing": {8, io.ErrUnexpectedEOF, read(3), 400, 10},
	} {
		for _, afterwards := range []bool{false, true} {
			counts := middleware.StatusClass(2)
			if afterwards {
				counts = counts.Afterwards()
			}
			l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "some", Key: keyfunc.Global, Limit: perHour(10), Counts: counts}}})
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				test.read(r)
				w.WriteHeader(test.status)
			}))
			serve(h, request(func(r *http.Request) {
				r.Body, r.ContentLength = &failingBody{strings.NewReader("four"), test.err}, test.length
			}))
			assert.EqualValues(t, test.left, left(t, l, "some", ""), "%s, afterwards: %v", name, afterwards)
		}
	}
}

// What is between two limiters may clone the request: the answer is the same.
func TestCountAsReachesAllLimitersOfTheAnswer(t *testing.T) {
	for name, inner := range map[string]middleware.Rule{
		"a slot":        {Name: "inner", Key: keyfunc.Global, Limit: limiter.AtOnce(3)},
		"a limit":       {Name: "inner", Key: keyfunc.Global, Limit: plenty},
		"a reservation": tokens(1, 100),
		"counts":        {Name: "inner", Key: keyfunc.Global, Limit: plenty, Counts: middleware.Statuses(200)},
	} {
		outer := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "outer", Key: keyfunc.Global, Limit: perHour(10), Counts: middleware.Statuses(401)}}})
		within := limited(t, middleware.Config{Rules: []middleware.Rule{inner}}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			assert.NoError(t, middleware.CountAs(r.Context(), 401), name)
		}))
		through(outer, within.ServeHTTP)
		through(outer, func(w http.ResponseWriter, r *http.Request) { within.ServeHTTP(w, r.Clone(r.Context())) })
		assert.EqualValues(t, 8, left(t, outer, "outer", ""), name)
		through(outer, func(_ http.ResponseWriter, r *http.Request) {
			sub := r.Clone(r.Context())
			limited(t, middleware.Config{Rules: []middleware.Rule{inner}}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_ = middleware.CountAs(r.Context(), 401)
			})).ServeHTTP(httptest.NewRecorder(), sub)
		})
		assert.EqualValues(t, 8, left(t, outer, "outer", ""), "%s: another answer", name)
	}
}

func TestRequestsAtOnceAllPassARuleThatChargesAfterwards(t *testing.T) {
	l := limited(t, middleware.Config{Rules: []middleware.Rule{
		{Name: "login", Key: keyfunc.Global, Limit: perHour(1), Counts: middleware.Statuses(401).Afterwards()},
	}})
	through(l, func(w http.ResponseWriter, r *http.Request) {
		assert.EqualValues(t, 1, left(t, l, "login", ""), "it is charged when its answer is known")
		assert.Equal(t, 401, ask(l, 401), "while another is in progress")
		w.WriteHeader(401)
	})
	assert.Equal(t, http.StatusTooManyRequests, ask(l, 401))
}
