package route_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/route"
)

func TestAPlainPathIsReadAlikeByAllRouters(t *testing.T) {
	for target, want := range map[string]bool{
		"/": true, "/a": true, "/a/": true, "/a/b%20c": true, "/a.b/..c": true,
		"//": false, "//a": false, "/a//": false, "/a//b": false, "/a/./b": false, "/a/../b": false, "/..": false, "/a%2Fb": false, "*": false,
	} {
		u, err := url.ParseRequestURI(target)
		require.NoError(t, err)
		assert.Equal(t, want, route.IsPlain(u), target)
	}
	assert.False(t, route.IsPlain(&url.URL{}))
	long := &url.URL{Path: "/a/b/"}
	assert.Zero(t, testing.AllocsPerRun(10, func() { route.IsPlain(long) }))
}
