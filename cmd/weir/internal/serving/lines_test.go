package serving_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
)

// A disk takes a number of bytes, and then no more.
type disk struct {
	mu   sync.Mutex
	free int
	text bytes.Buffer
}

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(b), d.free)
	d.free -= n
	d.text.Write(b[:n])
	if n < len(b) {
		return n, errors.New("full")
	}
	return n, nil
}

func (d *disk) add(free int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free += free
}

func TestLinesThatCannotBeWrittenAreCountedAndTearNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{free: 10}
		lines := serving.NewLines(d)
		_, _ = lines.Write([]byte("one\n"))
		synctest.Wait()
		dropped, err := lines.Dropped()
		require.Zero(t, dropped)
		require.NoError(t, err)
		_, _ = lines.Write([]byte("second\nthird\n"))
		synctest.Wait()
		dropped, err = lines.Dropped()
		require.EqualValues(t, 2, dropped)
		require.EqualError(t, err, "full")
		_, _ = lines.Write([]byte("lost\n"))
		synctest.Wait()
		d.add(100)
		_, _ = lines.Write([]byte("last\n"))
		require.NoError(t, lines.Close())
		require.NoError(t, lines.Close())
		dropped, err = lines.Dropped()
		require.EqualValues(t, 3, dropped)
		require.NoError(t, err)
		require.Equal(t, "one\nsecond\nlast\n", d.text.String(), "the torn line ends")
	})
}

// stuck is a reader that does not read until it is closed.
type stuck chan struct{}

func (s stuck) Write(b []byte) (int, error) { <-s; return len(b), nil }

func TestLinesAreBoundedAndCloseToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := make(stuck)
		lines := serving.NewLines(reader)
		line := []byte(strings.Repeat("x", 1<<10-1) + "\n")
		const n = 20 << 10
		for range n {
			_, _ = lines.Write(line)
		}
		synctest.Wait()
		dropped, _ := lines.Dropped()
		assert.GreaterOrEqual(t, dropped, uint64(n-8<<10), "8 MiB are kept at most")
		assert.Less(t, dropped, uint64(n-3<<10))
		began := time.Now()
		require.NoError(t, lines.Close())
		assert.Equal(t, 2*time.Second, time.Since(began))
		close(reader)
	})
}

func TestALogThatIsRotatedIsWholeInItsFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	lines, err := serving.OpenLines(name)
	require.NoError(t, err)
	var want strings.Builder
	for i := range 100 {
		line := fmt.Sprintln("line", i)
		want.WriteString(line)
		_, _ = lines.Write([]byte(line))
		if i%10 == 0 {
			require.NoError(t, os.Rename(name, fmt.Sprint(name, ".", 100+i)))
			require.NoError(t, lines.Reopen())
		}
	}
	require.NoError(t, lines.Close())
	files, err := filepath.Glob(name + ".*")
	require.NoError(t, err)
	var got strings.Builder
	for _, file := range append(files, name) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		got.Write(text)
	}
	require.Equal(t, want.String(), got.String())
	dropped, err := lines.Dropped()
	require.Zero(t, dropped)
	require.NoError(t, err)

	require.NoError(t, os.Remove(name))
	require.NoError(t, os.Mkdir(name, 0o700))
	require.Error(t, lines.Reopen())
}

func TestANamedPipeIsALogWhileItHasAReader(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	_, err := serving.OpenLines(name)
	require.ErrorIs(t, err, syscall.ENXIO)
	reader, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	lines, err := serving.OpenLines(name)
	require.NoError(t, err)
	_, _ = lines.Write([]byte("one\n"))
	text := make([]byte, 4)
	_, err = io.ReadFull(reader, text)
	require.NoError(t, err)
	require.Equal(t, "one\n", string(text))
	require.NoError(t, reader.Close())
	require.ErrorIs(t, lines.Reopen(), syscall.ENXIO)
	_, _ = lines.Write([]byte("lost\n"))
	require.NoError(t, lines.Close())
	dropped, err := lines.Dropped()
	require.EqualValues(t, 1, dropped)
	require.ErrorIs(t, err, syscall.EPIPE)
}
