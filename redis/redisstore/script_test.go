package redisstore

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/counters"
)

// sendAll sends a group for each of the charges, all in one batch.
func sendAll(t testing.TB, s *store, op op, charges []limiter.Charge) []limiter.Decision {
	t.Helper()
	batch := make([]*call, len(charges))
	for i := range charges {
		c := &charges[i]
		batch[i] = newCall(op)
		batch[i].tag = s.names.Digest(c.Key)
		batch[i].add(s.names.Name(batch[i].tag, c.Quota), c)
	}
	sendAlone(s, batch)
	for i, g := range batch {
		<-g.done
		require.NoError(t, g.err)
		if op == take {
			g.reply.decide(charges[i:i+1], true)
		} else {
			g.reply.look(charges[i : i+1])
		}
		g.free()
	}
	return decisionsOf(charges)
}

// keysOf are so many keys, which in a Cluster are on all nodes.
func keysOf(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	return keys
}

func TestAServerThatForgotTheScriptIsToldAgain(t *testing.T) {
	server, client := startRedis(t)
	s := forgetful(client)
	for _, l := range samples {
		q := quotaOf(t, l.String(), l)
		back := charge(q, "key", 2)
		for want := q.Capacity() - 1; want >= 0; want-- {
			server.MustDo("SCRIPT", "FLUSH")
			d := decideOne(t, s, q, "key", 1)
			assert.Equal(t, want, d.Remaining, "a decision after SCRIPT FLUSH is taken once")
			if l.Algorithm == limiter.LeakyBucket {
				back.Decision = d
			}
		}
		server.MustDo("SCRIPT", "FLUSH")
		assert.False(t, decideOne(t, s, q, "key", 1).Allowed)
		server.MustDo("SCRIPT", "FLUSH")
		require.NoError(t, s.change(t.Context(), settle, refunds(back), []int{0}))
		assert.Equal(t, int64(2), decideOne(t, s, q, "key", 0).Remaining)
		server.MustDo("SCRIPT", "FLUSH")
		require.NoError(t, s.Reset(t.Context(), []limiter.Charge{charge(q, "key", 0)}))
		assert.Equal(t, q.Capacity(), decideOne(t, s, q, "key", 0).Remaining)
	}
}

func TestEachNodeOfAClusterIsToldTheScriptItNeeds(t *testing.T) {
	nodes := redistest.Cluster(t)
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
	s := forgetful(client)
	var charges []limiter.Charge
	for i, key := range keysOf(60) {
		l := samples[i%len(samples)]
		charges = append(charges, charge(quotaOf(t, l.String(), l), key, 1))
	}
	for round := range int64(3) {
		for i, node := range nodes {
			if round != int64(i) { // one that has not forgotten, too
				node.MustDo("SCRIPT", "FLUSH")
			}
		}
		for i, d := range sendAll(t, s, take, charges) {
			assert.Equal(t, charges[i].Quota.Capacity()-1-round, d.Remaining, "a decision after SCRIPT FLUSH is taken once")
		}
	}
}

