package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// A way is one of those in which a file comes to have another text.
type way struct {
	lay   func(t testing.TB, dir, text string) (path string) // writes the first text
	write func(t testing.TB, path, text string)              // and then the next ones
}

func write(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// link makes a symbolic link, in place of another one if there is one.
func link(t testing.TB, target, at string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, at+".tmp"))
	require.NoError(t, os.Rename(at+".tmp", at))
}

func layFile(t testing.TB, dir, text string) string {
	path := filepath.Join(dir, "rules.yaml")
	write(t, path, text)
	return path
}

var ways = map[string]way{
	"written in place": {layFile, func(t testing.TB, path, text string) {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		defer file.Close()
		_, err = file.WriteString(text) // never shorter than the text before
		require.NoError(t, err)
	}},
	"truncated and written in pieces": {layFile, func(t testing.TB, path, text string) {
		file, err := os.Create(path)
		require.NoError(t, err)
		defer file.Close()
		for i := range text {
			_, err = file.WriteString(text[i : i+1])
			require.NoError(t, err)
			time.Sleep(quiet / 20)
		}
	}},
	"replaced by another file": {layFile, func(t testing.TB, path, text string) {
		write(t, path+"~", text)
		require.NoError(t, os.Rename(path+"~", path))
	}},
	"renamed, then written anew": {layFile, func(t testing.TB, path, text string) {
		require.NoError(t, os.Rename(path, path+".bak"))
		write(t, path, text)
	}},
	"deleted and created again": {layFile, func(t testing.TB, path, text string) {
		require.NoError(t, os.Remove(path))
		time.Sleep(quiet / 2)
		write(t, path, text)
	}},
	"a ConfigMap": {
		func(t testing.TB, dir, text string) string {
			write(t, filepath.Join(dir, "..2026_0", "rules.yaml"), text)
			link(t, "..2026_0", filepath.Join(dir, "..data"))
			link(t, "..data/rules.yaml", filepath.Join(dir, "rules.yaml"))
			return filepath.Join(dir, "rules.yaml")
		},
		func(t testing.TB, path, text string) {
			data := filepath.Join(filepath.Dir(path), "..data")
			before, err := filepath.EvalSymlinks(data)
			require.NoError(t, err)
			next := fmt.Sprintf("..2026_%d", rand.Uint64())
			write(t, filepath.Join(filepath.Dir(path), next, "rules.yaml"), text)
			link(t, next, data)
			require.NoError(t, os.RemoveAll(before))
		},
	},
	"a link to a file elsewhere that is written": {
		func(t testing.TB, dir, text string) string {
			write(t, filepath.Join(dir, "else", "where"), text)
			link(t, filepath.Join(dir, "else", "where"), filepath.Join(dir, "rules.yaml"))
			return filepath.Join(dir, "rules.yaml")
		},
		func(t testing.TB, path, text string) {
			write(t, filepath.Join(filepath.Dir(path), "else", "where"), text)
		},
	},
	"in a directory that is a link": {
		func(t testing.TB, dir, text string) string {
			write(t, filepath.Join(dir, "releases", "0", "rules.yaml"), text)
			link(t, "releases/0", filepath.Join(dir, "current"))
			return filepath.Join(dir, "current", "rules.yaml")
		},
		func(t testing.TB, path, text string) {
			top := filepath.Dir(filepath.Dir(path))
			next := filepath.Join("releases", fmt.Sprint(rand.Uint64()))
			write(t, filepath.Join(top, next, "rules.yaml"), text)
			link(t, next, filepath.Join(top, "current"))
		},
	},
	"in a directory that is replaced": {
		func(t testing.TB, dir, text string) string {
			return layFile(t, filepath.Join(dir, "d"), text)
		},
		func(t testing.TB, path, text string) {
			dir := filepath.Dir(path)
			layFile(t, dir+".new", text)
			require.NoError(t, os.Rename(dir, fmt.Sprint(dir, rand.Uint64())))
			require.NoError(t, os.Rename(dir+".new", dir))
		},
	},
}

