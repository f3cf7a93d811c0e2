package redisbans_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/redisbans"
)

// A banWorld is where a list is tried. Time passes in it without anybody waiting.
type banWorld struct {
	list bans.List
	pass func(time.Duration)
	id   func(key string) string // what the list has for a key
}

// banClaims hold of every list, beside what compareWithModel says. Real time passes as well where Redis is, so durations are
// hours, and what is equal is so within a minute.
var banClaims = []struct {
	claim string
	max   int // MaxBans
	check func(t *testing.T, w banWorld)
}{
	{"mistakes are errors and ban nobody", 0, func(t *testing.T, w banWorld) {
		assert.ErrorContains(t, w.list.Ban(t.Context(), "key", -1), "-1ns")
		assert.ErrorContains(t, w.list.Ban(t.Context(), "key", bans.MaxDuration+1), "8784h0m0.000000001s")
		_, err := w.list.Escalate(t.Context(), "key", "rule", bans.Escalation{Ban: time.Hour, Factor: 0.5, Max: time.Hour})
		assert.ErrorContains(t, err, "Factor is 0.5")
		_, err = w.list.Escalate(t.Context(), "key", "", doubling)
		assert.ErrorContains(t, err, "name of its rule")
		assert.True(t, w.list.Empty())
	}},
	{"all bans are sorted by their end, and lifted by what is listed", 0, func(t *testing.T, w banWorld) {
		for key, d := range map[string]time.Duration{"c": 3 * time.Hour, "never": 0, "a": time.Hour, "also never": 0, "over": time.Minute} {
			require.NoError(t, w.list.Ban(t.Context(), key, d))
		}
		escalated(t, w, "b", "rule", bans.Escalation{Ban: 2 * time.Hour, Factor: 1, Max: 2 * time.Hour})
		w.pass(5 * time.Minute)
		list := all(t, w.list)
		var got []string
		for _, ban := range list {
			got = append(got, ban.ID())
		}
		last := []string{w.id("also never"), w.id("never")}
		if last[0] > last[1] {
			last[0], last[1] = last[1], last[0]
		}
		assert.Equal(t, append([]string{w.id("a"), w.id("b"), w.id("c")}, last...), got)
		for _, ban := range list {
			unban(t, w.list, ban.ID(), true)
		}
		assert.Empty(t, all(t, w.list))
		assert.True(t, w.list.Empty())
	}},
	{"any key can be banned", 0, func(t *testing.T, w banWorld) {
		long := strings.Repeat("long ", 100_000)
		keys := []string{
			"", " ", "\x00", "\n", "\xff", "größe", "{}", "version", "sha256:", "a b c", "203.0.113.7",
			long, long + "er", strings.Repeat("x", 256), strings.Repeat("x", 257), w.id(long), w.id("203.0.113.7") + " ",
		}
		for i, key := range keys {
			for _, later := range keys[i:] {
				free(t, w, later)
			}
			require.NoError(t, w.list.Ban(t.Context(), key, time.Hour))
			banned(t, w, key)
		}
		list := all(t, w.list)
		assert.Len(t, list, len(keys))
		for _, ban := range list {
			assert.LessOrEqual(t, len(ban.ID()), 256)
		}
		for _, key := range keys {
			unban(t, w.list, key, true)
			unban(t, w.list, key, false)
			free(t, w, key)
		}
		assert.True(t, w.list.Empty())
	}},
	{"at the cap, those give way that are only remembered", 2, func(t *testing.T, w banWorld) {
		escalated(t, w, "remembered", "rule", doubling)
		w.pass(time.Hour)
		escalated(t, w, "a", "rule", doubling)
		escalated(t, w, "b", "rule", doubling)
		banned(t, w, "a")
		banned(t, w, "b")
		assert.Len(t, all(t, w.list), 2)
	}},
	{"at the cap, the ban by escalation gives way that ends soonest", 3, func(t *testing.T, w banWorld) {
		require.NoError(t, w.list.Ban(t.Context(), "by hand", time.Hour))
		escalated(t, w, "long", "rule", bans.Escalation{Ban: 9 * time.Hour, Factor: 1, Max: 9 * time.Hour})
		escalated(t, w, "short", "rule", bans.Escalation{Ban: 5 * time.Hour, Factor: 1, Max: 9 * time.Hour})
		escalated(t, w, "new", "rule", bans.Escalation{Ban: 2 * time.Hour, Factor: 1, Max: 9 * time.Hour})
		gaveWay(t, w, "short")
		banned(t, w, "by hand")
		banned(t, w, "long")
		require.NoError(t, w.list.Ban(t.Context(), "newer", 0))
		gaveWay(t, w, "new")
		banned(t, w, "long")
		require.NoError(t, w.list.Ban(t.Context(), "newest", 6*time.Hour))
		gaveWay(t, w, "long")

		// All are by hand now.
		_, err := w.list.Escalate(t.Context(), "refused", "rule", doubling)
		assert.ErrorIs(t, err, bans.ErrFull)
		free(t, w, "refused")
		require.NoError(t, w.list.Ban(t.Context(), "a", 0))
		gaveWay(t, w, "by hand")
		require.NoError(t, w.list.Ban(t.Context(), "b", 0))
		gaveWay(t, w, "newest")

		// None has an end now.
		assert.ErrorIs(t, w.list.Ban(t.Context(), "c", 0), bans.ErrFull)
		free(t, w, "c")
		require.NoError(t, w.list.Ban(t.Context(), "a", time.Hour), "who is in the list already needs no room")
		for _, key := range []string{"newer", "a", "b"} {
			banned(t, w, key)
		}
	}},
	{"of concurrent escalations one bans", 0, func(t *testing.T, w banWorld) {
		for round := range 3 {
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					ban, err := w.list.Escalate(t.Context(), "key", "rule", doubling)
					assert.NoError(t, err)
					assert.Equal(t, round+1, ban.Times)
				})
			}
			wg.Wait()
			assert.Equal(t, round+1, banned(t, w, "key").Times)
			w.pass(time.Hour << round)
		}
	}},
}

