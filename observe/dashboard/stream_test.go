package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
)

// A viewer is a client that has the page open.
type viewer struct {
	*httptest.ResponseRecorder
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

func (v *viewer) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ResponseRecorder.Write(p)
}

// events are the names of those that came.
func (v *viewer) events() (names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for line := range strings.Lines(v.Body.String()) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

func (v *viewer) ended() bool {
	synctest.Wait()
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}

// view opens a stream.
func view(s *service, edits ...func(*http.Request)) *viewer {
	ctx, cancel := context.WithCancel(s.t.Context())
	v := &viewer{ResponseRecorder: httptest.NewRecorder(), cancel: cancel, done: make(chan struct{})}
	r := accepting("text/event-stream").WithContext(ctx)
	for _, edit := range edits {
		edit(r)
	}
	go func() {
		s.mux.ServeHTTP(v, r)
		close(v.done)
	}()
	synctest.Wait()
	return v
}

func TestAPageIsToldEverythingAndThenWhatIsNewEachSecond(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		time.Sleep(300 * time.Millisecond)
		v := view(s)
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{"state", "tick", "tick", "tick"}, v.events())

		more, err := middleware.New(middleware.Config{Observer: s.page,
			Rules: []middleware.Rule{{Name: "new", Limit: limiter.PerMinute(5)}}})
		require.NoError(t, err)
		s.page.Add(more)
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"state", "tick", "tick", "tick", "state", "tick"}, v.events(), "rules have changed")
		v.cancel()
		assert.True(t, v.ended(), "a stream ends with its request")
	})
}

func TestTheNewestPageIsLiveAndTheOldestIsToldThatItIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{MaxStreams: 2})
		first, second := view(s), view(s)
		require.True(t, s.figures().Full)
		third := view(s)
		require.True(t, first.ended())
		assert.Equal(t, "closed", last(first.events()))
		assert.Contains(t, first.Body.String(), "retry: 60000\nevent: closed\n", "a page that comes back at once would displace another")
		assert.False(t, second.ended())
		time.Sleep(2*time.Second + 10*time.Millisecond)
		assert.Equal(t, []string{"state", "tick", "tick"}, third.events())

		second.cancel()
		require.True(t, second.ended())
		assert.False(t, s.figures().Full)
		fourth := view(s)
		assert.False(t, third.ended(), "there was room")
		third.cancel()
		fourth.cancel()
		assert.True(t, third.ended())
		assert.True(t, fourth.ended())
	})
}

func last(list []string) string { return list[len(list)-1] }

// viewAs opens a stream of an operator or of a stranger.
func viewAs(s *service, operator bool) *viewer {
	return view(s, func(r *http.Request) {
		if operator {
			r.Header.Set("X-Admin", "1")
		}
	})
}

func anybodyLooks(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("X-Admin") != ""
}

func TestStrangersDoNotCloseAnOperatorsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{MaxStreams: 3, Authorize: anybodyLooks})
		strangers := []*viewer{viewAs(s, false), viewAs(s, false), viewAs(s, false)}
		operator := viewAs(s, true)
		assert.False(t, operator.ended(), "he gets in")
		assert.True(t, strangers[0].ended())
		for range 20 {
			strangers = append(strangers, viewAs(s, false))
			time.Sleep(time.Second)
		}
		assert.False(t, operator.ended(), "and stays")
		assert.Greater(t, len(operator.events()), 15)

		more := []*viewer{viewAs(s, true), viewAs(s, true)}
		assert.False(t, operator.ended())
		refused := viewAs(s, false)
		require.True(t, refused.ended(), "a viewer that may only look displaces none that may act")
		assert.Equal(t, http.StatusServiceUnavailable, refused.Code)
		assert.Equal(t, "60", refused.Header().Get("Retry-After"))
		newest := viewAs(s, true)
		assert.True(t, operator.ended(), "the oldest of operators makes way for another")
		for _, v := range append(append(strangers, more...), newest) {
			v.cancel()
			assert.True(t, v.ended())
		}
	})
}

// A stuck viewer reads nothing.
type stuck struct {
	*viewer
	release chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	<-s.release
	return 0, errors.New("timeout")
}

