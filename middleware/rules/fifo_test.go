//go:build unix

package rules_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

func TestANamedPipeIsRefusedWithoutWaitingForItsOtherEnd(t *testing.T) {
	dir := write(t, map[string]string{"limits.yaml": "version: 1\nban: {file: pipe}\n"})
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := rules.Load(pipe, rules.Options{})
	require.EqualError(t, err, "rules: "+pipe+" is not a regular file")
	_, err = rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
	require.Equal(t, []string{dir + "/limits.yaml:2:13: ban.file: can't be read: " + pipe + " is not a regular file"}, problemsOf(t, err))
}