// doubling begins with an hour.
var doubling = bans.Escalation{Ban: time.Hour, Factor: 2, Max: 10 * time.Hour}

func banned(t testing.TB, w banWorld, key string) bans.Ban {
	t.Helper()
	ban, ok := w.list.Find(key)
	require.True(t, ok, "%.40q is not banned", key)
	return ban
}

func free(t testing.TB, w banWorld, key string) {
	t.Helper()
	ban, ok := w.list.Find(key)
	require.False(t, ok, "%.40q is banned: %+v", key, ban)
	require.Zero(t, ban)
}

// gaveWay is free when it has come round what was dropped.
func gaveWay(t testing.TB, w banWorld, key string) {
	t.Helper()
	all(t, w.list)
	free(t, w, key)
}

func all(t testing.TB, list bans.List) []bans.Ban {
	t.Helper()
	known, err := list.All(t.Context())
	require.NoError(t, err)
	return known
}

func escalated(t testing.TB, w banWorld, key, rule string, e bans.Escalation) bans.Ban {
	t.Helper()
	ban, err := w.list.Escalate(t.Context(), key, rule, e)
	require.NoError(t, err)
	return ban
}

// compareWithModel does to a list and to a few lines what comes to mind, and empties it.
func compareWithModel(t *testing.T, rt *rapid.T, w banWorld) {
	type known struct {
		made            time.Time     // by the clock, which goes on meanwhile
		until, remember time.Duration // in time that has passed; until -1: never
		times           int
		byHand          bool
	}
	const never = time.Duration(-1)
	model, now := map[string]known{}, time.Duration(0)
	inForce := func(k known) bool { return k.until == never || now < k.until }
	hours := rapid.Map(rapid.IntRange(1, 30), func(n int) time.Duration { return time.Duration(n) * time.Hour })
	keys := []string{"a", "b", "c"}
	key := rapid.SampledFrom(keys)
	rt.Repeat(map[string]func(*rapid.T){
		"": func(rt *rapid.T) {
			count := 0
			for _, key := range keys {
				k, ok := model[key]
				ok = ok && inForce(k)
				ban, found := w.list.Find(key)
				if found != ok {
					rt.Fatalf("%s is banned: %t, the model says %t of %+v at %v", key, found, ok, k, now)
				}
				if !ok {
					continue
				}
				count++
				assert.Equal(rt, k.times, ban.Times, key)
				assert.Equal(rt, k.byHand, ban.Rule == "", key)
				assert.Equal(rt, w.id(key), ban.ID())
				assert.Equal(rt, k.until == never, ban.Until.IsZero(), key)
				if k.until != never && ban.Until.Sub(k.made.Add(k.until-now)).Abs() > time.Minute {
					rt.Fatalf("%s is banned until %v, the model says for %v", key, ban.Until, k.until-now)
				}
			}
			assert.Equal(rt, count == 0, w.list.Empty())
		},
		"ban": func(rt *rapid.T) {
			key, d := key.Draw(rt, "key"), rapid.OneOf(hours, rapid.Just(time.Duration(0))).Draw(rt, "for")
			k, ok := model[key]
			if !ok || k.until != never && now >= k.until+k.remember {
				k = known{}
			}
			k.made, k.byHand = time.Now(), true
			if k.until = now + d; d == 0 {
				k.until = never
			}
			model[key] = k
			require.NoError(rt, w.list.Ban(t.Context(), key, d))
		},
		"escalate": func(rt *rapid.T) {
			key := key.Draw(rt, "key")
			e := bans.Escalation{Ban: hours.Draw(rt, "first"), Factor: rapid.Float64Range(1, 4).Draw(rt, "factor")}
			e.Max = e.Ban + hours.Draw(rt, "more")
			k, ok := model[key]
			if !ok || !inForce(k) {
				times := 1
				if ok && now < k.until+k.remember {
					times = k.times + 1
				}
				model[key] = known{made: time.Now(), until: now + e.Duration(times), remember: e.Max, times: times}
			}
			ban, err := w.list.Escalate(t.Context(), key, "rule", e)
			require.NoError(rt, err)
			found, _ := w.list.Find(key)
			assert.Equal(rt, model[key].times, ban.Times)
			assert.Equal(rt, found.Rule, ban.Rule)
			assert.WithinDuration(rt, found.Until, ban.Until, time.Minute)
		},
		"unban": func(rt *rapid.T) {
			key := key.Draw(rt, "key")
			k, ok := model[key]
			delete(model, key)
			lifted, err := w.list.Unban(t.Context(), key)
			require.NoError(rt, err)
			assert.Equal(rt, ok && inForce(k), lifted)
		},
		"pass": func(rt *rapid.T) {
			d := hours.Draw(rt, "for")
			w.pass(d)
			now += d
		},
	})
	for _, key := range keys {
		_, err := w.list.Unban(t.Context(), key)
		require.NoError(rt, err)
	}
}

