package redisstore

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A serverClock stands in for Redis's, which no test can move. It stands still unless it
// is told otherwise.
type serverClock struct {
	micros atomic.Int64
	passed atomic.Int64 // in all, for a process's clock, which does not step back
	begun  int64
}

func newServerClock(t testing.TB) *serverClock { return clockAt(phase.Draw(t)) }

// newSteadyClock is one in the first half of a minute that begins an hour, for claims that
// hold as long as a window does.
func newSteadyClock(t testing.TB) *serverClock {
	at := phase.Draw(t)
	return clockAt(at.Truncate(time.Hour) + at%(30*time.Second))
}

func clockAt(at time.Duration) *serverClock {
	c := &serverClock{begun: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(at).UnixMicro()}
	c.micros.Store(c.begun)
	c.passed.Store(c.begun)
	return c
}

// sleep moves the clock, back where d is negative.
func (c *serverClock) sleep(d time.Duration) {
	c.micros.Add(d.Microseconds())
	c.passed.Add(max(0, d.Microseconds()))
}

func (c *serverClock) args() []any {
	now := c.micros.Load()
	return []any{now / 1e6, now % 1e6}
}

// onClock is the store of New without its outage policies, whose script takes the time
// from its arguments, and whose keys live longer than any test, as their expiry goes by
// Redis's own clock.
func onClock(t testing.TB, clock *serverClock, client redis.UniversalClient, o Options) *store {
	t.Helper()
	of := newShared(client, o)
	of.script = onTestClock(t, scriptLua)
	of.transport.TestClock = clock.args
	if of.denied != nil {
		of.denied.clock = func() time.Duration { return time.Duration(clock.passed.Load()) * time.Microsecond }
	}
	s := newStore(of, 10*time.Second)
	s.slots.script = wire.NewScript(patch(t, slotsScript.Source, "call('TIME')", "{ARGV[2], ARGV[3]}", "lease * 3 / 2000", "lease * 3 / 2000 + 3600000"))
	t.Cleanup(func() { s.slots.close() }) // or it would renew what it holds after the test, too
	return s
}

func onTestClock(t testing.TB, script string) *wire.Script {
	return wire.NewScript(patch(t, script,
		"redis.call('TIME')", "{ARGV[2], ARGV[3]}",
		"divUp(expiry - now, 1000) + 1", "divUp(expiry - now, 1000) + 3600000"))
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
