package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAChromiumThatEndsAsItStartsIsStartedAgain(t *testing.T) {
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nif [ ! -e %[1]s/began ]; then touch %[1]s/began; echo 'not now' >&2; exit 1; fi\nexec %[2]s \"$@\"\n", bin, chromium(t))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "chromium"), []byte(script), 0o755))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	b := Start(t, 320, 400, false)
	assert.EqualValues(t, 2, Eval[int](b, "1+1"))
	assert.FileExists(t, filepath.Join(bin, "began"))
}
