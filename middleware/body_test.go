package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A readCounter counts the calls of Read.
type readCounter struct {
	io.Reader
	reads int
}

func (c *readCounter) Read(p []byte) (int, error) {
	c.reads++
	return c.Reader.Read(p)
}

// prompt returns a request with a body, and counts how often it is read.
func prompt(text string) (*http.Request, *readCounter) {
	body := &readCounter{Reader: strings.NewReader(text)}
	r := httptest.NewRequest("POST", "/v1/chat", io.NopCloser(body))
	r.Header.Set("X-Key", "k")
	return r, body
}

var model = keyfunc.JSONField("model", 1<<10)

var size = middleware.TryCostOf(func(r *http.Request) (int64, error) {
	text, err := keyfunc.Body(r, 1<<10)
	return int64(len(text)), err
})

func TestAClientOverItsLimitHasNoBodyRead(t *testing.T) {
	calls := middleware.Rule{Name: "calls", Key: keyfunc.Header("X-Key"), Limit: perHour(2)}
	for name, tt := range map[string]struct {
		reads middleware.Rule
		calls middleware.Rule
	}{
		"a key":           {middleware.Rule{Key: keyfunc.JSONField("model", 1<<10)}, calls},
		"a part of a key": {middleware.Rule{Key: keyfunc.JoinPresent(keyfunc.Header("X-Key"), keyfunc.JSONField("model", 1<<10))}, calls},
		"a function":      {middleware.Rule{Key: model}, calls},
		"a cost":          {middleware.Rule{Key: keyfunc.Header("X-Key"), Cost: size}, calls},
		"a reservation":   {middleware.Rule{Key: keyfunc.Header("X-Key"), Cost: size.Reserved()}, calls},
		"distinct":        {middleware.Rule{Key: keyfunc.Header("X-Key"), Distinct: model}, calls},
		"a match": {middleware.Rule{Key: keyfunc.Global, Match: middleware.MatchFunc(func(r *http.Request) bool {
			text, err := keyfunc.Body(r, 1<<10)
			return err == nil && len(text) > 0
		})}, calls},
		"counts":     {middleware.Rule{Key: model}, middleware.Rule{Name: "calls", Key: keyfunc.Header("X-Key"), Limit: perHour(2), Counts: middleware.StatusClass(2)}},
		"afterwards": {middleware.Rule{Key: model}, middleware.Rule{Name: "calls", Key: keyfunc.Header("X-Key"), Limit: perHour(2), Counts: middleware.StatusClass(2).Afterwards()}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.reads.Name, tt.reads.Limit = "reads", perHour(1000)
			if tt.reads.Distinct == nil {
				tt.reads.Limit = limiter.All(perHour(1000), limiter.AtOnce(5).Queue(3, time.Second))
			}
			handler := limited(t, middleware.Config{Rules: []middleware.Rule{tt.reads, tt.calls}}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				text, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Equal(t, `{"model":"m"}`, string(text))
			}))
			for i, want := range []int{200, 200, 429} {
				r, body := prompt(`{"model":"m"}`)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				require.Equal(t, want, w.Code)
				assert.Equal(t, i == 2, body.reads == 0)
				if want == 429 {
					assert.NotEmpty(t, w.Header().Get("Retry-After"))
				}
			}
		})
	}
}

func TestRulesThatReadTheBodyAreAllOrNone(t *testing.T) {
	var got []string
	limits := limited(t, middleware.Config{
		Observer: observerFunc(func(o *middleware.Observation) {
			for _, r := range o.Rules {
				got = append(got, o.Outcome.String()+" "+r.Rule.Name)
			}
		}),
		Rules: []middleware.Rule{
			{Name: "model", Key: model, Limit: perHour(1)},
			{Name: "calls", Key: keyfunc.Header("X-Key"), Limit: perHour(2)},
		},
	})
	handler := limits.Handler(noop)
	for _, c := range []struct {
		body string
		want int
	}{{`{"model":"a"}`, 200}, {`{"model":"a"}`, 429}, {`{"model":"a"}`, 429}, {`{"model":"a","model":"b"}`, 400}, {`{"model":"b"}`, 200}, {`{"model":"c"}`, 429}} {
		r, _ := prompt(c.body)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		assert.Equal(t, c.want, w.Code, c.body)
	}
	assert.Equal(t, []string{
		"allowed calls", "allowed model", "refused calls", "refused model", "refused calls", "refused model", "allowed calls", "allowed model", "refused calls",
	}, got, "what one rule refuses costs by no other, and the last is refused without its body")
}

type observerFunc func(*middleware.Observation)

func (f observerFunc) Observe(o *middleware.Observation) { f(o) }

func TestAnEarlyRefusalCountsForABan(t *testing.T) {
	list := bans.Must(bans.New(bans.Options{}))
	handler := limited(t, middleware.Config{Bans: middleware.Bans{List: list}, Rules: []middleware.Rule{
		{Name: "calls", Key: keyfunc.IP(), Limit: perHour(1), Escalate: bans.Escalation{After: 2, Within: time.Hour, Ban: time.Hour}},
		{Name: "model", Key: model, Limit: plenty},
	}}).Handler(noop)
	for _, want := range []int{200, 429, 429, 403} {
		r, _ := prompt(`{"model":"a"}`)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code)
	}
}

func TestACostThatCannotBeReadRefuses(t *testing.T) {
	number, err := keyfunc.JSONNumber("n", 64)
	require.NoError(t, err)
	broken := false
	cost := middleware.TryCostOf(func(r *http.Request) (int64, error) {
		if broken {
			return 0, errors.New("on purpose")
		}
		return number(r)
	})
	l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "r", Key: keyfunc.Global, Limit: perHour(10), Cost: cost}}})
	for _, c := range []struct {
		body string
		want int
	}{{`{"n":4}`, 200}, {`{"n":"4"}`, 400}, {`{"n":1e308}`, 400}, {`{"n":4,"pad":"` + strings.Repeat("x", 64) + `"}`, 413}, {`{"n":6}`, 200}} {
		r, _ := prompt(c.body)
		w := httptest.NewRecorder()
		l.Handler(noop).ServeHTTP(w, r)
		assert.Equal(t, c.want, w.Code, c.body)
	}
	broken = true
	r, _ := prompt("{}")
	w := httptest.NewRecorder()
	l.Handler(noop).ServeHTTP(w, r)
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
}
