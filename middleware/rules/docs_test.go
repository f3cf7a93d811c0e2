package rules_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

// The YAML of docs/rules.md is read as it is pasted, and the first file draws no warning.
func TestTheFilesOfTheDocsAreGood(t *testing.T) {
	text, err := os.ReadFile("../../docs/rules.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(blocks), 5)
	for i, block := range blocks {
		file := block[1]
		if strings.HasPrefix(file, "rules: ") {
			continue // tests, which weir test reads
		}
		if !strings.HasPrefix(file, "version: 1\n") {
			require.NotZero(t, i, "the first is a whole file")
			file = "version: 1\n" + file
		}
		r, err := rules.Parse([]byte(file), rules.Options{})
		require.NoError(t, err, file)
		if i == 0 {
			require.Empty(t, r.Warnings())
		}
	}
}
