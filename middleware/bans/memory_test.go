package bans_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
)

// What every list promises is tried in package redisbans, on this one too.

func TestMain(m *testing.M) { leak.VerifyMain(m) }

var _ bans.List = (*bans.Memory)(nil)

var hourly = bans.Escalation{Ban: time.Hour, Factor: 1, Max: time.Hour}

func newMemory(t testing.TB, c bans.Options) *bans.Memory {
	t.Helper()
	m, err := bans.New(c)
	require.NoError(t, err)
	return m
}

// unban lifts a ban that there is, or lifts nothing.
func unban(t testing.TB, list bans.List, key string, want bool) {
	t.Helper()
	lifted, err := list.Unban(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, want, lifted, "there was a ban")
}

func isBanned(m *bans.Memory, key string) bool {
	_, ok := m.Find(key)
	return ok
}

func TestOptionsAreChecked(t *testing.T) {
	for _, n := range []int{-1, 10_000_001} {
		_, err := bans.New(bans.Options{MaxBans: n, Secret: []byte("short")})
		assert.ErrorContains(t, err, fmt.Sprintf("MaxBans is %d: it must be from 1 to 10000000, or 0 for 100000", n))
		assert.ErrorContains(t, err, "bans: Secret has 5 bytes")
		assert.Panics(t, func() { bans.Must(nil, err) })
	}
	newMemory(t, bans.Options{MaxBans: 1})
	newMemory(t, bans.Options{MaxBans: 10_000_000})
}

func TestABanEndsOnTheNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, bans.Options{})
		require.NoError(t, m.Ban(t.Context(), "key", time.Second))
		time.Sleep(time.Second - 1)
		assert.True(t, isBanned(m, "key"))
		time.Sleep(time.Nanosecond)
		assert.False(t, isBanned(m, "key"))
		assert.True(t, m.Empty())
		assert.Zero(t, m.Stats())
	})
}

func TestRepetitionsAreForgottenOnTheNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, bans.Options{})
		for _, wait := range []time.Duration{2*time.Hour - 1, 2 * time.Hour} {
			ban, err := m.Escalate(t.Context(), "key", "rule", hourly)
			require.NoError(t, err)
			assert.Equal(t, time.Now().Add(time.Hour).UnixNano(), ban.Until.UnixNano())
			time.Sleep(wait)
		}
		ban, err := m.Escalate(t.Context(), "key", "rule", hourly)
		require.NoError(t, err)
		assert.Equal(t, 1, ban.Times)
		assert.Zero(t, m.Stats().Forgotten, "in time is not before it")
	})
}

// A request's memory is used again when it is over.
func TestAKeyIsCloned(t *testing.T) {
	m := newMemory(t, bans.Options{})
	for _, ban := range []func(key string) error{
		func(key string) error { return m.Ban(t.Context(), key, 0) },
		func(key string) error { _, err := m.Escalate(t.Context(), key, key, hourly); return err },
		func(key string) error { return m.Restore(bans.Ban{Key: key, Rule: key}, 0) },
	} {
		long := strings.Repeat("x", 1<<20)
		require.NoError(t, ban(long[:200]))
		list, err := m.All(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, long[:200], list[0].Key)
		assert.NotSame(t, unsafe.StringData(long), unsafe.StringData(list[0].Key))
		if list[0].Rule != "" {
			assert.NotSame(t, unsafe.StringData(long), unsafe.StringData(list[0].Rule))
		}
		unban(t, m, long[:200], true)
	}
}

// Who is banned chooses the key, but not whose it is.
func TestALongKeyIsHeldAsADigestThatNobodyElseCanHave(t *testing.T) {
	m := newMemory(t, bans.Options{})
	long := strings.Repeat("x", 10<<20)
	require.NoError(t, m.Ban(t.Context(), long, 0))
	ban, ok := m.Find(long)
	require.True(t, ok)
	assert.Empty(t, ban.Key)
	assert.Equal(t, keyfunc.NewDigester(nil).Digest(long).String(), ban.Digest)
	for _, like := range []string{ban.Digest, "\x00" + ban.Digest} {
		assert.False(t, isBanned(m, like), "a key that looks like it is another")
		require.NoError(t, m.Ban(t.Context(), like, 0))
		unban(t, m, like, true)
		assert.True(t, isBanned(m, long))
	}
	unban(t, m, ban.Digest, true) // what is listed can be lifted
	assert.False(t, isBanned(m, long))
	assert.True(t, m.Empty())
}

