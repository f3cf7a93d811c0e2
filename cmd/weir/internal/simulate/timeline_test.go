package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestATimelineCountsAllRequestsOfALogOfAnyLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var times timeline
		at, passed, stopped := rapid.Int64Range(1, 1<<50).Draw(t, "begin"), int64(0), int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			at += rapid.OneOf(rapid.Int64Range(0, 5*second), rapid.Int64Range(0, 100*86400*second), rapid.Int64Range(0, 1<<46)).Draw(t, "pause")
			if rapid.Bool().Draw(t, "passes") {
				times.add(at, "")
				passed++
			} else {
				times.add(at, "rule")
				stopped++
			}
			require.Zero(t, times.begin%times.width)
		}
		shown := times.shown()
		require.LessOrEqual(t, len(shown.Passed), mostBins)
		for i := range shown.Passed {
			passed -= shown.Passed[i]
			if stopped > 0 {
				stopped -= shown.Stopped["rule"][i]
			}
		}
		require.Zero(t, passed)
		require.Zero(t, stopped)
	})
}