func TestNoMoreStreamsAreServedAtOnceThanMayBeHoweverSlowlyTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{MaxStreams: 1})
		slow := stuck{&viewer{ResponseRecorder: httptest.NewRecorder(), done: make(chan struct{})}, make(chan struct{})}
		go func() {
			s.mux.ServeHTTP(slow, accepting("text/event-stream").WithContext(t.Context()))
			close(slow.done)
		}()
		synctest.Wait()
		second, third := view(s), view(s)
		require.True(t, second.ended(), "it gave way before it began")
		assert.Equal(t, http.StatusServiceUnavailable, second.Code)
		assert.Empty(t, third.events(), "the first is still being written to")
		close(slow.release)
		assert.True(t, slow.ended())
		time.Sleep(time.Second + 10*time.Millisecond)
		assert.Equal(t, []string{"state", "tick"}, third.events())
		third.cancel()
		assert.True(t, third.ended())

		waiting := make(chan struct{})
		slow.release = waiting
		slow.done = make(chan struct{})
		go func() {
			s.mux.ServeHTTP(slow, accepting("text/event-stream").WithContext(t.Context()))
			close(slow.done)
		}()
		synctest.Wait()
		fourth := view(s)
		s.page.Close()
		assert.True(t, fourth.ended(), "Close is not held up by a stream that waits")
		close(waiting)
		assert.True(t, slow.ended())
	})
}

func TestOverHTTPAFloodOfStreamsDoesNotShutTheOperatorOut(t *testing.T) {
	s := start(t, dashboard.Options{Authorize: anybodyLooks})
	address := s.serve()
	open := func(operator bool) *bufio.Scanner {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "text/event-stream")
		if operator {
			r.Header.Set("X-Admin", "1")
		}
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		require.Equal(t, http.StatusOK, response.StatusCode)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 4<<20)
		return lines
	}
	next := func(lines *bufio.Scanner) string {
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				return name
			}
		}
		return "end"
	}
	first := open(false)
	require.Equal(t, "state", next(first))
	for range 15 {
		require.Equal(t, "state", next(open(false)))
	}
	operator := open(true)
	require.Equal(t, "state", next(operator))
	said := next(first)
	for said == "tick" {
		said = next(first)
	}
	require.Equal(t, "closed", said)
	require.Equal(t, "end", next(first))
	for range 32 {
		require.Equal(t, "state", next(open(false)))
	}
	require.Equal(t, "tick", next(operator))
	require.Equal(t, "tick", next(operator))
}

func TestAStreamEndsAfterFiveMinutesForAuthorizeToBeAskedAgain(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		v := view(s)
		time.Sleep(5*time.Minute - time.Second)
		require.False(t, v.ended())
		time.Sleep(2 * time.Second)
		assert.True(t, v.ended())
		v.cancel()
	})
}

// panicking is a list of bans that is not well.
type panicking struct{ bans.List }

func (panicking) All(context.Context) ([]bans.Ban, error) { panic("not well") }

func TestAPanicOfOnesOwnCodeDoesNotLockThePage(t *testing.T) {
	page, err := dashboard.New(dashboard.Options{Authorize: anybody, Bans: panicking{}})
	require.NoError(t, err)
	for range 2 {
		assert.PanicsWithValue(t, "not well", func() { page.ServeHTTP(httptest.NewRecorder(), accepting("application/json")) })
	}
}

func TestAHeadRequestOpensNoStream(t *testing.T) {
	s := start(t, dashboard.Options{})
	r := accepting("text/event-stream")
	r.Method = http.MethodHead
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	assert.Contains(t, w.Header().Get("Content-Type"), "text/html")
}

func TestCloseEndsStreamsAndCanBeCalledAgain(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{})
		v := view(s)
		s.page.Close()
		s.page.Close()
		assert.True(t, v.ended())
		v.cancel()
	})
}

func TestAMiddlewareThatKeepsTheStreamIsNamed(t *testing.T) {
	s := start(t, dashboard.Options{})
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(struct{ http.ResponseWriter }{w}, accepting("text/event-stream"))
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Contains(t, w.Body.String(), "flush")
}

func TestAStreamOutlivesTheServersWriteTimeout(t *testing.T) {
	s := start(t, dashboard.Options{})
	server := httptest.NewUnstartedServer(s.mux)
	server.Config.WriteTimeout = 100 * time.Millisecond
	server.Start()
	t.Cleanup(func() { s.page.Close(); server.Close() })

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/ops/limits", nil)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	response, err := server.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 4<<20)
	for events := 0; events < 3; {
		require.True(t, lines.Scan(), "the stream ended: %v", lines.Err())
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			require.True(t, json.Valid([]byte(data)))
			events++
		}
	}
}

func TestManyMayLookWhileRequestsAreCounted(t *testing.T) {
	s := start(t, dashboard.Options{ShowKeys: true})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 300 {
				switch g {
				case 0:
					s.figures()
				case 1:
					s.do(`{"action":"ban","key":"203.0.113.9"}`)
					s.do(`{"action":"look","rule":"ip","key":"203.0.113.9"}`)
					s.do(`{"action":"unban","key":"203.0.113.9"}`)
				default:
					s.good(i)
					s.noisy()
					s.attack()
				}
			}
		})
	}
	all.Wait()
}