// What is under Weir's names and not Weir's is neither taken for an unused counter nor
// replaced. The others in the batch are decided all the same.
func TestWhatIsNoCounterIsLeftAloneAndSaid(t *testing.T) {
	t.Parallel()
	server, client := startRedis(t)
	s := forgetful(client)
	for what, command := range map[string][]string{
		"a list":                         {"RPUSH", "@", "a", "b"},
		"a hash":                         {"HSET", "@", "field", "value"},
		"a set":                          {"SADD", "@", "member"},
		"a sorted set":                   {"ZADD", "@", "1", "member"},
		"a stream":                       {"XADD", "@", "*", "field", "value"},
		"an empty string":                {"SET", "@", ""},
		"a number":                       {"SET", "@", "12345"},
		"a counter that was cut off":     {"SET", "@", "CUT"},
		"57 bytes of no known algorithm": {"SET", "@", "\xc8" + strings.Repeat("\x00", 56)},
		"57 bytes of text":               {"SET", "@", strings.Repeat("x", 57)},
		"a long string":                  {"SET", "@", strings.Repeat("x", 1000)},
	} {
		for _, l := range samples {
			for _, expires := range []bool{false, true} {
				server.MustDo("FLUSHALL")
				by := fmt.Sprintf("%s in place of a %v", what, l.Algorithm)
				q := quotaOf(t, "rule", l)
				neighbour := quotaOf(t, "neighbour", samples[0])
				name := nameOf(s, q, "key")
				cut := string(counters.AppendQuota(nil, q, serverMillis(t, server)*1000)) + strings.Repeat("\x00", 31)
				foreign := make([]string, len(command))
				for i, word := range command {
					foreign[i] = strings.NewReplacer("@", name, "CUT", cut).Replace(word)
				}
				server.MustDo(foreign...)
				if expires {
					server.MustDo("PEXPIRE", name, "1000000000")
				}
				before := server.MustDo("DUMP", name)
				all := []limiter.Charge{charge(q, "first", 1), charge(neighbour, "key", 2), charge(q, "key", 3), charge(neighbour, "key", 1), charge(q, "last", 4)}
				decisions := sendAll(t, s, take, all)
				for i, want := range []int64{q.Capacity() - 1, 8, q.Capacity(), 7, q.Capacity() - 4} {
					if i != 2 {
						assert.True(t, decisions[i].Allowed, by)
						assert.Equal(t, want, decisions[i].Remaining, "%s: charge %d", by, i)
					}
				}
				for _, cost := range []int64{0, 1, q.Capacity() + 1} {
					err := s.Decide(t.Context(), []limiter.Charge{charge(q, "key", cost)})
					assert.EqualError(t, err, fmt.Sprintf("redisstore: key %q holds no counter", name), by)
				}
				err := s.Decide(t.Context(), []limiter.Charge{charge(neighbour, "key", 5), charge(q, "key", 1)})
				assert.Error(t, err, by)
				assert.Equal(t, int64(7), decideOne(t, s, neighbour, "key", 0).Remaining, "%s: a group is taken as a whole or not at all", by)
				assert.Error(t, s.change(t.Context(), settle, refunds(charge(q, "key", 1)), []int{0}), by)
				assert.Equal(t, before, server.MustDo("DUMP", name), "%s: it is as it was", by)
				ttl := integer(t, server.MustDo("PTTL", name))
				if expires {
					assert.Greater(t, ttl, int64(900_000_000), by)
				} else {
					assert.True(t, ttl > 0 && ttl <= time.Hour.Milliseconds(), "%s: it lives for %d ms, and not for ever", by, ttl)
				}

				require.NoError(t, s.Reset(t.Context(), []limiter.Charge{charge(q, "key", 1)}), by)
				assert.Equal(t, "0", server.MustDo("EXISTS", name), "%s: a reset makes it a counter", by)
				assert.Equal(t, q.Capacity()-1, decideOne(t, s, q, "key", 1).Remaining, by)
			}
		}
	}
}

