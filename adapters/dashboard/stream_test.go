package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/dashboard"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/bans"
	"github.com/weirgo/weir/middleware"
)

// A viewer is who has the page open.
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
func view(s *service) *viewer {
	ctx, cancel := context.WithCancel(s.t.Context())
	v := &viewer{ResponseRecorder: httptest.NewRecorder(), cancel: cancel, done: make(chan struct{})}
	go func() {
		s.mux.ServeHTTP(v, accepting("text/event-stream").WithContext(ctx))
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

func TestSoManyPagesAreOpenAtOnceAndNoMore(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{MaxStreams: 2})
		first, second := view(s), view(s)
		third := view(s)
		require.True(t, third.ended())
		assert.Equal(t, http.StatusServiceUnavailable, third.Code)
		assert.Equal(t, "5", third.Header().Get("Retry-After"))

		first.cancel()
		require.True(t, first.ended())
		fourth := view(s)
		assert.False(t, fourth.ended())
		second.cancel()
		fourth.cancel()
		assert.True(t, second.ended())
		assert.True(t, fourth.ended())
	})
}

func TestAStreamEndsAfterFiveMinutesForAuthoriseToBeAskedAgain(t *testing.T) {
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
	page, err := dashboard.New(dashboard.Options{Authorise: anybody, Bans: panicking{}})
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
					s.do(`{"action":"peek","rule":"ip","key":"203.0.113.9"}`)
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
