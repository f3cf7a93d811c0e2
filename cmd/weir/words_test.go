package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/demand"
)

// A sliding window may refuse clients that keep to its limit. Then the text explains why.
func TestALimitAboveWhatAnyClientAsksForIsExplainedIfItRefuses(t *testing.T) {
	for requests, explained := range map[int64]bool{30: true, 5: false} { // of a small window, each request is remembered
		m, err := demand.NewMeter(time.Minute)
		require.NoError(t, err)
		for minute := range int64(2) { // all at the beginning of each: never more in any minute
			for i := range requests {
				m.Add("192.0.2.1", (16_666_666+minute)*60_000_000+i, 1)
			}
		}
		r, err := m.Result(1)
		require.NoError(t, err)
		require.EqualValues(t, requests, r.Peaks.Most)
		assert.Equal(t, explained, strings.Contains(peaks(r), "Limits above that still refuse something"), "%v: %+v", requests, r.Curve)
	}
}

func TestPeriodsAreWrittenForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Minute: "minute", 10 * time.Second: "10 seconds", 90 * time.Second: "90 seconds", 36 * time.Hour: "36 hours", 24 * time.Hour: "day"} {
		assert.Equal(t, want, period(d))
	}
}
