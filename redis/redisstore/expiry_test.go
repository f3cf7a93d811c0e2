package redisstore

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

// forgetful is the store of New without its outage policies and without a memory: what
// a test asks of it, it asks of Redis.
func forgetful(client redis.UniversalClient) *store {
	return storeOn(client, Options{ForgetRefusals: true}, 10*time.Second)
}

// samples are a limit of each algorithm, with which nothing comes back within a test.
var samples = []limiter.Limit{
	{Events: 10, Per: time.Hour, Algorithm: limiter.SlidingCounter},
	{Events: 10, Per: time.Hour, Algorithm: limiter.TokenBucket},
	{Events: 10, Per: time.Hour, Algorithm: limiter.LeakyBucket},
	{Events: 10, Per: time.Hour, Algorithm: limiter.FixedWindow},
	{Events: 10, Per: time.Hour, Algorithm: limiter.SlidingLog},
	{Events: 11, Per: time.Hour, Algorithm: limiter.SlidingLog}, // whose entries are not read as a whole
}

// ask carries one group and describes its charges at Redis's time now.
func ask(t testing.TB, s *store, op op, charges ...limiter.Charge) (decisions []limiter.Decision, now int64) {
	t.Helper()
	g := newCall(op)
	for i := range charges {
		c := &charges[i]
		g.tag = s.names.Digest(c.Key)
		g.add(s.names.Name(g.tag, c.Quota), c)
	}
	sendAlone(s, []*call{g})
	<-g.done
	require.NoError(t, g.err)
	if op == take {
		g.reply.decide(charges, true)
	} else {
		g.reply.look(charges)
	}
	now = g.reply.now
	g.free()
	return decisionsOf(charges), now
}

func nameOf(s *store, q *limiter.Quota, key string) string {
	return s.names.Name(s.names.Digest(key), q)
}

