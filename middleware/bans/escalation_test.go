package bans_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/middleware/bans"
)

func TestABanIsLongerEachTimeUpToTheLongest(t *testing.T) {
	for _, tt := range []struct {
		e     bans.Escalation
		times int
		want  time.Duration
	}{
		{bans.Escalation{Ban: time.Minute, Factor: 2, Max: 24 * time.Hour}, -1, time.Minute},
		{bans.Escalation{Ban: time.Minute, Factor: 2, Max: 24 * time.Hour}, 1, time.Minute},
		{bans.Escalation{Ban: time.Minute, Factor: 2, Max: 24 * time.Hour}, 2, 2 * time.Minute},
		{bans.Escalation{Ban: time.Minute, Factor: 2, Max: 24 * time.Hour}, 11, 1024 * time.Minute},
		{bans.Escalation{Ban: time.Minute, Factor: 2, Max: 24 * time.Hour}, 12, 24 * time.Hour},
		{bans.Escalation{Ban: time.Minute, Factor: 2, Max: 24 * time.Hour}, math.MaxInt32, 24 * time.Hour},
		{bans.Escalation{Ban: time.Hour, Factor: 1, Max: time.Hour}, math.MaxInt32, time.Hour},
		{bans.Escalation{Ban: time.Hour, Factor: 1, Max: 2 * time.Hour}, math.MaxInt32, time.Hour},
		{bans.Escalation{Ban: time.Millisecond, Factor: 1000, Max: bans.MaxDuration}, 4, 1_000_000 * time.Second},
		{bans.Escalation{Ban: time.Millisecond, Factor: 1000, Max: bans.MaxDuration}, 5, bans.MaxDuration},
		{bans.Escalation{Ban: 3 * time.Millisecond, Factor: 1.5, Max: time.Hour}, 2, 4 * time.Millisecond},
	} {
		tt.e.After, tt.e.Within = 1, time.Minute
		require.NoError(t, tt.e.Validate())
		assert.Equal(t, tt.want, tt.e.Duration(tt.times), "time %d of %+v", tt.times, tt.e)
	}
}

func TestABanIsNeverShorterThanTheOneBeforeNorThanTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(1, bans.MaxDuration.Milliseconds())
		e := bans.Escalation{After: 1, Within: time.Minute, Ban: time.Duration(ms.Draw(t, "first")) * time.Millisecond, Factor: rapid.Float64Range(1, 1000).Draw(t, "factor")}
		e.Max = max(e.Ban, time.Duration(ms.Draw(t, "max"))*time.Millisecond)
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		times := rapid.IntRange(1, math.MaxInt32-1).Draw(t, "times")
		before, after := e.Duration(times), e.Duration(times+1)
		if before < e.Ban || after < before || after > e.Max || after%time.Millisecond != 0 || e.Duration(1) != e.Ban {
			t.Fatalf("times %d and one more of %+v: %v, %v", times, e, before, after)
		}
	})
}

func TestEscalationsThatMakeNoSenseAreNamedWithTheirValue(t *testing.T) {
	for _, tt := range []struct {
		e    bans.Escalation
		want []string
	}{
		{bans.Escalation{}, []string{"Ban is 0s"}},
		{bans.Escalation{Ban: -time.Second, Factor: -1, Max: -time.Minute}, []string{"Ban is -1s", "Factor is -1", "Max is -1m0s"}},
		{bans.Escalation{Ban: time.Microsecond, Factor: 1, Max: time.Second}, []string{"Ban is 1µs", "whole milliseconds"}},
		{bans.Escalation{Ban: time.Second, Factor: 0.99, Max: time.Second}, []string{"Factor is 0.99", "from 1 to 1000"}},
		{bans.Escalation{Ban: time.Second, Factor: 1000.1, Max: time.Second}, []string{"Factor is 1000.1"}},
		{bans.Escalation{Ban: time.Second, Factor: math.NaN(), Max: time.Second}, []string{"Factor is NaN"}},
		{bans.Escalation{Ban: time.Second, Factor: math.Inf(1), Max: time.Second}, []string{"Factor is +Inf"}},
		{bans.Escalation{Ban: 2 * time.Second, Factor: 1, Max: time.Second}, []string{"Max is 1s", "at least as long as the first ban, 2s"}},
		{bans.Escalation{Ban: time.Second, Factor: 1, Max: bans.MaxDuration + 1}, []string{"Max is 8784h0m0.000000001s", "at most 8784h0m0s"}},
		{bans.Escalation{Ban: time.Second, Factor: 1, Max: time.Second + 1}, []string{"Max is 1.000000001s", "whole milliseconds"}},
	} {
		tt.e.After, tt.e.Within = 1, time.Minute
		err := tt.e.Validate()
		require.Error(t, err, "%+v", tt.e)
		for _, want := range tt.want {
			assert.ErrorContains(t, err, want)
		}
		list, err := bans.New(bans.Options{})
		require.NoError(t, err)
		_, err = list.Escalate(t.Context(), "key", "rule", tt.e)
		assert.EqualError(t, err, tt.e.Validate().Error())
	}
}