var errNone = errors.New("there are no watchers today")

func none() (*fsnotify.Watcher, error) { return nil, errNone }

func TestAFileIsHeardOfHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := way.lay(t, physical(t), "0 first")
			f, err := NewFile(path, never)
			require.NoError(t, err)
			closeAfter(t, f)
			require.NoError(t, f.Warning())
			requireText(t, f, "0 first")
			for i := range 3 {
				text := fmt.Sprintf("%d%s", i+1, strings.Repeat(" more", i+2))
				way.write(t, path, text)
				awaitText(t, f, text)
			}
		})
	}
}

func TestAFileThatCannotBeWatchedIsLookedAt(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := way.lay(t, physical(t), "0 first")
			f, err := newFile(path, 2*quiet, none)
			require.NoError(t, err)
			closeAfter(t, f)
			require.ErrorIs(t, f.Warning(), errNone)
			require.EqualError(t, f.Warning(), "source: changes are noticed only within 200ms: there are no watchers today")
			for i := range 2 {
				text := fmt.Sprintf("%d%s", i+1, strings.Repeat(" more", i+2))
				way.write(t, path, text)
				awaitText(t, f, text)
			}
		})
	}
}

func TestAFileWrittenAgainAndAgainIsReadAsItIsAtLast(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := way.lay(t, physical(t), "0")
			f, err := NewFile(path, never)
			require.NoError(t, err)
			closeAfter(t, f)
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range 30 {
					way.write(t, path, "."+strings.Repeat("x", i))
					time.Sleep(rand.N(quiet / 2))
				}
			})
			awaitText(t, f, "."+strings.Repeat("x", 29))
			wg.Wait()
		})
	}
}

func TestAChangedModeIsAChange(t *testing.T) {
	t.Parallel()
	path := layFile(t, physical(t), "text")
	f, err := NewFile(path, never)
	require.NoError(t, err)
	closeAfter(t, f)
	require.NoError(t, os.Chmod(path, 0o400))
	awaitNudge(t, f)
}

func TestOtherFilesInTheDirectoryDoNotCount(t *testing.T) {
	t.Parallel()
	dir := physical(t)
	f, err := NewFile(layFile(t, dir, "text"), never)
	require.NoError(t, err)
	closeAfter(t, f)
	for i := range 100 {
		other := filepath.Join(dir, fmt.Sprint("rules.yaml.", i))
		write(t, other, "x")
		require.NoError(t, os.Chmod(other, 0o400))
		require.NoError(t, os.Rename(other, other+"~"))
		require.NoError(t, os.Mkdir(other, 0o755))
		require.NoError(t, os.Remove(other+"~"))
		requireText(t, f, "text") // nor does reading
	}
	requireNoNudge(t, f)
}

func TestAFileMayComeLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(physical(t), "rules.yaml")
	f, err := NewFile(path, never)
	require.NoError(t, err)
	closeAfter(t, f)
	require.NoError(t, f.Warning(), "its directory is watched")
	_, err = f.Read(t.Context())
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, "source: nothing is there: stat "+path+": no such file or directory")
	write(t, path, "text")
	awaitText(t, f, "text")
}

func TestADirectoryThatIsRemovedIsWatchedAgainWhenItIsBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(physical(t), "d")
	path := layFile(t, dir, "one")
	f, err := NewFile(path, 50*time.Millisecond)
	require.NoError(t, err)
	closeAfter(t, f)
	require.NoError(t, os.RemoveAll(dir))
	eventually(t, "a warning", func() bool { return f.Warning() != nil })
	require.ErrorIs(t, f.Warning(), fs.ErrNotExist)
	write(t, path, "two")
	awaitText(t, f, "two")
	eventually(t, "the warning to end", func() bool { return f.Warning() == nil })
}