// What is stored is what a version means. If this fails, the format has changed: give it
// another version in counters.Format.
func TestTheFormatIsThatOfItsVersion(t *testing.T) {
	_, client := startRedis(t)
	clock := clockAt(0)
	s := onClock(t, clock, client, forgetting)
	want := map[limiter.Algorithm]string{
		limiter.SlidingCounter: "0500000000000024400000008074d2ea41000000000000f03f" + "000089d7ae7c194300000000000008400000000000000000" + "04684d39b77c1943",
		limiter.TokenBucket:    "010000000000002440000000002a75b541000000000000f03f" + "000089d7ae7c194300000080df17d0410000000000000000" + "00f4c559b07c1943",
		limiter.LeakyBucket:    "020000000000002640000000002a75b541000000000000f03f" + "000089d7ae7c194300000080df17d0410000000000000000" + "00f4c559b07c1943",
		limiter.FixedWindow:    "0300000000000024400000008074d2ea410000000000000000" + "000089d7ae7c194300000000000008400000000000000000" + "00d8fedeb37c1943",
		limiter.SlidingLog: "0400000000000024400000008074d2ea410000000000000000" + "000089d7ae7c194300000000000008400000000000000000" + "00d8fedeb37c1943" +
			"000089d7ae7c19430000000000000840",
	}
	for _, a := range everyAlgorithm {
		q := quotaOf(t, "rule", limiter.PerHour(10).With(a))
		decideOne(t, s, q, "key "+a.String(), 3)
		value, err := client.Get(t.Context(), nameOf(s, q, "key "+a.String())).Bytes()
		require.NoError(t, err)
		assert.Equal(t, want[a], hex.EncodeToString(value), "%v", a)
	}
	for _, tt := range []struct {
		limit limiter.Limit
		want  string
	}{
		{limiter.PerHour(10).With(limiter.TokenBucket), "010000000000002440000000002a75b541000000000000f03f" + "000089d7ae7c194300000080df17d0410000000000000000" + "00f4c559b07c1943" +
			"000089d7ae7c194300000080df17d041"},
		{limiter.PerHour(11).With(limiter.SlidingLog), "0400000000000026400000008074d2ea410000000000000000" + "000089d7ae7c194300000000000008400000000000000000" +
			"0000000000000000" + "000000000000f03f" + "000089d7ae7c19430000000000000840"},
	} {
		q := quotaOf(t, "settles", tt.limit)
		q.Settles = true
		decideOne(t, s, q, tt.limit.String(), 3)
		value, err := client.Get(t.Context(), nameOf(s, q, tt.limit.String())).Bytes()
		require.NoError(t, err)
		assert.Equal(t, tt.want, hex.EncodeToString(value), "%v", tt.limit)
	}
	log, window := quotaOf(t, "both", limiter.PerHour(10)), quotaOf(t, "both", limiter.PerMinute(10).With(limiter.FixedWindow))
	decideOne(t, s, log, "key", 3)
	decideOne(t, s, window, "key", 1)
	value, err := client.Get(t.Context(), nameOf(s, log, "key")).Bytes()
	require.NoError(t, err)
	assert.Equal(t, "ff000000000000000000d8fedeb37c194303000000000000244000000000389c8c410000000000000000000089d7ae7c194300000000000010400000000000000000000000000000000000000000000000000400000000000024400000008074d2ea410000000000000000000089d7ae7c194300000000000010400000000000000000000089d7ae7c19430000000000004040000089d7ae7c19430000000000000840000089d7ae7c1943000000000000f03f", hex.EncodeToString(value))
	assert.Equal(t, "3", counters.Format)
}

// A batch may be larger than maxBatch by a caller's charges.
func TestTheLargestBatchIsDecided(t *testing.T) {
	t.Parallel()
	server, client := startRedis(t)
	s := forgetful(client)
	const most = 1000
	for _, l := range samples {
		q := quotaOf(t, l.String(), l)
		var charges []limiter.Charge
		for _, key := range keysOf(most) {
			charges = append(charges, charge(q, key, 3))
		}
		for i, d := range sendAll(t, s, take, charges) {
			require.Equal(t, q.Capacity()-3, d.Remaining, "%v: charge %d of many", l.Algorithm, i)
			charges[i].Decision = d
		}
		for i, d := range sendAll(t, s, settle, refunds(charges...)) {
			require.Equal(t, q.Capacity(), d.Remaining, "%v: charge %d of many", l.Algorithm, i)
		}
		for i := range charges {
			charges[i] = charge(quotaOf(t, fmt.Sprint(l, "rule ", i), l), "key", 4)
		}
		for i, d := range sendAll(t, s, take, charges) {
			require.Equal(t, q.Capacity()-4, d.Remaining, "%v: charge %d of as many rules", l.Algorithm, i)
		}
	}
	assert.Equal(t, fmt.Sprint(most*len(samples)), server.MustDo("DBSIZE"))
}

// neededCommands are all that a user of Redis must be allowed, besides what go-redis does
// to log in.
var neededCommands = []string{"eval", "evalsha", "time", "mget", "exists", "getrange", "set", "setrange", "del", "pexpire", "pttl",
	"zadd", "zcount", "zrem", "zscore", "zremrangebyscore", "zrangebyscore"}

