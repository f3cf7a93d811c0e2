package redisbans

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
)

// scripted is a list whose scripts a test runs.
func scripted(t *testing.T) (*List, *redistest.Server) {
	server := redistest.Start(t)
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	list, err := New(t.Context(), client, Options{Logger: slog.New(slog.DiscardHandler), patience: redistest.Patience})
	require.NoError(t, err)
	return list, server
}

// escalation is the values of escalate.
func escalation(e bans.Escalation) map[string]any {
	return map[string]any{"rule": "rule", "first": e.Ban.Milliseconds(), "factor": e.Factor, "max": e.Max.Milliseconds()}
}

func TestOfTwoBansTheNewerHoldsElseByHandElseTheLonger(t *testing.T) {
	list, _ := scripted(t)
	for i, tt := range []struct {
		old, new   bans.Ban
		isNewer    bool
		newHolds   bool
		oldH, newH int // hours from now: zero is for ever
	}{
		{oldH: 2, newH: 1, isNewer: true, newHolds: true},
		{old: bans.Ban{Rule: "r"}, new: bans.Ban{Rule: "r"}, oldH: 2, newH: 1},
		{old: bans.Ban{Rule: "r"}, new: bans.Ban{Rule: "r"}, oldH: 1, newH: 2, newHolds: true},
		{old: bans.Ban{Rule: "r"}, oldH: 2, newH: 1},
		{old: bans.Ban{Rule: "r"}, oldH: 2, newHolds: true},
		{new: bans.Ban{Rule: "r"}, oldH: 1, newH: 2},
		{oldH: 1, newH: 2},
	} {
		tag := list.tag(fmt.Sprint(i))
		write := func(b bans.Ban, hours int, by string, isNewer bool) news {
			b.By, b.Since = by, time.Now()
			if hours > 0 {
				b.Until = b.Since.Add(time.Duration(hours) * time.Hour)
			}
			n, _, err := list.run(t.Context(), "put", tag, (&put{ban: b, isNewer: isNewer}).values())
			require.NoError(t, err)
			return n
		}
		write(tt.old, tt.oldH, "old", true)
		got, _, ok := write(tt.new, tt.newH, "new", tt.isNewer).read()
		require.True(t, ok)
		assert.Equal(t, map[bool]string{true: "new", false: "old"}[tt.newHolds], got.By, "%+v", tt)
	}
}

func TestLuaAndGoAgreeHowLongABanIs(t *testing.T) {
	list, _ := scripted(t)
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(1, bans.MaxDuration.Milliseconds())
		e := bans.Escalation{
			After: 1, Within: time.Second,
			Ban:    time.Duration(ms.Draw(t, "first")>>rapid.IntRange(0, 34).Draw(t, "shift")+1) * time.Millisecond,
			Factor: rapid.OneOf(rapid.Float64Range(1, 1000), rapid.Float64Range(1, 1.01), rapid.SampledFrom([]float64{1, 1.5, 2, 3, 10, 1000})).Draw(t, "factor"),
		}
		e.Ban = min(e.Ban, bans.MaxDuration)
		e.Max = max(e.Ban, time.Duration(ms.Draw(t, "max"))*time.Millisecond)
		times := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 1<<31-1)).Draw(t, "times")
		require.NoError(t, e.Validate())
		tag := list.tag("key")
		_, _, err := list.run(context.Background(), "unban", tag, nil)
		require.NoError(t, err)
		if times > 1 {
			now := time.Now()
			over := &put{ban: bans.Ban{Until: now.Add(-time.Second), Since: now, Times: times - 1}, remember: time.Hour}
			_, _, err = list.run(context.Background(), "put", tag, over.values())
			require.NoError(t, err)
		}
		n, _, err := list.run(context.Background(), "escalate", tag, escalation(e))
		require.NoError(t, err)
		got, _, ok := n.read()
		require.True(t, ok)
		if d, want := got.Until.Sub(n.received), e.Duration(times); d != want || got.Times != times {
			t.Fatalf("Lua says %v for time %d of %+v, Go %v for %d", d, got.Times, e, want, times)
		}
	})
}

// What expires with a ban in force lifts it.
func TestNothingOfAListExpiresBeforeItsLongestBan(t *testing.T) {
	list, server := scripted(t)
	rapid.Check(t, func(rt *rapid.T) {
		server.MustDo("FLUSHALL")
		ends := map[string]time.Time{}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 8).Draw(rt, "keys") {
			tag, now := keyfunc.NewDigester(nil).Digest(key).String(), time.Now()
			d := time.Duration(rapid.IntRange(1, 366*24).Draw(rt, "hours")) * time.Hour
			op, values := "unban", any(nil)
			switch rapid.SampledFrom([]string{"put", "escalate", "unban"}).Draw(rt, "op") {
			case "put":
				ends[key] = now.Add(d)
				op, values = "put", (&put{ban: bans.Ban{Until: ends[key], Since: now}, isNewer: true}).values()
			case "unban":
				delete(ends, key)
			case "escalate":
				if !ends[key].IsZero() {
					continue // it is banned
				}
				ends[key] = now.Add(2 * d) // with its repetitions
				op, values = "escalate", escalation(bans.Escalation{Ban: d, Factor: 1, Max: d})
			}
			_, _, err := list.run(context.Background(), op, tag, values)
			require.NoError(rt, err)
			for key, end := range ends {
				life, err := list.redis.Client.PTTL(context.Background(), list.names[0]).Result()
				require.NoError(rt, err)
				require.GreaterOrEqual(rt, life, time.Until(end), "of a ban of %s", key)
			}
		}
	})
}

// Redis's clock may be wrong, and a ban is as long all the same.
func TestATimeOfTheServersIsReadByThisProcesssClock(t *testing.T) {
	n := news{now: 1_000_000, received: time.Now()}
	assert.Equal(t, n.received.Add(2*time.Second), n.at(1_002_000))
	assert.Zero(t, n.at(0))
}