func integer(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// serverMillis is Redis's time.
func serverMillis(t testing.TB, server *redistest.Server) int64 {
	t.Helper()
	seconds, micros, _ := strings.Cut(server.MustDo("TIME"), "\n")
	return integer(t, seconds)*1000 + integer(t, micros)/1000
}

// livesFor fails unless the key is deleted so long after Redis's time now or somewhat later,
// give or take the whole milliseconds that an expiry is in, or was by the time that this looks.
func livesFor(t testing.TB, server *redistest.Server, q *limiter.Quota, name string, reset time.Duration, now int64) {
	t.Helper()
	life := (reset.Microseconds() + 999) / 1000
	since := serverMillis(t, server)
	left := integer(t, server.MustDo("PTTL", name))
	until := serverMillis(t, server)
	if reset == 0 {
		require.Equal(t, int64(-2), left, "%s is stored, though all its units are free", name)
		return
	}
	if left == -2 {
		require.GreaterOrEqual(t, until, now/1000+life, "%s is gone, %v before its units are free", name, reset)
		return
	}
	require.NotEqual(t, int64(-1), left, "%s never expires", name)
	// Redis keeps a key through the millisecond that is its expiry.
	require.GreaterOrEqual(t, 1000*(until+left+1), now+reset.Microseconds(), "%s expires before its units are free, in %v", name, reset)
	// Both sides are rounded, and counter.lua adds a millisecond.
	free, late := (now+reset.Microseconds()+999)/1000, until-now/1000
	// What is left at most of an expiry that was set with room for more, half the longest life,
	// when more was used than now.
	room := (max(5*time.Second, q.Window(), reset/2) + 2*q.Window()).Milliseconds()
	require.LessOrEqual(t, since+left, free+room+late+3, "%s outlives the last of its units, free in %v", name, reset)
}

func TestAKeyLivesUntilAllItsUnitsAreFreeAndNotMuchLonger(t *testing.T) {
	t.Parallel()
	server, client := startRedis(t)
	s := forgetful(client)
	random := rand.New(rand.NewPCG(5, 6))
	c := chance{draw: func(from, to int64) int64 { return from + random.Int64N(to-from+1) }}
	limits := append(append([]limiter.Limit{}, samples...), extremes...)
	for range 60 {
		limits = append(limits, c.limit())
	}
	for i, l := range limits {
		q := quotaOf(t, fmt.Sprint("rule ", i), l)
		name := nameOf(s, q, "key")
		for range 8 {
			op, c := take, charge(q, "key", c.magnitude(q.Capacity()))
			if random.IntN(4) == 0 {
				op, c.Cost = settle, -c.Cost
			}
			decisions, now := ask(t, s, op, c)
			livesFor(t, server, q, name, decisions[0].ResetAfter, now)
		}
	}
}

func TestAKeyThatLostItsExpiryGetsItBack(t *testing.T) {
	server, client := startRedis(t)
	s := forgetful(client)
	others := quotaOf(t, "other", samples[0])
	for _, l := range samples {
		for what, request := range map[string]struct {
			op   op
			cost int64
		}{
			"a look":    {take, 0},
			"a refusal": {take, 9},
			"too much":  {take, 1 << 60},
		} {
			q := quotaOf(t, l.String()+" "+what, l)
			name := nameOf(s, q, "key")
			ask(t, s, take, charge(q, "key", 2))
			before, _ := ask(t, s, take, charge(q, "key", 2))
			require.Equal(t, "1", server.MustDo("PERSIST", name))
			decisions, now := ask(t, s, request.op, charge(q, "key", request.cost), charge(others, "other", 0))
			livesFor(t, server, q, name, decisions[0].ResetAfter, now)

			after, _ := ask(t, s, take, charge(q, "key", 0))
			assert.Equal(t, before[0].Remaining, after[0].Remaining, "%v: the repair by %s is of the expiry only", l.Algorithm, what)
		}
	}
	assert.Equal(t, "0", server.MustDo("EXISTS", nameOf(s, others, "other")), "a look is stored")
}

// changed is how many writes the server has seen.
func changed(t testing.TB, server *redistest.Server) string {
	t.Helper()
	for _, line := range strings.Split(server.MustDo("INFO", "persistence"), "\r\n") {
		if n, ok := strings.CutPrefix(line, "rdb_changes_since_last_save:"); ok {
			return n
		}
	}
	t.Fatal("INFO counts no changes")
	return ""
}

func TestOnlyWhatTakesWrites(t *testing.T) {
	server, client := startRedis(t)
	s := forgetful(client)
	var used, unseen []limiter.Charge
	for _, l := range samples {
		q := quotaOf(t, l.String(), l)
		ask(t, s, take, charge(q, "key", q.Capacity()-1))
		used = append(used, charge(q, "key", 0))
		unseen = append(unseen, charge(q, "unseen", 0))
	}
	server.MustDo("CONFIG", "RESETSTAT")
	before, size := changed(t, server), server.MustDo("DBSIZE")
	for i := range used {
		for _, cost := range []int64{2, 5, used[i].Quota.Capacity() + 1, 1 << 60} {
			c := used[i]
			c.Cost = cost
			d, _ := ask(t, s, take, c)
			require.False(t, d[0].Allowed)
			d, _ = ask(t, s, take, used[(i+1)%len(used)], c, unseen[i]) // looks, with what is refused
			require.False(t, d[1].Allowed)
			room := charge(used[(i+1)%len(used)].Quota, "key", 1)
			d, _ = ask(t, s, take, room, c) // which would fit, but for c
			require.True(t, d[0].Allowed)
			require.False(t, d[1].Allowed)
		}
		ask(t, s, settle, used[i]) // to nothing
	}
	ask(t, s, take, used...)
	ask(t, s, take, unseen...)
	for i := range unseen {
		c := unseen[i]
		c.Cost = -5
		ask(t, s, settle, c)
	}
	ask(t, s, reset, unseen...)
	assert.Equal(t, before, changed(t, server), "refusals and looks write")
	assert.Equal(t, size, server.MustDo("DBSIZE"))
	stats := server.MustDo("INFO", "commandstats")
	for _, command := range []string{"set", "setrange", "del", "pexpire"} {
		assert.NotContains(t, stats, "cmdstat_"+command+":", "a refusal or a look calls %s", command)
	}
	server.MustDo("FLUSHALL")
	for _, c := range unseen {
		ask(t, s, take, c)
	}
	assert.Equal(t, "0", server.MustDo("DBSIZE"), "an unseen key that is looked at is stored")
}
