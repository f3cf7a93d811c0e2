package redisstore

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A serverClock stands in for Redis's, which no test can move. It stands still unless it
// is told otherwise.
type serverClock struct{ micros atomic.Int64 }

func newServerClock() *serverClock {
	c := &serverClock{}
	c.micros.Store(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *serverClock) sleep(d time.Duration) { c.micros.Add(d.Microseconds()) }

func (c *serverClock) args() []any {
	now := c.micros.Load()
	return []any{now / 1e6, now % 1e6}
}

// onClock is the store of New without its outage policies, whose script takes the time
// from its arguments, and whose keys live longer than any test, as their expiry goes by
// Redis's own clock.
func onClock(t testing.TB, clock *serverClock, client redis.UniversalClient, o Options) *store {
	t.Helper()
	s := newStore(client, o)
	s.carrier.scripts = newScripts(
		patch(t, decideLua,
			"redis.call('TIME')", "{ARGV[2], ARGV[3]}",
			"'PEXPIRE', s.key, life)", "'PEXPIRE', s.key, life + 3600000)",
			"s.prev), 'PX', life)", "s.prev), 'PX', life + 3600000)"),
		patch(t, oneLua,
			"redis.call('TIME')", "{ARGV[3], ARGV[4]}",
			"divUp(reset + s.last - now, 1000) + 1)", "divUp(reset + s.last - now, 1000) + 3600000)"),
	)
	s.carrier.testClock = clock.args
	if s.refusals != nil {
		s.refusals.clock = func() time.Duration { return time.Duration(clock.micros.Load()) * time.Microsecond }
	}
	return s.Within(10 * time.Second).(*store)
}

// patch is a script with words in place of others, each of which it has once.
func patch(t testing.TB, script string, words ...string) string {
	t.Helper()
	for i := 0; i < len(words); i += 2 {
		require.Equal(t, 1, strings.Count(script, words[i]), words[i])
		script = strings.Replace(script, words[i], words[i+1], 1)
	}
	return script
}
