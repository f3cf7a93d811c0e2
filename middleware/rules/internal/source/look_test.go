package source

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALookSeesWhatChanged(t *testing.T) {
	t.Parallel()
	ago := time.Now().Add(-time.Hour)
	for name, test := range map[string]struct {
		change func(path string) error
		sees   bool
	}{
		"nothing":  {func(string) error { return nil }, false},
		"its size": {func(path string) error { return os.WriteFile(path, []byte("longer"), 0o600) }, true},
		"its time": {func(path string) error { return os.Chtimes(path, ago, ago.Add(time.Second)) }, true},
		"its mode": {func(path string) error { return os.Chmod(path, 0o400) }, true},
		"the file": {func(path string) error {
			other := path + ".new"
			if err := os.WriteFile(other, []byte("text"), 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(other, ago, ago); err != nil {
				return err
			}
			return os.Rename(other, path)
		}, true},
		"that it is there": {os.Remove, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
			require.NoError(t, os.Chtimes(path, ago, ago))
			before := lookAt(path)
			require.NoError(t, test.change(path))
			require.Equal(t, test.sees, before.changed(lookAt(path)))
		})
	}
}

func TestALookJustAfterAChangeTrustsNoTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	fresh := lookAt(path)
	require.True(t, fresh.changed(fresh))
}

func TestALookAtNothingIsTheSameAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.False(t, lookAt(path).changed(lookAt(path)))
	nothing := lookAt(path)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.True(t, nothing.changed(lookAt(path)))
}