// everything is done with charges of all algorithms: takes, refusals, looks, changes of limit,
// give-backs, resets, repairs of an expiry that an admin took away, and slots beside a long log.
func everything(t *testing.T, s *store, admin *redistest.Server) error {
	t.Helper()
	for i, l := range samples {
		changed := samples[(i+1)%len(samples)]
		changed.Events = 7
		rule := fmt.Sprint("rule-", i)
		before, after := quotaOf(t, rule, l), quotaOf(t, rule, changed)
		for _, c := range []limiter.Charge{
			charge(before, "key", 4), charge(before, "key", 8), charge(before, "key", 0), charge(after, "key", 0), charge(after, "key", 9), charge(after, "key", 2),
		} {
			if err := s.Decide(t.Context(), []limiter.Charge{c}); err != nil {
				return err
			}
			admin.MustDo("PERSIST", nameOf(s, before, "key"))
		}
		if err := s.change(t.Context(), settle, refunds(charge(before, "key", 1)), []int{0}); err != nil {
			return err
		}
		if err := s.Reset(t.Context(), []limiter.Charge{charge(before, "key", 1)}); err != nil {
			return err
		}
	}
	log := quotaOf(t, "log", samples[len(samples)-1])
	charges := []limiter.Charge{charge(concurrency(t, "slots", 1), "key", 1), charge(log, "key", 1)}
	for range 2 { // the second is refused
		if err := s.Decide(t.Context(), charges); err != nil {
			return err
		}
	}
	end(t, s, charges[0].Quota, "key", limiter.Decision{})
	for range 1000 {
		if s.slots.close() {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the slot is not released")
}

// as is a store whose user may run these commands, on keys that match the patterns.
func as(t *testing.T, server *redistest.Server, commands []string, patterns ...string) *store {
	t.Helper()
	rule := []string{"ACL", "SETUSER", "weir", "reset", "on", ">password"}
	for _, c := range commands {
		rule = append(rule, "+"+c)
	}
	for _, p := range patterns {
		rule = append(rule, "~"+p)
	}
	server.MustDo(rule...)
	return forgetful(closeAfter(t, redis.NewClient(&redis.Options{
		Addr: server.Addr, Username: "weir", Password: "password", MaxRetries: -1, DisableIdentity: true,
	})))
}

func TestAUserNeedsFewCommandsAndTheKeysOfThePrefix(t *testing.T) {
	t.Parallel()
	server, _ := startRedis(t)
	s := as(t, server, neededCommands, "weir:*")
	require.NoError(t, everything(t, s, server))
	assert.Empty(t, server.MustDo("ACL", "LOG"), "something was refused")

	for _, missing := range neededCommands {
		var others []string
		for _, c := range neededCommands {
			if c != missing {
				others = append(others, c)
			}
		}
		server.MustDo("SCRIPT", "FLUSH")
		server.MustDo("FLUSHALL")
		assert.Error(t, everything(t, as(t, server, others, "weir:*"), server), "%s is not needed, or its absence is not noticed", missing)
	}
}

// The most is what docs/redis.md says: some servers make room for twice a log.
func TestACounterTakesLittleMemory(t *testing.T) {
	server, client := startRedis(t)
	s := forgetful(client)
	for _, tt := range []struct {
		limit limiter.Limit
		cost  int64
		most  int64
	}{
		{samples[0], 3, 220},
		{samples[limiter.TokenBucket], 3, 220},
		{samples[limiter.LeakyBucket], 3, 220},
		{samples[limiter.FixedWindow], 3, 220},
		{samples[limiter.SlidingLog], 1, 240},
		{samples[limiter.SlidingLog], 10, 560},
		{limiter.PerHour(100).With(limiter.SlidingLog), 100, 3420},
		{limiter.PerHour(10_000).With(limiter.SlidingLog), 10_000, 320_220},
	} {
		server.MustDo("FLUSHALL")
		q := quotaOf(t, "search", tt.limit)
		for range min(tt.cost, 100) {
			ask(t, s, take, charge(q, "key", max(1, tt.cost/100)))
		}
		bytes := integer(t, server.MustDo("MEMORY", "USAGE", nameOf(s, q, "key")))
		t.Logf("%v, %d taken: %d bytes", tt.limit, tt.cost, bytes)
		assert.LessOrEqual(t, bytes, tt.most, "%v with %d taken", tt.limit, tt.cost)
	}
}

func TestAFullServerTakesNothingAndIsUsedAgainWhenThereIsRoom(t *testing.T) {
	server, client := startRedis(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	s := forgetful(client)
	var charges []limiter.Charge
	for _, l := range samples {
		charges = append(charges, charge(quotaOf(t, l.String(), l), "key", 2))
	}
	require.NoError(t, s.Decide(t.Context(), charges))

	filled := 0
	for ; ; filled++ {
		if _, err := server.Do("SET", fmt.Sprint("filler ", filled), strings.Repeat("x", 10_000)); err != nil {
			require.ErrorContains(t, err, "OOM")
			break
		}
	}
	server.MustDo("CONFIG", "SET", "maxmemory", "3mb") // as what a connection needs comes and goes
	size := server.MustDo("DBSIZE")
	unseen := make([]limiter.Charge, len(charges))
	for i := range charges {
		require.ErrorContains(t, s.Decide(t.Context(), charges[i:i+1]), "OOM", "%v", samples[i].Algorithm)
		unseen[i] = charge(charges[i].Quota, "unseen", 1)
		require.ErrorContains(t, s.Decide(t.Context(), unseen[i:i+1]), "OOM", "%v", samples[i].Algorithm)
	}
	require.ErrorContains(t, s.Decide(t.Context(), charges), "OOM")
	assert.Equal(t, size, server.MustDo("DBSIZE"))
	for _, c := range charges {
		assert.Equal(t, c.Quota.Capacity()-2, decideOne(t, s, c.Quota, "key", 0).Remaining, "an error takes nothing; and looks need no memory")
		assert.False(t, decideOne(t, s, c.Quota, "key", c.Quota.Capacity()).Allowed, "nor do refusals")
	}
	for ; filled > 0; filled-- {
		server.MustDo("DEL", fmt.Sprint("filler ", filled-1))
	}
	for i, d := range decide(t, s, charges...) {
		assert.Equal(t, charges[i].Quota.Capacity()-4, d.Remaining, "%v", samples[i].Algorithm)
	}
}

// A value of the right size under one of Weir's names can say anything.
func TestACorruptLogIsAnAnswerAndNoPanic(t *testing.T) {
	server, client := startRedis(t)
	s := forgetful(client)
	q := quotaOf(t, "log", limiter.PerMinute(5).With(limiter.SlidingLog))
	name := s.names.Name(s.names.Digest("key"), q)
	for _, level := range []int64{-1, -1 << 40, 6, 1 << 40} {
		value := counters.AppendQuota(nil, q, 0)
		for _, n := range []int64{serverMillis(t, server) * 1000, level, 0, 0} {
			value = counters.AppendNumber(value, n)
		}
		require.NoError(t, client.Set(context.Background(), name, value, time.Minute).Err())
		for cost := range int64(3) {
			_ = s.Decide(t.Context(), []limiter.Charge{{Quota: q, Key: "key", Cost: cost}})
		}
	}
}

// standIn is struct.lua where the server's own struct is not used.
func standIn(t testing.TB) string { return patch(t, structLua, "rawget(_G, 'struct')", "nil") }

func TestTheStandInForStructIsWhatStructIs(t *testing.T) {
	_, client := startRedis(t)
	script := "local theirs = struct\n" + standIn(t) + `
local format, bytes = ARGV[1], ARGV[2]
local want = {theirs.unpack(format, bytes, 3)}
local got = {struct.unpack(format, bytes, 3)}
for i = 1, #format do
  if want[i] ~= got[i] then
    return 'unpack ' .. i .. ' is ' .. tostring(got[i]) .. ', want ' .. tostring(want[i])
  end
end
return theirs.pack(format, unpack(want)) == struct.pack(format, unpack(want)) and '' or 'pack'`
	rapid.Check(t, func(t *rapid.T) {
		codes := rapid.SliceOfN(rapid.SampledFrom([]string{"B", "H", "d"}), 1, 12).Draw(t, "codes")
		bytes := []byte("xx")
		for _, code := range codes {
			switch code {
			case "B":
				bytes = append(bytes, rapid.Byte().Draw(t, "byte"))
			case "H":
				bytes = binary.LittleEndian.AppendUint16(bytes, rapid.Uint16().Draw(t, "uint16"))
			case "d":
				n := rapid.OneOf(rapid.Int64Range(-1<<53, 1<<53), rapid.SampledFrom([]int64{0, 1, -1, 1 << 53, 1 << 32, 1<<32 - 1})).Draw(t, "double")
				bytes = counters.AppendNumber(bytes, n)
			}
		}
		said, err := client.Eval(context.Background(), script, nil, "<"+strings.Join(codes, ""), bytes).Text()
		require.NoError(t, err)
		require.Empty(t, said)
	})
}
