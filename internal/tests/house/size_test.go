package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Servers log with slog, so that what it brings is no part of what a limit adds.
const serverWithout = `package main

import (
	"log/slog"
	"net/http"
)

func main() {
	slog.Info("listening")
	err := http.ListenAndServe(":8080", http.NotFoundHandler())
	slog.Error("stopped", "error", err)
}
`

const serverWith = `package main

import (
	"log/slog"
	"net/http"

	"github.com/weirgo/weir"
)

func main() {
	slog.Info("listening")
	err := http.ListenAndServe(":8080", weir.PerIP(weir.PerMinute(100))(http.NotFoundHandler()))
	slog.Error("stopped", "error", err)
}
`

func TestALimitAddsAtMost848KiBToAServersBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("it links two programs")
	}
	t.Parallel()
	size := func(source string) int64 {
		dir := t.TempDir()
		file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "server")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, file)
		build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
		said, err := build.CombinedOutput()
		require.NoError(t, err, "%s", said)
		info, err := os.Stat(binary)
		require.NoError(t, err)
		return info.Size()
	}
	grown := size(serverWith) - size(serverWithout)
	t.Log("bytes:", grown)
	assert.LessOrEqual(t, grown, int64(848<<10))
}
