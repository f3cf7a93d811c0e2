package main

import (
	"bytes"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const committed = "../../docs/playground.html"

var carried = regexp.MustCompile(`(?s)id="engine" data-built-by="([^"]*)" data-sources="([^"]*)">\n(.*?)\n</script>`)

// engineOf is what the page of the tree carries.
func engineOf(t *testing.T) (page []byte, e engine) {
	t.Helper()
	page, err := os.ReadFile(committed)
	require.NoError(t, err)
	found := carried.FindStringSubmatch(string(page))
	require.NotNil(t, found, "the page carries no engine")
	return page, engine{Toolchain: found[1], Sources: found[2], Engine: found[3]}
}

func TestThePageIsMadeOfTheSourcesInTheTree(t *testing.T) {
	page, e := engineOf(t)
	const stale = "docs/playground.html is older than its sources: run make playground"
	joined, err := join(e)
	require.NoError(t, err)
	require.True(t, bytes.Equal(joined, page), stale)
	sources, err := digestOfSources()
	require.NoError(t, err)
	require.Equal(t, sources, e.Sources, stale)
}

// With another Go version the engine is other code, which the tests in a browser try.
func TestWithTheSameGoThePageIsTheSameToTheByte(t *testing.T) {
	page, e := engineOf(t)
	if e.Toolchain != runtime.Version() {
		t.Skipf("the page was built by %s, and this is %s", e.Toolchain, runtime.Version())
	}
	again, err := os.ReadFile(buildPage(t))
	require.NoError(t, err)
	require.True(t, bytes.Equal(again, page), "docs/playground.html is not what its sources make: run make playground")
}

func TestThePageIsOneFileThatNamesNoOtherAddress(t *testing.T) {
	page, e := engineOf(t)
	assert.Less(t, len(e.Engine), 1_300_000)
	rest := strings.Replace(string(page), e.Engine, "", 1)
	for _, address := range regexp.MustCompile(`(?:https?:|["'(])//[^"' )]*`).FindAllString(rest, -1) {
		assert.Contains(t, address, "//www.w3.org/2000/svg", "a name, not an address")
	}
	assert.NotRegexp(t, `@import|url\(|fetch\(|XMLHttpRequest|sendBeacon|WebSocket|EventSource|src=`, rest)
	assert.Contains(t, rest, `default-src 'none'`)
}

func TestADigestIsOfCodeNotOfComments(t *testing.T) {
	words := func(text string) string {
		var b strings.Builder
		writeWords(&b, []byte(text))
		return b.String()
	}
	const code = "package p\n\nfunc f() int { return 1 }\n"
	assert.Equal(t, words(code), words("// Package p.\npackage p\n// f is one.\nfunc  f()  int  {  return 1 }\n"))
	assert.NotEqual(t, words(code), words(strings.Replace(code, "1", "2", 1)))
}
