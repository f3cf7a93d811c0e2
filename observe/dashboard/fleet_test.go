package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/browser"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/redis/redisfleet"
)

// A board is a Fleet in memory.
type board struct {
	mu    sync.Mutex
	told  map[string]string
	at    map[string]time.Time
	down  error
	reads int
}

func newBoard() *board { return &board{told: map[string]string{}, at: map[string]time.Time{}} }

func (b *board) Tell(_ context.Context, process string, text []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down == nil {
		b.told[process], b.at[process] = string(text), time.Now()
	}
	return b.down
}

func (b *board) Each(_ context.Context, f func(string, []byte, time.Duration)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	if b.down == nil {
		for process, text := range b.told {
			f(process, []byte(text), time.Since(b.at[process]))
		}
	}
	return b.down
}

func (b *board) Leave(_ context.Context, process string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.told, process)
	return b.down
}

// looked is how often it was read.
func (b *board) looked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads
}

func (b *board) set(down error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// running is a service in a fleet that ends with the test.
func running(t *testing.T, b dashboard.Fleet) *service {
	s := start(t, dashboard.Options{Fleet: b})
	t.Cleanup(func() { assert.NoError(t, s.page.Close()) })
	return s
}

// watch looks at the page once, and again when it has been told of the fleet.
func (s *service) watch() figures {
	s.figures()
	time.Sleep(time.Second)
	return s.figures()
}

func TestThePageKnowsTheWholeFleet(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		b := newBoard()
		here, there := running(t, b), running(t, b)
		for i := range 60 * 10 {
			here.good(i)
			there.good(i)
			there.noisy()
			time.Sleep(100 * time.Millisecond)
		}
		assert.Zero(t, b.looked(), "no page is in view")
		assert.Nil(t, start(t, dashboard.Options{}).figures().Fleet, "of one process")
		f := here.watch().Fleet
		require.NotNil(t, f)
		assert.True(t, f.Known)
		assert.Equal(t, "all 2 processes answer", f.Text)
		assert.False(t, f.Bad)
		assert.Empty(t, f.Notes)
		assert.InDelta(t, 30, f.Asked, 2)
		require.Len(t, f.List, 2)
		for _, p := range f.List {
			assert.Equal(t, "answers", p.State)
			assert.LessOrEqual(t, p.Ago, 10, "told every five seconds, and read every five")
			assert.InDelta(t, map[bool]float64{true: 10, false: 20}[p.Self], p.Asked, 2)
			assert.Equal(t, !p.Self, p.Refused > 0)
		}
		assert.Equal(t, "tenant", f.Rules[0].Rule, "which refuses most")
		assert.Equal(t, 2, f.Rules[0].Processes)
		assert.InDelta(t, 30, f.Rules[0].Asked, 2)
		assert.Equal(t, "60/1m token-bucket burst 10", f.Rules[0].Limit)

		reads := b.looked()
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, b.looked(), reads+3, "only while it is in view")
		require.NoError(t, there.page.Close())
		f = here.watch().Fleet
		assert.Equal(t, "1 process, which answers", f.Text, "the other has left")
	})
}

func TestAProcessThatIsSilentIsSaidToBe(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		b := newBoard()
		here, there := running(t, b), running(t, b)
		_ = there
		here.watch()
		// One stands still: what it told grows old.
		b.mu.Lock()
		b.told["gone"] = strings.Replace(b.told[func() string {
			for process := range b.told {
				return process
			}
			return ""
		}()], "process", "gone", 1)
		b.at["gone"] = time.Now().Add(-40 * time.Second)
		b.mu.Unlock()
		time.Sleep(10 * time.Second)
		f := here.watch().Fleet
		assert.Equal(t, "2 of 3 processes answer", f.Text)
		assert.True(t, f.Bad)
		assert.Equal(t, "late", f.List[0].State, "it is in front")
		assert.GreaterOrEqual(t, f.List[0].Ago, 40)
		assert.Contains(t, fmt.Sprint(f.Notes), "The sums are of those that answer.")
	})
}

func TestAFleetThatCannotBeReadIsUnknownAndNotEmpty(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		b := newBoard()
		b.down = errors.New("no route to it")
		here := running(t, b)
		f := here.watch().Fleet
		assert.False(t, f.Known)
		assert.Equal(t, "not known", f.Text)
		assert.Contains(t, fmt.Sprint(f.Notes), "no route to it")
		assert.Contains(t, fmt.Sprint(f.Notes), "Others do not hear of this process: no route to it")

		b.set(nil)
		time.Sleep(10 * time.Second)
		here.good(1)
		assert.True(t, here.watch().Fleet.Known)
		b.set(errors.New("gone again"))
		here.figures()
		time.Sleep(10 * time.Second)
		f = here.watch().Fleet
		assert.False(t, f.Known)
		require.Len(t, f.List, 1)
		assert.Equal(t, "unknown", f.List[0].State, "what was heard before is not what is now")
		assert.Zero(t, f.Asked)
		assert.Empty(t, f.Rules)
	})
}

