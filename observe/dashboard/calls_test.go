package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/browser"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/pace"
)

// A thirdParty refuses requests while it is refusing, and asks for a minute's cooldown.
type thirdParty struct{ refusing atomic.Bool }

func (p *thirdParty) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}
	if p.refusing.Load() {
		response.StatusCode = http.StatusTooManyRequests
		response.Header.Set("Retry-After", "60")
	}
	return response, nil
}

// calling has the page follow calls to two other servers, which are sent by its result.
func (s *service) calling(p *thirdParty) (call func(ctx context.Context, host string) error) {
	transport, err := pace.NewTransport(p, pace.Options{
		Observer: s.page, Unmatched: pace.PassUnmatched,
		Rules: []pace.Rule{
			{Host: "api.github.com", Limit: limiter.PerSecond(10)},
			{Name: "payments", Host: "api.stripe.com", Limit: limiter.PerSecond(100).WithBurst(100)},
		},
	})
	require.NoError(s.t, err)
	s.page.FollowTransport(transport)
	return func(ctx context.Context, host string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", nil)
		require.NoError(s.t, err)
		_, err = transport.RoundTrip(r)
		return err
	}
}

func TestThePageKnowsWhatIsSentToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		assert.Nil(t, s.figures().Calls)
		p := &thirdParty{}
		call := s.calling(p)
		for range 20 { // two seconds
			require.NoError(t, call(t.Context(), "api.github.com"))
		}
		require.NoError(t, call(t.Context(), "api.stripe.com"))
		require.NoError(t, call(t.Context(), "example.org"), "which no rule is for")
		p.refusing.Store(true)
		require.NoError(t, call(t.Context(), "api.github.com"), "refused, which is a response")
		p.refusing.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, call(ctx, "api.github.com"))
		waiting, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(waiting, 2*time.Minute)
			defer cancel()
			done <- call(ctx, "api.stripe.com")
		}()
		require.NoError(t, <-done)

		time.Sleep(2 * time.Second)
		list := s.figures().Calls.List
		require.Len(t, list, 2)
		github, stripe := list[0], list[1]
		assert.Equal(t, "api.github.com", github.Rule)
		assert.InDelta(t, time.Now().Add(58*time.Second).UnixMilli(), github.Until, 1000)
		assert.Equal(t, 1, github.Refused)
		assert.Equal(t, 1, github.GaveUp)
		assert.InDelta(t, 21./4, github.Sent, 2)
		assert.Regexp(t, `^1\d\d ms$`, github.P95, "they leave every tenth of a second")
		assert.Equal(t, "payments", stripe.Rule)
		assert.Equal(t, "0", stripe.P95)
		assert.Zero(t, stripe.Until)

		stop()
		time.Sleep(10 * time.Minute)
		github = s.figures().Calls.List[0]
		assert.Zero(t, github.Until+int64(github.Refused)+int64(github.GaveUp))
		assert.Zero(t, github.Sent)
		assert.Empty(t, github.P95)
	})
}

func TestRulesOfCallsAreBounded(t *testing.T) {
	s := start(t, dashboard.Options{})
	for i := range 1000 {
		s.page.ObserveAttempt(&pace.Observation{Rule: fmt.Sprint("rule ", i)})
	}
	assert.Len(t, s.figures().Calls.List, 30)
	assert.Equal(t, 71, s.figures().Calls.Hidden)
	assert.Panics(t, func() { s.page.FollowTransport(nil) })
	o := &pace.Observation{Rule: "rule 1", Waited: time.Second}
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.page.ObserveAttempt(o) }))
}

func TestThePageShowsCallsToOthers(t *testing.T) {
	t.Parallel()
	s := start(t, dashboard.Options{ShowKeys: true})
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#live").dataset.is === "live"`)
	assert.True(t, browser.Eval[bool](b, `document.querySelector("#calls").hidden`), "there are none")
	s.mixed()
	p := &thirdParty{}
	call := s.calling(p)
	for range 8 { // callers
		go func() {
			for t.Context().Err() == nil {
				if call(t.Context(), "api.github.com") != nil {
					return
				}
				_ = call(t.Context(), "api.stripe.com")
			}
		}()
	}
	b.Await(patience, `document.querySelector("#called li .number:nth-child(3) span")?.innerText >= "4"`)
	b.Await(patience, `document.querySelector("#called li .number:nth-child(4) span").innerText.endsWith(" ms")`)
	assert.Contains(t, b.Text("#called li:nth-child(1)"), "api.github.com")
	assert.Contains(t, b.Text("#called li:nth-child(2)"), "payments")

	p.refusing.Store(true)
	b.Await(patience, `/In cooldown, \d+ s left/.test(document.querySelector("#called").innerText)`)
	b.Await(patience, `document.querySelector("#called").innerText.includes(" refused.")`)
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{320, 390, 800, 1280, 1920} {
			b.Look(width, 1000, dark)
			assert.LessOrEqual(t, browser.Eval[int64](b, "document.documentElement.scrollWidth"), width, "nothing is beyond the edge")
			box := browser.Eval[[]float64](b, `(({width, height}) => [width, height])(document.getElementById("calls").getBoundingClientRect())`)
			assert.Greater(t, box[0], 0.8*float64(min(width, 400))-40, "at %d", width)
			if width != 800 {
				b.Run(`document.getElementById("calls").scrollIntoView()`)
				b.Picture(fmt.Sprintf("calls-%d-%v", width, dark))
			}
		}
	}
}