func TestBansInMemoryKeepTheClaims(t *testing.T) {
	for _, tt := range banClaims {
		t.Run(tt.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list, err := bans.New(bans.Options{MaxBans: tt.max})
				require.NoError(t, err)
				tt.check(t, banWorld{list, time.Sleep, func(key string) string { return idInMemory(t, key) }})
			})
		})
	}
}

func TestAListInRedisIsWhatAModelOfItSays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	list := readList(t, connect(t, server), redisbans.Options{}) // a first read has no times that passed
	pass := func(d time.Duration) { passInRedis(t, server, d, list) }
	rapid.Check(t, func(rt *rapid.T) { compareWithModel(t, rt, banWorld{list, pass, digest}) })
}

// idInMemory is the key that a Memory lists.
func idInMemory(t *testing.T, key string) string {
	list, err := bans.New(bans.Options{})
	require.NoError(t, err)
	require.NoError(t, list.Ban(t.Context(), key, 0))
	ban, _ := list.Find(key)
	return ban.ID()
}

func TestBansInRedisKeepTheClaims(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server)
	for _, secret := range []string{"", "a secret of 16 bytes"} {
		for _, tt := range banClaims {
			t.Run(fmt.Sprint(tt.claim, secret), func(t *testing.T) {
				server.MustDo("FLUSHALL")
				awaitNobody(t, client)
				list := readList(t, client, redisbans.Options{MaxBans: tt.max, Secret: []byte(secret)})
				id := func(key string) string { return keyfunc.NewDigester([]byte(secret)).Digest(key).String() }
				tt.check(t, banWorld{list, func(d time.Duration) { passInRedis(t, server, d, list) }, id})
			})
		}
	}
}

// passInRedis has time pass for what is in Redis, by moving all of it into the past, and for the
// copies of lists, which hear of it.
func passInRedis(t testing.TB, server *redistest.Server, d time.Duration, lists ...*redisbans.List) {
	t.Helper()
	const shift = `
		local by, clock = tonumber(ARGV[1]), redis.call('TIME')
		local all = redis.call('HGETALL', KEYS[1])
		for i = 1, #all, 2 do
			local r = cjson.decode(all[i + 1])
			if r.ends ~= 0 then
				r.ends, r.remembered = r.ends - by, r.remembered - by
				local score = redis.call('ZSCORE', KEYS[3], all[i])
				redis.call('ZADD', KEYS[3], string.format('%.0f', score < '0' and score + by or score - by), all[i])
			end
			all[i + 1] = cjson.encode(r)
			redis.call('HSET', KEYS[1], all[i], all[i + 1])
			local before = redis.call('GET', KEYS[2])
			redis.call('INCR', KEYS[2])
			local now = clock[1] .. string.format('%03d', clock[2] / 1000)
			redis.call('PUBLISH', ARGV[2], table.concat({before, redis.call('GET', KEYS[2]), now, all[i], all[i + 1]}, ' '))
		end`
	server.MustDo("EVAL", shift, "3", names[0], names[1], names[2], fmt.Sprint(d.Milliseconds()), "weir:5:{bans}:changes")
	for _, list := range lists {
		all(t, list)
	}
}
