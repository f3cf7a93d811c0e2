package source

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// physical is a directory for a test whose path has no links.
func physical(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return dir
}

func TestATrailEndsWhereTheSystemArrives(t *testing.T) {
	top := physical(t)
	trees := 0
	rapid.Check(t, func(r *rapid.T) {
		trees++
		dir := filepath.Join(top, fmt.Sprint(trees))
		require.NoError(r, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
		require.NoError(r, os.MkdirAll(filepath.Join(dir, "c"), 0o755))
		for _, name := range []string{"f", "a/f", "a/b/f", "c/f"} {
			require.NoError(r, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		somewhere := rapid.StringMatching(`((a|b|c|l0|l1|l2|l3|\.|\.\.)/){0,3}(f|l0|l1|l2|l3|a|b|\.\.)`)
		for i := range 4 {
			at := filepath.Join(dir, rapid.SampledFrom([]string{".", "a", "a/b", "c"}).Draw(r, "place"), fmt.Sprint("l", i))
			target := somewhere.Draw(r, "target")
			if rapid.Bool().Draw(r, "absolute") {
				target = dir + "/" + target
			}
			require.NoError(r, os.Symlink(target, at))
		}
		path := dir + "/" + somewhere.Draw(r, "path") // not cleaned, which would lose a link before ..
		names := trail(path)
		arrived, err := filepath.EvalSymlinks(path)
		if err != nil {
			return
		}
		if info, err := os.Stat(arrived); err == nil && info.Mode().IsRegular() {
			require.NotEmpty(r, names)
			require.Equal(r, arrived, names[len(names)-1])
			names = names[:len(names)-1]
		}
		for _, name := range names {
			dir, err := filepath.EvalSymlinks(filepath.Dir(name))
			require.NoError(r, err)
			require.Equal(r, filepath.Dir(name), dir, "is physical")
		}
	})
}

func TestATrailOfALoopEnds(t *testing.T) {
	dir := physical(t)
	require.NoError(t, os.Symlink("two", filepath.Join(dir, "one")))
	require.NoError(t, os.Symlink("one", filepath.Join(dir, "two")))
	require.NotEmpty(t, trail(filepath.Join(dir, "one")))
}

func TestATrailGoesOnWhereNothingIs(t *testing.T) {
	dir := physical(t)
	path := filepath.Join(dir, "not", "there")
	require.Equal(t, []string{path}, trail(path))
}
