package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
)

func TestEachNameIsOneCaller(t *testing.T) {
	name := rapid.OneOf(rapid.StringMatching(`198\.18\.[0-9]{1,2}\.[0-9]{1,2}|2001:db8::[0-9a-f]{1,3}`), rapid.SampledFrom([]string{"", accesslog.UnixSocket}))
	rapid.Check(t, func(t *rapid.T) {
		all, known := newCallers(), map[string]*caller{}
		for _, name := range rapid.SliceOfN(name, 1, 3_000).Draw(t, "names") {
			c := all.of(name)
			require.Equal(t, name, c.name)
			require.Equal(t, remoteAddr(name), c.addr)
			if known[name] != nil {
				require.Same(t, known[name], c)
			}
			known[name] = c
		}
		require.Equal(t, len(known), all.n)
	})
}
