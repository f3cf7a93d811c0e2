package nearest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestANameIsFoundDespiteItsMistakes(t *testing.T) {
	t.Parallel()
	names := []string{"limit", "requests", "window", "algorithm", "on_outage", "key"}
	for typed, meant := range map[string]string{
		"limt": "limit", "LIMIT": "limit", "limits": "limit", "request": "requests", "widnow": "window", "algoritm": "algorithm",
		"onOutage": "on_outage", "on-outage": "on_outage", "keys": "key", "burst": "", "": "", "zebra": "", "k": "",
	} {
		require.Equal(t, meant, Of(typed, names), typed)
	}
}

func TestTheDistanceIsOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := []byte(rapid.StringMatching(`[a-c]{0,8}`).Draw(t, "a"))
		b := []byte(rapid.StringMatching(`[a-c]{0,8}`).Draw(t, "b"))
		require.Equal(t, string(a) == string(b), distance(string(a), string(b)) == 0)
		require.Equal(t, distance(string(a), string(b)), distance(string(b), string(a)))
		require.LessOrEqual(t, distance(string(a), string(b)), max(len(a), len(b)))
		if len(a) > 1 {
			swapped := append([]byte{a[1], a[0]}, a[2:]...)
			require.LessOrEqual(t, distance(string(a), string(swapped)), 1)
		}
	})
}
