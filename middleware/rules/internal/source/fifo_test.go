//go:build unix

package source

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestANamedPipeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	f, err := NewFile(path, never)
	require.NoError(t, err)
	closeAfter(t, f)
	_, err = f.Read(t.Context())
	require.ErrorContains(t, err, "is not a regular file (prw")
}
