package release_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var uses = regexp.MustCompile(`(?m)^[ -]*uses: (.*)$`)

func TestWorkflowsUseActionsOfACommit(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/*/*.yml"))
	require.NoError(t, err)
	used := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, use := range uses.FindAllStringSubmatch(string(text), -1) {
			used++
			assert.Regexp(t, `^[\w-]+(/[\w-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`, use[1], file)
		}
	}
	assert.NotZero(t, used)
}

func TestDependabotKnowsEveryModule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".github/dependabot.yml"))
	require.NoError(t, err)
	for _, file := range strings.Fields(must(t, root, nil, "git", "ls-files", "*go.mod")) {
		folder := regexp.QuoteMeta(strings.TrimSuffix("/"+strings.TrimSuffix(file, "go.mod"), "/"))
		if folder == "" {
			folder = "/"
		}
		assert.Regexp(t, `directories: \[(.*, )?`+folder+`[,\]]`, string(text), file)
	}
}