func TestSumsDoNotMixVersionsAndRulesSilently(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		b := newBoard()
		here := running(t, b)
		for i := range 100 {
			here.good(i)
			time.Sleep(100 * time.Millisecond)
		}
		tell := func(process, text string) { require.NoError(t, b.Tell(t.Context(), process, []byte(text))) }
		tell("newer", `{"format": 2, "weir": "v9.0.0", "name": "newer", "seconds": 60, "outcomes": {"allowed": 6000}}`)
		tell("torn", `{"format": 1, "na`)
		tell("long", `{"format": 2, "name": "`+strings.Repeat("x", 60_000)+`"}`)
		tell("other", `{"format": 1, "weir": "v1.1.0", "name": "other", "seconds": 60, "outcomes": {"allowed": 600, "refused": 60}, "inForce": "x",
			"rules": [{"rule": "ip", "limit": "5/1m", "asked": 660, "refused": 60}], "more": 3, "store": "gives no answer", "bad": true}`)
		f := here.watch().Fleet
		assert.Equal(t, "2 of 5 processes answer", f.Text)
		assert.InDelta(t, 21, f.Asked, 1, "without those that cannot be read")
		assert.InDelta(t, 1, f.Refused, 0.1)
		notes := fmt.Sprint(f.Notes)
		assert.Contains(t, notes, "The processes have several versions of Weir:")
		assert.Contains(t, notes, "v1.1.0 in 1")
		assert.Contains(t, notes, "The store of 1 of them is in trouble.")
		assert.True(t, f.Bad)
		assert.Contains(t, notes, "1 process has other rules than this process")
		assert.Contains(t, notes, "only the busiest are in the sums by rule")
		assert.Equal(t, "unreadable", f.List[0].State)
		for _, r := range f.Rules {
			if r.Rule == "ip" {
				assert.Empty(t, r.Limit, "they have several")
				assert.Equal(t, 2, r.Processes)
			}
		}
		for _, p := range f.List {
			assert.LessOrEqual(t, len(p.Name), 300, "it is sent every second")
			if p.Name == "other" {
				assert.True(t, p.Bad)
				assert.Equal(t, "has other rules", p.About)
			}
		}
	})
}

func TestAFleetOfRedisMeetsAndLeaves(t *testing.T) {
	server := redistest.Start(t)
	connect := func() *redisfleet.Board {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
		t.Cleanup(func() { rdb.Close() })
		return redisfleet.Must(redisfleet.New(rdb, redisfleet.Options{}))
	}
	here, there := running(t, connect()), running(t, connect())
	require.Eventually(t, func() bool {
		f := here.figures().Fleet
		return f.Text == "all 2 processes answer"
	}, patience, 50*time.Millisecond)
	require.NoError(t, there.page.Close())
	require.NoError(t, there.page.Close(), "twice")
	assert.Equal(t, "1", server.MustDo("HLEN", "weir:1:{fleet}:told"))
	_, err := dashboard.New(dashboard.Options{Fleet: (*redisfleet.Board)(nil)})
	assert.ErrorContains(t, err, "dashboard: Fleet is a nil pointer")
}

func TestCloseDoesNotWaitForAFleetThatHangs(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		b := newBoard()
		s := start(t, dashboard.Options{Fleet: hanging{b}})
		s.figures()
		began := time.Now()
		require.NoError(t, s.page.Close())
		assert.LessOrEqual(t, time.Since(began), 3*time.Second)
	})
}

// hanging is a board that never answers.
type hanging struct{ *board }

func (hanging) Tell(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

func (h hanging) Leave(ctx context.Context, _ string) error { return h.Tell(ctx, "", nil) }

func TestThePageShowsTheFleet(t *testing.T) {
	t.Parallel()
	bd := newBoard()
	s := start(t, dashboard.Options{ShowKeys: true, Fleet: bd})
	t.Cleanup(func() { _ = s.page.Close() })
	tell := func(process, format string, args ...any) {
		require.NoError(t, bd.Tell(t.Context(), process, fmt.Appendf(nil, format, args...)))
	}
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `document.querySelector("#fleet-text").innerText === "1 process, which answers"`)
	assert.Contains(t, b.Text("#scope"), "one process: ")
	s.mixed()
	const like = `{"format": 1, "weir": "v1.1.0", "name": "%s", "seconds": 60, "outcomes": {"allowed": %d, "refused": %d},
		"rules": [{"rule": "tenant", "limit": "60/1m token-bucket burst 10", "asked": %d, "refused": %d}], "store": "%s", "bad": %t}`
	tell("b", like, "web-2, process 7", 2400, 130, 2530, 130, "answers", false)
	tell("c", like, `web-3, <img src=x onerror=window.hit=1>`, 2400, 130, 2530, 130, "has given no answer for 12s", true)
	tell("d", `{"format": 7, "name": "web-4, process 7"}`)
	tell("e", like, "web-5, process 7", 1, 1, 1, 1, "answers", false)
	bd.mu.Lock()
	bd.at["e"] = time.Now().Add(-3 * time.Minute)
	bd.mu.Unlock()
	b.Await(patience, `document.querySelector("#fleet-text").innerText === "3 of 5 processes answer"`)
	b.Await(patience, `document.querySelector("#scope").innerText.startsWith("one process of 5: ")`)
	text := b.Text("#processes")
	assert.Contains(t, text, "told nothing for 3 min")
	assert.Contains(t, text, "its store has given no answer for 12s")
	assert.Contains(t, text, "tells in a form that this version does not read")
	assert.Contains(t, text, "this one")
	assert.Contains(t, b.Text("#fleet-sum"), "requests a second")
	assert.True(t, browser.Eval[bool](b, `window.hit === undefined && document.images.length === 0`))
	b.Click("#fleet-more summary")
	b.Await(patience, `document.querySelector("#fleet-rules").innerText.includes("tenant")`)
	look(b, "fleet")
	bd.set(errors.New("Redis is away"))
	b.Await(patience, `document.querySelector("#fleet").dataset.is === "unknown"`)
	assert.Contains(t, b.Text("#fleet"), "Redis is away")
	assert.NotContains(t, b.Text("#fleet-sum"), "requests a second", "what is not known is not said")
	b.Picture("fleet-unknown")
}
