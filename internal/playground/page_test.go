package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var carried = regexp.MustCompile(`(?s)id="engine" data-built-by="[^"]*">\n(.*?)\n</script>`)

func TestThePageIsOneFileThatNamesNoOtherAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "playground.html")
	require.NoError(t, write(path))
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	found := carried.FindStringSubmatch(string(page))
	require.NotNil(t, found, "the page carries no engine")
	assert.Less(t, len(found[1]), 1_300_000)
	rest := strings.Replace(string(page), found[1], "", 1)
	for _, address := range regexp.MustCompile(`(?:https?:|["'(])//[^"' )]*`).FindAllString(rest, -1) {
		assert.Contains(t, address, "//www.w3.org/2000/svg", "a name, not an address")
	}
	assert.NotRegexp(t, `@import|url\(|fetch\(|XMLHttpRequest|sendBeacon|WebSocket|EventSource|src=`, rest)
	assert.Contains(t, rest, `default-src 'none'`)
}