func TestWatchingIsTriedAgainUntilItCanBe(t *testing.T) {
	t.Parallel()
	var attempts int // of the goroutine, after the first
	f, err := newFile(layFile(t, physical(t), "one"), 5*time.Millisecond, func() (*fsnotify.Watcher, error) {
		if attempts++; attempts < 4 {
			return nil, errNone
		}
		return fsnotify.NewWatcher()
	})
	require.NoError(t, err)
	closeAfter(t, f)
	require.Error(t, f.Warning())
	eventually(t, "the warning to end", func() bool { return f.Warning() == nil })
}

func TestAWatcherThatFailsIsReplaced(t *testing.T) {
	t.Parallel()
	var last *fsnotify.Watcher
	path := layFile(t, physical(t), "one")
	f, err := newFile(path, never, func() (w *fsnotify.Watcher, err error) {
		w, err = fsnotify.NewWatcher()
		last = w
		return w, err
	})
	require.NoError(t, err)
	closeAfter(t, f)
	last.Errors <- fsnotify.ErrEventOverflow
	awaitNudge(t, f)
	write(t, path, "two")
	awaitText(t, f, "two")
}

func TestOtherFilesCountOnceTheyAreNamed(t *testing.T) {
	t.Parallel()
	dir := physical(t)
	path, banned := layFile(t, dir, "rules"), filepath.Join(dir, "lists", "banned.txt")
	write(t, banned, "one")
	f, err := NewFile(path, never)
	require.NoError(t, err)
	closeAfter(t, f)

	f.Also(banned)
	awaitNudge(t, f)       // it may have changed since it was read
	f.Also(banned, banned) // the same set
	requireNoNudge(t, f)
	write(t, banned, "two")
	awaitNudge(t, f)
	calm(t, f)

	f.Also()
	awaitNudge(t, f)
	write(t, banned, "three")
	requireNoNudge(t, f)
	write(t, path, "rules again")
	awaitText(t, f, "rules again")
}

func TestARelativePathStaysWithItsDirectory(t *testing.T) {
	dir := physical(t)
	layFile(t, dir, "text")
	t.Chdir(dir)
	f, err := NewFile("rules.yaml", never)
	require.NoError(t, err)
	closeAfter(t, f)
	t.Chdir(physical(t))
	requireText(t, f, "text")
}

func TestAFileHasAtMostOneMebibyte(t *testing.T) {
	t.Parallel()
	path := layFile(t, t.TempDir(), strings.Repeat("x", maxText))
	f, err := NewFile(path, never)
	require.NoError(t, err)
	closeAfter(t, f)
	requireText(t, f, strings.Repeat("x", maxText))
	write(t, path, strings.Repeat("x", maxText+1))
	_, err = f.Read(t.Context())
	require.EqualError(t, err, "source: "+path+" is longer than 1 MiB (1048576 bytes)")
}

func TestADirectoryIsNoFile(t *testing.T) {
	t.Parallel()
	f, err := NewFile(t.TempDir(), never)
	require.NoError(t, err)
	closeAfter(t, f)
	_, err = f.Read(t.Context())
	require.ErrorContains(t, err, "is not a regular file (drwx")
}

func TestAFileIsNotReadForAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	f, err := NewFile(layFile(t, t.TempDir(), "text"), never)
	require.NoError(t, err)
	closeAfter(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Read(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAFileNeedsAPathAndATime(t *testing.T) {
	t.Parallel()
	_, err := NewFile("", 0)
	require.EqualError(t, err, "source: the path of the file is empty")
	_, err = NewFile("rules.yaml", -time.Second)
	require.EqualError(t, err, "source: the time between two looks at rules.yaml is -1s: it must be positive, or 0 for 10s")
}

func TestAFileMayBeClosedAgainAndByMany(t *testing.T) {
	t.Parallel()
	path := layFile(t, t.TempDir(), "text")
	f, err := NewFile(path, 0)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			f.Also(fmt.Sprint(path, i))
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			f.Also(fmt.Sprint(path, i+1))
		})
	}
	wg.Wait()
	require.NoError(t, f.Close())
}