func TestTheDigestOfALongKeyIsUnderTheSecret(t *testing.T) {
	secret := []byte("0123456789abcdef")
	m := newMemory(t, bans.Options{Secret: secret})
	long := strings.Repeat("x", 257)
	digest := keyfunc.NewDigester(secret).Digest(long)
	require.NoError(t, m.Ban(t.Context(), long, 0))
	ban, ok := m.Find(digest.Key())
	require.True(t, ok, "it is found by its digest")
	assert.Equal(t, bans.Ban{Digest: digest.String(), Since: ban.Since}, ban)
	unban(t, m, digest.Key(), true)
	assert.True(t, m.Empty())
}

// It would be in the list, and no request would meet it.
func TestAListOfKeysRefusesABanOfADigest(t *testing.T) {
	m := newMemory(t, bans.Options{})
	assert.ErrorIs(t, m.Ban(t.Context(), keyfunc.NewDigester(nil).Digest("key").Key(), 0), bans.ErrDigest)
	assert.True(t, m.Empty())
}

func TestMemoryIsBoundedAndSaysWhatGaveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		m := newMemory(t, bans.Options{MaxBans: most})
		for i := range 3 * most {
			_, err := m.Escalate(t.Context(), fmt.Sprint("a", i), "rule", hourly)
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, bans.Stats{Bans: most, Evicted: 2 * most}, m.Stats())
		time.Sleep(time.Hour)
		assert.False(t, m.Empty())
		for range 10 {
			isBanned(m, "key")
		}
		assert.True(t, m.Empty(), "what is over is noticed when something is looked for")
		assert.Equal(t, bans.Stats{Remembered: most, Evicted: 2 * most}, m.Stats())
		for i := range most / 2 {
			require.NoError(t, m.Ban(t.Context(), fmt.Sprint("b", i), 0))
		}
		assert.Equal(t, bans.Stats{Bans: most / 2, Remembered: most / 2, Evicted: 2 * most, Forgotten: most / 2}, m.Stats())
		time.Sleep(time.Hour)
		for range most {
			unban(t, m, "nobody", false)
		}
		assert.Equal(t, bans.Stats{Bans: most / 2, Evicted: 2 * most, Forgotten: most / 2}, m.Stats())
	})
}

func TestARepetitionFindsNoRoomAmongBans(t *testing.T) {
	m := newMemory(t, bans.Options{MaxBans: 1})
	_, err := m.Escalate(t.Context(), "key", "rule", hourly)
	require.NoError(t, err)
	require.NoError(t, m.Restore(bans.Ban{Key: "over", Rule: "rule", Until: time.Now().Add(-time.Minute), Times: 3}, time.Hour))
	assert.True(t, isBanned(m, "key"))
	assert.Equal(t, bans.Stats{Bans: 1, Forgotten: 1}, m.Stats())
}

func TestWhatEachTellsCanBeRestored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from, to := newMemory(t, bans.Options{}), newMemory(t, bans.Options{})
		for i := range rapid.IntRange(0, 10).Draw(rt, "bans") {
			key := rapid.SampledFrom([]string{fmt.Sprint(i), strings.Repeat("long", 100+i)}).Draw(rt, "key")
			until := time.Duration(rapid.IntRange(-3, 3).Draw(rt, "until")) * time.Hour
			b := bans.Ban{Key: key, Rule: rapid.SampledFrom([]string{"", "rule"}).Draw(rt, "rule"), Times: rapid.IntRange(0, 3).Draw(rt, "times")}
			if until != 0 {
				b.Until = time.Now().Add(until)
			}
			require.NoError(rt, from.Restore(b, 2*time.Hour+time.Minute))
		}
		each := func(m *bans.Memory) map[string]string {
			all := map[string]string{}
			m.Each(func(b bans.Ban, remember time.Duration) {
				all[b.ID()] = fmt.Sprint(b.Rule, b.Times, b.Until.Round(time.Second).UTC().Format(time.RFC3339), remember)
			})
			return all
		}
		from.Each(func(b bans.Ban, remember time.Duration) { require.NoError(rt, to.Restore(b, remember)) })
		assert.Equal(rt, each(from), each(to))
		assert.Equal(rt, from.Stats(), to.Stats())
	})
}

