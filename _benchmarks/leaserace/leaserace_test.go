package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/internal/redistest"
)

// TestMain is an instance where the race starts this program as one.
func TestMain(m *testing.M) {
	if race.IsChild() {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestARaceEndsWithTablesGoalsAndAPlot(t *testing.T) {
	redistest.Start(t) // or skip
	file := filepath.Join(t.TempDir(), "plot.svg")
	s, err := parse([]string{"-duration", "600ms", "-load", "2000", "-keys", "20", "-limits", "50", "-svg", file})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), s, &out))
	for _, mode := range modes {
		for _, traffic := range traffics {
			assert.Regexp(t, "### 50/s, "+traffic+":[^#]*\\| "+mode+" ", out.String())
		}
	}
	assert.Contains(t, out.String(), "## Goals")
	assert.NotContains(t, out.String(), "The first error")
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(svg), `class="synchronized"`)
}

func TestAReportTellsWhatWasTooMuchAndTooLittle(t *testing.T) {
	c := measurement{Mode: leased, Traffic: steady, Limit: 10, Keys: 2, Duration: 1e9}
	var records []record
	for i := range 20 { // at once; a burst of ten is allowed
		records = append(records, record{At: 0, Took: 1, Key: 0, Allowed: 1})
		records = append(records, record{At: int64(i), Took: 1, Key: 1})
	}
	r, err := newReport(c, records, outcome{}, 4)
	require.NoError(t, err)
	assert.InDelta(t, 20, r.figures[admitted], 0)
	assert.InDelta(t, 0, r.figures[below], 0.01, "ten of each key")
	assert.InDelta(t, 10, r.figures[above], 0.01)
	assert.InDelta(t, 10, r.figures[peak], 0.01)
	assert.InDelta(t, 0.1, r.figures[trips], 1e-9)
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-duration", "0s"}, {"-load", "0"}, {"-keys", "1"}, {"-limits", "x"}, {"-modes", "fast"}, {"more"}} {
		_, err := parse(args)
		assert.Error(t, err, args)
	}
}
