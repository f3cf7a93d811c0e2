package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/rules"
)

func TestAWatcherTellsWhatTheLastLoadChangedAndWhereRulesComeFrom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, map[string]string{"limits.yaml": limitOf("100/1m")}, rules.Options{Fallback: []byte(limitOf("7/1m"))})
		source, version, changes := w.Written()
		require.Equal(t, w.path, source)
		require.Equal(t, w.Rules().Version(), version)
		require.Empty(t, changes, "they are the first")

		w.write(limitOf("50/1m"))
		settle()
		_, _, changes = w.Written()
		require.Len(t, changes, 1)
		require.Contains(t, changes[0], "100/1m")
		require.Contains(t, changes[0], "50/1m")

		w.write(limitOf("many"))
		settle()
		_, again, same := w.Written()
		require.Equal(t, w.Rules().Version(), again, "what is refused changes nothing")
		require.Equal(t, changes, same)
		require.Error(t, w.Status().Err)
	})
}

func TestAFallbackIsInForceAndNotSaidToBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for want, files := range map[string]map[string]string{
			"no such file":   {},
			"default.limit:": {"limits.yaml": limitOf("many")},
		} {
			w := watch(t, files, rules.Options{Fallback: []byte(limitOf("7/1m"))})
			source, _, _ := w.Written()
			require.Empty(t, source)
			require.True(t, w.Status().Fallback)
			require.ErrorContains(t, w.Status().Err, want)
			require.Equal(t, "7", w.limit())
			w.write(limitOf("8/1m"))
			w.becomes("8")
			source, _, changes := w.Written()
			require.Equal(t, w.path, source)
			require.False(t, w.Status().Fallback)
			require.NoError(t, w.Status().Err)
			require.Len(t, changes, 1)
		}
	})
}
