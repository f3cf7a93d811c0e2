package rules_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

// writeFile writes a file, whose time is the bubble's.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, time.Now(), time.Now()))
}

// link makes a symbolic link, in place of another one if there is one.
func link(t testing.TB, target, at string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, at+".tmp"))
	require.NoError(t, os.Rename(at+".tmp", at))
}

// A way is one of those in which a file comes to have another text.
type way struct {
	lay   func(t testing.TB, dir, text string) (path string) // writes the first text
	write func(t testing.TB, path, text string)              // and then the next ones
}

func layFile(t testing.TB, dir, text string) string {
	path := filepath.Join(dir, "limits.yaml")
	writeFile(t, path, text)
	return path
}

var ways = map[string]way{
	"written in place": {layFile, writeFile},
	"truncated and written in pieces": {layFile, func(t testing.TB, path, text string) {
		file, err := os.Create(path)
		require.NoError(t, err)
		defer file.Close()
		for i := range text {
			_, err = file.WriteString(text[i : i+1])
			require.NoError(t, err)
			time.Sleep(time.Second / 20)
		}
	}},
	"replaced by another file": {layFile, func(t testing.TB, path, text string) {
		writeFile(t, path+"~", text)
		require.NoError(t, os.Rename(path+"~", path))
	}},
	"deleted and created again": {layFile, func(t testing.TB, path, text string) {
		require.NoError(t, os.Remove(path))
		time.Sleep(time.Second)
		writeFile(t, path, text)
	}},
	"a ConfigMap": {
		func(t testing.TB, dir, text string) string {
			writeFile(t, filepath.Join(dir, "..2026_0", "limits.yaml"), text)
			link(t, "..2026_0", filepath.Join(dir, "..data"))
			link(t, "..data/limits.yaml", filepath.Join(dir, "limits.yaml"))
			return filepath.Join(dir, "limits.yaml")
		},
		func(t testing.TB, path, text string) {
			data := filepath.Join(filepath.Dir(path), "..data")
			before, err := filepath.EvalSymlinks(data)
			require.NoError(t, err)
			next := fmt.Sprintf("..2026_%d", rand.Uint64())
			writeFile(t, filepath.Join(filepath.Dir(path), next, "limits.yaml"), text)
			link(t, next, data)
			require.NoError(t, os.RemoveAll(before))
		},
	},
}

// watchFile watches a file, and tells what limit it has in force.
func watchFile(t *testing.T, path string, o rules.Options) (w *rules.Watcher, events func() int64) {
	t.Helper()
	o.OnReload = func(rules.Reload) {}
	w, err := rules.Watch(t.Context(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w, func() int64 { return w.Rules().Config().Default[0].Limit.(limiter.Limit).Events }
}

func TestAFileTakesEffectHoweverItIsWritten(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				path := way.lay(t, t.TempDir(), limitOf("5/h"))
				w, events := watchFile(t, path, rules.Options{})
				for i := range int64(3) {
					time.Sleep(rand.N(10 * time.Second)) // looks come at any time
					way.write(t, path, limitOf(fmt.Sprint(6+i, "/h")))
					settle()
					require.EqualValues(t, 6+i, events())
					require.NoError(t, w.Status().Err)
				}
				require.EqualValues(t, 4, w.Status().Loads)
				require.Zero(t, w.Status().Refused)
			})
		})
	}
}

func TestWhatIsBeingWrittenIsNotInForceAndIsNoMistake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := layFile(t, t.TempDir(), limitOf("5/h"))
		w, events := watchFile(t, path, rules.Options{})
		for i := range 30 { // each is good by itself, but the last that stands for two looks
			writeFile(t, path, limitOf(fmt.Sprint(100+i, "/h")))
			time.Sleep(rand.N(time.Second))
			require.EqualValues(t, 5, events())
			writeFile(t, path, limitOf(fmt.Sprint(100+i))) // and each of these is a mistake
			time.Sleep(rand.N(time.Second))
		}
		require.Zero(t, w.Status().Refused)
		require.EqualValues(t, 1, w.Status().Loads)
		writeFile(t, path, limitOf("200/h"))
		settle()
		require.EqualValues(t, 200, events())
	})
}

func TestPollIsTheTimeBetweenLooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := layFile(t, t.TempDir(), limitOf("5/h"))
		_, events := watchFile(t, path, rules.Options{Poll: time.Minute})
		writeFile(t, path, limitOf("6/h"))
		time.Sleep(2*time.Minute - 1)
		synctest.Wait()
		require.EqualValues(t, 5, events())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.EqualValues(t, 6, events())
	})
}

func TestFilesThatDoNotChangeAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no other test allocates meanwhile
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "bans.txt"), strings.Repeat("# nobody yet\n", 1<<17))
		path := layFile(t, dir, "version: 1\nban: {file: bans.txt}\n"+strings.TrimPrefix(limitOf("5/h"), "version: 1\n"))
		w, _ := watchFile(t, path, rules.Options{})
		settle()
		time.Sleep(10 * time.Second)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		time.Sleep(100 * time.Second)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes")
		require.EqualValues(t, 1, w.Status().Loads)
	})
}

// File systems round times, so the second of two changes may have the time of the first.
func TestAChangeWithoutAnotherTimeTakesEffect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := layFile(t, t.TempDir(), limitOf("5/h"))
		_, events := watchFile(t, path, rules.Options{Poll: 100 * time.Millisecond})
		settle()
		for i, late := range []time.Duration{0, 50 * time.Millisecond, time.Second, 1900 * time.Millisecond} {
			written := time.Now()
			writeFile(t, path, limitOf("7/h"))
			time.Sleep(late)
			require.NoError(t, os.WriteFile(path, []byte(limitOf(fmt.Sprint(i+1, "/h"))), 0o600))
			require.NoError(t, os.Chtimes(path, written, written))
			settle()
			require.EqualValues(t, i+1, events())
		}
	})
}

// A change of the mode has no time.
func TestAFileThatCanBeReadAgainTakesEffect(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	bubble(t, func(t *testing.T) {
		path := layFile(t, t.TempDir(), limitOf("5/h"))
		w, events := watchFile(t, path, rules.Options{})
		require.NoError(t, os.Chmod(path, 0))
		writeFile(t, path+"~", limitOf("6/h"))
		require.NoError(t, os.Chmod(path+"~", 0))
		require.NoError(t, os.Rename(path+"~", path))
		settle()
		require.Error(t, w.Status().Err)
		require.NoError(t, os.Chmod(path, 0o600))
		settle()
		require.EqualValues(t, 6, events())
	})
}

func TestARelativePathStaysWithItsDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	synctest.Test(t, func(t *testing.T) {
		layFile(t, dir, limitOf("5/h")+"ban: {file: banned.txt}\n")
		writeFile(t, filepath.Join(dir, "banned.txt"), "user:eve\n")
		w, events := watchFile(t, "limits.yaml", rules.Options{})
		t.Chdir(os.TempDir())
		layFile(t, dir, limitOf("6/h")+"ban: {file: banned.txt}\n")
		settle()
		require.NoError(t, w.Status().Err)
		require.EqualValues(t, 6, events())
	})
}
