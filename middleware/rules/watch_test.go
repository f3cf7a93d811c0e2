package rules_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// A listener remembers what OnReload heard.
type listener struct {
	mu    sync.Mutex
	heard []rules.Reload
}

func (l *listener) hear(r rules.Reload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, r)
}

func (l *listener) all() []rules.Reload {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]rules.Reload(nil), l.heard...)
}

// limitOf is a file with one limit.
func limitOf(limit string) string {
	return "version: 1\ndefault: {limit: " + limit + "}\n"
}

// A watched is a file that is watched, and a site that it limits.
type watched struct {
	*site
	*rules.Watcher
	listener
	dir, path string
}

// watch watches limits.yaml among these files.
func watch(t *testing.T, files map[string]string, o rules.Options) *watched {
	t.Helper()
	dir := write(t, files)
	return watchIn(t, dir, o)
}

func watchIn(t *testing.T, dir string, o rules.Options) *watched {
	t.Helper()
	w := &watched{dir: dir, path: filepath.Join(dir, "limits.yaml")}
	if o.OnReload == nil {
		o.OnReload = w.hear
	}
	var err error
	w.Watcher, err = rules.Watch(t.Context(), w.path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	w.site = &site{t, w.RateLimit}
	return w
}

func (w *watched) write(text string) { writeFile(w.t, w.path, text) }

// limit is what an answer says of the limit in force.
func (w *watched) limit() string {
	w.t.Helper()
	return w.ask(call{from: fmt.Sprintf("192.0.2.%d:1", asked.Add(1)%200)}).Header.Get("X-Ratelimit-Limit")
}

var asked atomic.Uint32

// becomes requires that the limit is in force as soon as is promised.
func (w *watched) becomes(limit string) {
	w.t.Helper()
	settle()
	require.Equal(w.t, limit, w.limit())
}

// settle waits, in a bubble, until what is written is in force by default.
func settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// bubble runs a test on a clock of its own.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

func TestABadFileChangesNothingAndIsToldOfOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, map[string]string{"limits.yaml": limitOf("5/h")}, rules.Options{})
		require.Equal(t, []rules.Reload{{Source: w.path}}, w.all(), "that the first rules are in force")
		loaded := w.Status().LoadedAt

		w.write(limitOf("5 per hour"))
		settle()
		require.Len(t, w.all(), 2, "the refusal")
		want := w.path + `:2:18: default.limit: parse "5 per hour": it does not begin with events/period, such as 100/1m, or with events and a calendar, such as 100 daily`
		require.EqualError(t, w.all()[1].Err, want)
		require.EqualError(t, w.Status().Err, want)
		require.Equal(t, "5", w.limit())
		require.Equal(t, loaded, w.Status().LoadedAt)

		w.write(limitOf("5 per hour")) // as it was, and no news
		settle()
		require.Len(t, w.all(), 2)
		require.EqualValues(t, 1, w.Status().Refused)

		w.write(limitOf("5 per day"))
		settle()
		require.Len(t, w.all(), 3, "the next refusal")
		w.write(limitOf("5/h")) // the first one, which never went
		settle()
		require.Len(t, w.all(), 4, "the good news")
		require.NoError(t, w.all()[3].Err)
		require.NoError(t, w.Status().Err)
		require.EqualValues(t, 1, w.Status().Loads)
		require.Equal(t, "5", w.limit())
	})
}

// A smallStore counts for limits of up to ten events.
type smallStore struct{ limiter.Store }

func (s smallStore) Check(q *limiter.Quota) error {
	if q.Limit().Events > 10 {
		return errors.New("more than ten")
	}
	return nil
}

func TestRulesThatTheStoreRefusesAreNotReportedAsInForce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, err := limiter.NewMemory(limiter.MemoryOptions{})
		require.NoError(t, err)
		o := rules.Options{Config: middleware.Config{Store: smallStore{memory}}}
		w := watch(t, map[string]string{"limits.yaml": limitOf("5/h")}, o)
		version := w.Status().Version
		w.write(limitOf("50/h"))
		settle()
		status := w.Status()
		require.ErrorContains(t, status.Err, "more than ten")
		require.Equal(t, []uint64{1, 1}, []uint64{status.Loads, status.Refused})
		require.Equal(t, []string{version, version}, []string{status.Version, w.Rules().Version()})
		require.ErrorContains(t, w.all()[1].Err, "more than ten")
		require.Equal(t, "5", w.limit())

		path := filepath.Join(write(t, map[string]string{"limits.yaml": limitOf("50/h")}), "limits.yaml")
		_, err = rules.Watch(t.Context(), path, o)
		require.ErrorContains(t, err, "more than ten")
		o.Fallback = []byte(limitOf("7/h"))
		w = watchIn(t, filepath.Dir(path), o)
		require.True(t, w.Status().Fallback)
		require.ErrorContains(t, w.Status().Err, "more than ten")
		require.Equal(t, "7", w.limit())
	})
}

func TestAFileThatIsGoneChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, map[string]string{"limits.yaml": limitOf("5/h")}, rules.Options{})
		require.NoError(t, os.Remove(w.path))
		settle()
		require.Len(t, w.all(), 2, "the news")
		require.ErrorIs(t, w.all()[1].Err, fs.ErrNotExist)
		require.Equal(t, "5", w.limit())
		w.write(limitOf("6/h"))
		w.becomes("6")
	})
}

func TestAFileOfBansIsWatchedTooAndCanComeLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, map[string]string{"limits.yaml": limitOf("100_000/h") + "ban: {file: banned.txt}\n", "banned.txt": ""}, rules.Options{})
		banned := filepath.Join(w.dir, "banned.txt")
		require.Equal(t, http.StatusOK, w.status(call{user: "eve"}))
		writeFile(t, banned, "user:eve\n")
		settle()
		require.Equal(t, http.StatusForbidden, w.status(call{user: "eve"}))

		writeFile(t, banned, "nobody\n")
		settle()
		require.Error(t, w.Status().Err)
		require.Contains(t, w.Status().Err.Error(), banned+`:1:1: is neither`)
		require.Equal(t, http.StatusForbidden, w.status(call{user: "eve"}))
		require.NoError(t, os.Remove(banned))
		settle()
		require.ErrorContains(t, w.Status().Err, "can't be read")
		require.Equal(t, http.StatusForbidden, w.status(call{user: "eve"}))

		writeFile(t, banned, "user:mallory\n")
		settle()
		require.Equal(t, http.StatusForbidden, w.status(call{user: "mallory"}))
		require.Equal(t, http.StatusOK, w.status(call{user: "eve"}))

		// A file that names another is refused without it, and taken when it comes.
		other := filepath.Join(w.dir, "other.txt")
		w.write(limitOf("100_000/h") + "ban: {file: other.txt}\n")
		settle()
		require.Error(t, w.Status().Err)
		writeFile(t, other, "user:eve\n")
		settle()
		require.Equal(t, http.StatusForbidden, w.status(call{user: "eve"}))
		require.Equal(t, http.StatusOK, w.status(call{user: "mallory"}))
	})
}

func TestWhatIsAsItWasIsNotReloaded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, map[string]string{"limits.yaml": limitOf("5/h")}, rules.Options{})
		for range 3 {
			w.write(limitOf("5/h"))
			settle()
		}
		w.write("version: 1\n") // as if it was written in pieces
		time.Sleep(time.Second)
		w.write(limitOf("5/h"))
		settle()
		require.Len(t, w.all(), 1)
		require.Zero(t, w.Status().Refused)
		require.EqualValues(t, 1, w.Status().Loads)
		w.write(limitOf("6/h"))
		w.becomes("6")
		require.EqualValues(t, 2, w.Status().Loads)
		require.EqualValues(t, 6, w.Rules().Config().Default[0].Limit.(limiter.Limit).Events)
	})
}

func TestCountersStayWhenRulesChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := func(a, b, name string) string {
			return "version: 1\nendpoints:\n  \"GET /a\": {limit: " + a + "/h sliding_log}\n  \"GET /b\": {limit: " + b + "/h sliding_log" + name + "}\n"
		}
		w := watch(t, map[string]string{"limits.yaml": text("5", "5", "")}, rules.Options{})
		a, b := call{route: "/a"}, call{route: "/b"}
		left := func(c call) string { return w.ask(c).Header.Get("X-Ratelimit-Remaining") }
		require.Equal(t, []string{"4", "3", "4", "3"}, []string{left(a), left(a), left(b), left(b)})
		reload := func(text string) {
			loads := w.Status().Loads
			w.write(text)
			settle()
			require.Equal(t, loads+1, w.Status().Loads)
		}
		reload(text("5", "9", "")) // of b, 2 are used
		require.Equal(t, []string{"2", "6"}, []string{left(a), left(b)})
		reload(text("5", "3", ""))
		require.Equal(t, []string{"1", "0"}, []string{left(a), left(b)})
		require.Equal(t, http.StatusTooManyRequests, w.status(b))
		reload(text("5", "3", ", name: bee")) // begins anew
		require.Equal(t, []string{"0", "2"}, []string{left(a), left(b)})
		reload(text("5", "3", ", name: bee, key: user|ip")) // the same key for a client that is no user
		require.Equal(t, "1", left(b))
		reload("version: 1\ndefault: 100/h\n")
		reload(text("5", "3", ", name: bee")) // and back
		require.Equal(t, "0", left(b))
		require.Equal(t, http.StatusTooManyRequests, w.status(a))
	})
}

func TestBansStayWhenRulesChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, map[string]string{"limits.yaml": "version: 1\ndefault: {limit: 1/h sliding_log, escalate: {after: 1, within: 1h, ban: 1h}}\n"}, rules.Options{})
		w.passes(1, call{user: "x"})
		require.Equal(t, http.StatusForbidden, w.status(call{}))
		w.write("version: 1\ndefault: 7/h\n")
		settle()
		require.EqualValues(t, 2, w.Status().Loads)
		require.Equal(t, http.StatusForbidden, w.status(call{}))
		lifted, err := w.Bans().Unban(t.Context(), "192.0.2.1")
		require.NoError(t, err)
		require.True(t, lifted)
		require.Equal(t, http.StatusOK, w.status(call{}))
	})
}

func TestAHookThatPanicsIsLoggedAndHeardOfNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log lockedBuffer
		w := watch(t, map[string]string{"limits.yaml": limitOf("5/h")}, rules.Options{
			OnReload: func(rules.Reload) { panic("oh dear") },
			Config:   middleware.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		})
		require.Contains(t, log.String(), `"weir: rules: OnReload panicked" code=weir-hook-panic panic="oh dear"`)
		w.write(limitOf("6/h"))
		w.becomes("6")
		w.write(limitOf("7/h"))
		w.becomes("7")
	})
}

func TestWithoutAHookReloadsAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log lockedBuffer
		dir := write(t, map[string]string{
			"limits.yaml": "version: 1\ndefault: {limit: 3/s, key: [ip, host], escalate: {after: 1, within: 1s, ban: 1s}}\n",
		})
		path := filepath.Join(dir, "limits.yaml")
		w, err := rules.Watch(t.Context(), path, rules.Options{Config: middleware.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
		require.NoError(t, err)
		defer w.Close()
		require.Contains(t, log.String(), `level=INFO msg="weir: rules are in force" code=weir-rules-loaded source=`+path)
		require.Contains(t, log.String(), `level=WARN msg="weir: `+path+`:2:28: default.key: a client that sends another host each time`)
		writeFile(t, path, strings.Replace(readText(t, path), "3/s", "4/s", 1))
		settle()
		require.Equal(t, 2, strings.Count(log.String(), "weir-rules-loaded"))
		require.Equal(t, 1, strings.Count(log.String(), "sends another host"), "it is told once")
		writeFile(t, path, "version: 2\n")
		settle()
		require.Contains(t, log.String(), `level=WARN msg="weir: rules were not reloaded, those in force are kept" code=weir-rules-refused source=`+path)
		require.Contains(t, log.String(), `version: is 2: it must be 1`)
	})
}

func readText(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestWatchEndsWithItsContextOrClose(t *testing.T) {
	before := leak.Now()
	dir := write(t, map[string]string{"limits.yaml": limitOf("5/h")})
	path := filepath.Join(dir, "limits.yaml")
	ctx, cancel := context.WithCancel(t.Context())
	w, err := rules.Watch(ctx, path, rules.Options{OnReload: func(rules.Reload) {}})
	require.NoError(t, err)
	cancel()
	before.Verify(t)
	require.NoError(t, w.Close())

	w, err = rules.Watch(t.Context(), path, rules.Options{OnReload: func(rules.Reload) {}})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	before.Verify(t)
	require.Equal(t, "5", (&site{t, w.RateLimit}).ask(call{}).Header.Get("X-Ratelimit-Limit"), "the rules stay")

	for name, of := range map[string]struct {
		text string
		ctx  context.Context
	}{"a bad file": {"version: 2\n", t.Context()}, "a context that has ended": {limitOf("5/h"), ctx}} {
		require.NoError(t, os.WriteFile(path, []byte(of.text), 0o600))
		_, err = rules.Watch(of.ctx, path, rules.Options{})
		require.Error(t, err, name)
		before.Verify(t)
	}
	_, err = rules.Watch(t.Context(), filepath.Join(dir, "none.yaml"), rules.Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = rules.Watch(t.Context(), "", rules.Options{})
	require.Error(t, err)
	before.Verify(t)
}