func TestRestoreRefusesWhatNoListTells(t *testing.T) {
	m := newMemory(t, bans.Options{})
	for _, err := range []error{
		m.Restore(bans.Ban{Times: -1}, 0),
		m.Restore(bans.Ban{}, -1),
		m.Restore(bans.Ban{Digest: "none"}, 0),
		m.Restore(bans.Ban{}, bans.MaxDuration+1),
		m.Restore(bans.Ban{Until: time.Now().Add(bans.MaxDuration + time.Hour)}, 0),
	} {
		assert.Error(t, err)
	}
	assert.True(t, m.Empty())
	require.NoError(t, m.Ban(t.Context(), "key", 0))
	require.NoError(t, m.Restore(bans.Ban{Key: "key", Until: time.Unix(1, 0)}, time.Hour))
	assert.Zero(t, m.Stats(), "what is long over replaces what there is with nothing")
}

func TestFindAllocatesNothing(t *testing.T) {
	m := newMemory(t, bans.Options{})
	long := strings.Repeat("x", 300)
	find := func() {
		m.Find("key")
		m.Find("other")
		m.Empty()
	}
	assert.Zero(t, testing.AllocsPerRun(100, find))
	require.NoError(t, m.Ban(t.Context(), "key", time.Hour))
	assert.Zero(t, testing.AllocsPerRun(100, find))
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { m.Find(long) }), 3.0, "its bytes, and the digest")
}

func TestCountingBansAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, bans.Options{})
		for i := range 5000 {
			require.NoError(t, m.Ban(t.Context(), fmt.Sprint("short ", i), time.Minute))
			require.NoError(t, m.Ban(t.Context(), fmt.Sprint("long ", i), time.Hour))
		}
		assert.Equal(t, 10_000, m.Count())
		assert.Zero(t, testing.AllocsPerRun(100, func() { m.Count() }))
		time.Sleep(time.Minute)
		assert.Equal(t, 5000, m.Count(), "without a lookup of those that ended")
	})
}

func TestBansGoOnUnderLoad(t *testing.T) {
	const most = 50
	m := newMemory(t, bans.Options{MaxBans: most})
	quick := bans.Escalation{Ban: time.Millisecond, Factor: 2, Max: 4 * time.Millisecond}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				key := fmt.Sprint(rand.IntN(2 * most))
				switch rand.IntN(8) {
				case 0:
					assert.NoError(t, m.Ban(t.Context(), key, time.Duration(1+rand.IntN(5_000_000))))
				case 1:
					_, err := m.Unban(t.Context(), key)
					assert.NoError(t, err)
				case 2:
					_, err := m.Escalate(t.Context(), key, "rule", quick)
					if err != nil {
						assert.ErrorIs(t, err, bans.ErrFull)
					}
				case 3:
					list, _ := m.All(t.Context())
					assert.LessOrEqual(t, len(list), most)
				case 4:
					m.Each(func(b bans.Ban, remember time.Duration) { assert.NotEmpty(t, b.ID()) })
				default:
					if b, ok := m.Find(key); ok {
						assert.Equal(t, key, b.Key)
					}
				}
			}
		})
	}
	wg.Wait()
	s := m.Stats()
	assert.LessOrEqual(t, s.Bans+s.Remembered, most)
	list, err := m.All(t.Context())
	require.NoError(t, err)
	for _, b := range list {
		_, err := m.Unban(t.Context(), b.Key) // which may be over
		require.NoError(t, err)
	}
	await := time.Now().Add(30 * time.Second)
	for !m.Empty() && time.Now().Before(await) {
		m.Find("key")
	}
	assert.True(t, m.Empty())
}

func TestAListTakesAKeyAsItsFunctionReturnsIt(t *testing.T) {
	for _, class := range []keyfunc.Class{keyfunc.Own, keyfunc.Shared, keyfunc.InDoubt} {
		m := newMemory(t, bans.Options{})
		require.NoError(t, m.Ban(t.Context(), class.Mark("10.0.0.1"), 0))
		for _, key := range []string{"10.0.0.1", class.Mark("10.0.0.1")} {
			ban, ok := m.Find(key)
			assert.True(t, ok, "a ban that no request meets")
			assert.Equal(t, "10.0.0.1", ban.Key)
		}
		lifted, err := m.Unban(t.Context(), class.Mark("10.0.0.1"))
		require.NoError(t, err)
		assert.True(t, lifted)
		ban, err := m.Escalate(t.Context(), class.Mark("10.0.0.1"), "login", bans.Escalation{Ban: time.Minute, Factor: 1, Max: time.Minute})
		require.NoError(t, err)
		assert.Equal(t, "10.0.0.1", ban.Key)
	}
}
