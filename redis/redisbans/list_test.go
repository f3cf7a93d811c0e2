package redisbans

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// quietLog is for outages that tests make.
var quietLog = slog.New(slog.DiscardHandler)

func newList(t testing.TB, ctx context.Context, client redis.UniversalClient, o Options) *List {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quietLog
	}
	list, err := open(ctx, client, o, redistest.Patience)
	require.NoError(t, err)
	return list
}

// readList is newList, and waits until the list has been read.
func readList(t testing.TB, client redis.UniversalClient, o Options) *List {
	t.Helper()
	list := newList(t, t.Context(), client, o)
	awaitList(t, list)
	return list
}

// awaitList waits until a list knows what is in Redis, and hears of changes.
func awaitList(t testing.TB, list *List) {
	t.Helper()
	await(t, "a list to be read", func() bool {
		_, err := list.All(t.Context())
		return err == nil
	})
	await(t, "a list to hear of changes", func() bool { return hearers(t, list) > 0 })
}

// hearers is how many lists hear of changes to one.
func hearers(t testing.TB, list *List) (heard int64) {
	var mu sync.Mutex
	count := func(ctx context.Context, client *redis.Client) error {
		of, err := client.PubSubNumSub(ctx, list.redis.channel).Result()
		mu.Lock()
		defer mu.Unlock()
		heard += of[list.redis.channel]
		return err
	}
	var err error
	switch client := list.redis.Client.(type) {
	case *redis.Client:
		err = count(t.Context(), client)
	case *redis.ClusterClient:
		err = client.ForEachMaster(t.Context(), count)
	case *redis.Ring:
		err = client.ForEachShard(t.Context(), count)
	}
	require.NoError(t, err)
	return heard
}

func awaitBanned(t testing.TB, list *List, key string) bans.Ban {
	t.Helper()
	await(t, fmt.Sprintf("%q to be banned", key), func() bool { return isBanned(list, key) })
	ban, _ := list.Find(key)
	return ban
}

func awaitFree(t testing.TB, list *List, key string) {
	t.Helper()
	await(t, fmt.Sprintf("%q to be free", key), func() bool { return !isBanned(list, key) })
}

func isBanned(list *List, key string) bool {
	_, ok := list.Find(key)
	return ok
}

// never is a Poll that a test does not live to see.
const never = time.Hour

// unban lifts a ban that there is, or lifts nothing.
func unban(t testing.TB, list bans.List, key string, want bool) {
	t.Helper()
	lifted, err := list.Unban(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, want, lifted, "there was a ban")
}

func TestABanIsKnownInEveryProcess(t *testing.T) {
	t.Parallel()
	one, two, cluster := redistest.Start(t), redistest.Start(t), redistest.Cluster(t)
	for name, client := range map[string]redis.UniversalClient{
		"a server":  redis.NewClient(&redis.Options{Addr: one.Addr}),
		"a cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(cluster)}),
		"a ring":    redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr, "two": two.Addr}}),
	} {
		t.Run(name, func(t *testing.T) {
			closeAfter(t, client)
			o := Options{Prefix: strings.ReplaceAll(name, " ", "-"), Poll: never}
			here, there := readList(t, client, o), readList(t, client, o)
			await(t, "both to hear of changes", func() bool { return hearers(t, here) == 2 })
			require.NoError(t, here.Ban(t.Context(), "by hand", 0, bans.Reason("scrapes | the shop"), bans.By("ada")))
			begun := time.Now()
			ban, err := there.Escalate(t.Context(), "key", "rule", doubling)
			require.NoError(t, err)
			for _, list := range []*List{here, there} {
				got := awaitBanned(t, list, "by hand")
				assert.WithinDuration(t, begun, got.Since, 10*time.Second)
				got.Since = time.Time{}
				assert.Equal(t, bans.Ban{Digest: here.tag("by hand"), Reason: "scrapes | the shop", By: "ada"}, got)
				got = awaitBanned(t, list, "key")
				assert.WithinDuration(t, ban.Until, got.Until, 10*time.Second)
				assert.WithinDuration(t, ban.Since, got.Since, 10*time.Second)
				got.Until, got.Since = ban.Until, ban.Since
				assert.Equal(t, ban, got)
			}
			// A digest that is listed in one process is lifted in another.
			for _, ban := range all(t, here) {
				unban(t, there, ban.ID(), true)
			}
			awaitFree(t, here, "key")
			awaitFree(t, here, "by hand")
			assert.True(t, there.Empty())
		})
	}
}

func TestOfProcessesThatEscalateAtOnceOneBans(t *testing.T) {
	server := redistest.Start(t)
	var lists []*List
	for range 4 {
		lists = append(lists, readList(t, connect(t, server), Options{}))
	}
	for round := range 4 {
		got := make([]bans.Ban, 32)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				var err error
				got[i], err = lists[i%len(lists)].Escalate(t.Context(), "key", "rule", doubling)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		for _, ban := range got {
			assert.Equal(t, round+1, ban.Times)
			assert.WithinDuration(t, got[0].Until, ban.Until, 10*time.Second)
		}
		passInRedis(t, lists[0], time.Hour<<round)
		for _, list := range lists {
			assert.Empty(t, all(t, list))
		}
	}
}

// silently makes changes in Redis that no message announces.
func silently(t testing.TB, list *List, changes ...*change) {
	t.Helper()
	r := *list.redis
	r.channel = "elsewhere"
	_, err := r.exchange(t.Context(), position{cursor: "0"}, changes)
	require.NoError(t, err)
}

// banOf is a change that bans a key by hand.
func banOf(list *List, key string, d time.Duration) *change {
	return put(known{ban: bans.Ban{Key: list.tag(key), Until: time.Now().Add(d)}}, true)
}

func TestAMessageThatIsLostCostsAPoll(t *testing.T) {
	client := connect(t, redistest.Start(t))
	polling := readList(t, client, Options{Poll: minPoll})
	waiting := readList(t, client, Options{Poll: never})

	silently(t, polling, banOf(polling, "a", time.Hour))
	awaitBanned(t, polling, "a")
	silently(t, polling, &change{Op: "unban", Tag: polling.tag("a")}, banOf(polling, "b", time.Hour))
	awaitFree(t, polling, "a")
	awaitBanned(t, polling, "b")

	require.NoError(t, polling.Ban(t.Context(), "c", time.Hour))
	awaitBanned(t, waiting, "c")
	assert.True(t, isBanned(waiting, "b"), "a message has all read that has changed")

	silently(t, polling, banOf(polling, "e", time.Hour))
	assert.Len(t, all(t, waiting), 3, "All asks Redis")
}

func TestBansAreMadeWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	var log syncBuffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	list := newList(t, ctx, connect(t, server), Options{Poll: never, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	assert.True(t, list.Empty())
	assert.Error(t, list.Ban(ctx, "by hand", time.Hour))
	assert.True(t, isBanned(list, "by hand"))
	for range 100 {
		ban, err := list.Escalate(ctx, fmt.Sprint(rand.Uint64()), "rule", doubling)
		assert.ErrorIs(t, err, errDown, "Redis is not asked")
		assert.Equal(t, 1, ban.Times)
	}
	ban, err := list.Escalate(ctx, "key", "rule", doubling)
	assert.Error(t, err)
	assert.Equal(t, list.tag("key"), ban.Digest)
	assert.Empty(t, ban.Key)
	assert.True(t, isBanned(list, "key"))
	again, err := list.Escalate(ctx, "key", "rule", doubling)
	assert.NoError(t, err, "a ban that is known needs no Redis")
	assert.Equal(t, ban, again)
	assert.Error(t, list.Ban(ctx, "lifted", time.Hour))
	lifted, err := list.Unban(ctx, "lifted")
	assert.Error(t, err)
	assert.True(t, lifted, "as far as is known here")
	assert.False(t, isBanned(list, "lifted"))
	known, err := list.All(ctx)
	assert.Error(t, err)
	assert.Len(t, known, 102, "All tells what is known")
	assert.Positive(t, list.Stale(), "Redis was never read")

	server.Restart()
	await(t, "the bans to be in Redis", func() bool { return server.MustDo("HLEN", list.redis.names[0]) == "102" })
	other := newList(t, ctx, connect(t, server), Options{Poll: never})
	awaitList(t, other)
	assert.Equal(t, "rule", awaitBanned(t, other, "key").Rule)
	awaitBanned(t, other, "by hand")
	assert.False(t, isBanned(other, "lifted"))
	assert.Equal(t, 1, strings.Count(log.String(), "code=weir-bans-stale"))
	await(t, "the log to tell", func() bool { return strings.Contains(log.String(), "code=weir-bans-current") })
	assert.Zero(t, list.Stale())
	cancel()
}

// A syncBuffer may be written while it is read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestABanByHandReplacesALongerOneThoughItIsMadeInAnOutage(t *testing.T) {
	server := redistest.Start(t)
	list, other := readList(t, connect(t, server), Options{}), readList(t, connect(t, server), Options{})
	_, err := list.Escalate(t.Context(), "key", "rule", doubling)
	require.NoError(t, err)
	awaitBanned(t, other, "key")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, list.Ban(gone, "key", time.Minute))
	await(t, "all to know of it", func() bool { return awaitBanned(t, other, "key").Rule == "" })
}

func TestWhatRedisLostHoldsWhereItIsKnown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lists := []*List{
		readList(t, connect(t, server), Options{Poll: 100 * time.Millisecond}),
		readList(t, connect(t, server), Options{Poll: 100 * time.Millisecond}),
	}
	require.NoError(t, lists[0].Ban(t.Context(), "endless", 0, bans.By("ada")))
	_, err := lists[0].Escalate(t.Context(), "key", "rule", doubling)
	require.NoError(t, err)
	awaitList(t, lists[1])

	server.Restart()
	for _, list := range lists {
		assert.True(t, isBanned(list, "endless"), "it holds while Redis is away")
		awaitList(t, list)
		require.NoError(t, list.Ban(t.Context(), "later", time.Hour))
		assert.Len(t, all(t, list), 3, "and when it is back")
		assert.Equal(t, "ada", awaitBanned(t, list, "endless").By)
		assert.Equal(t, "rule", awaitBanned(t, list, "key").Rule)
	}
	other := readList(t, connect(t, server), Options{})
	assert.Len(t, all(t, other), 1, "who did not know it does not learn it")

	// Redis has no such ban, and whoever lifts it may not know it either.
	unban(t, other, "endless", false)
	for _, list := range lists {
		awaitFree(t, list, "endless")
		assert.True(t, isBanned(list, "key"))
	}
}

func TestACallEndsThoughRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Without the list's own patience, calls would not end before the client's.
	client := closeAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Hour}))
	list, err := New(ctx, client, Options{Poll: never, Logger: quietLog})
	require.NoError(t, err)
	awaitList(t, list)
	server.Pause()
	defer server.Resume()
	for name, call := range map[string]func(context.Context) error{
		"Ban":      func(ctx context.Context) error { return list.Ban(ctx, "a", 0) },
		"Unban":    func(ctx context.Context) error { _, err := list.Unban(ctx, "b"); return err },
		"All":      func(ctx context.Context) error { _, err := list.All(ctx); return err },
		"Escalate": func(ctx context.Context) error { _, err := list.Escalate(ctx, "d", "rule", doubling); return err },
	} {
		assert.Error(t, call(ctx), name)
		hurried, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		_ = call(hurried) // Escalate has an answer
		cancel()
	}
	_, err = list.Escalate(ctx, "another", "rule", doubling)
	assert.ErrorIs(t, err, errDown, "others do not wait")
	server.Resume()
	await(t, "what was banned to be in Redis", func() bool { return server.MustDo("HLEN", list.redis.names[0]) == "3" })
	await(t, "Redis to be asked again", func() bool { return !list.down.Load() })
	_, err = list.Escalate(ctx, "yet another", "rule", doubling)
	assert.NoError(t, err)
}

func TestWhoLeavesIsBannedAllTheSame(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	here, there := readList(t, client, Options{Poll: never}), readList(t, client, Options{Poll: never})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := here.Escalate(gone, "key", "rule", doubling)
	assert.ErrorIs(t, err, context.Canceled)
	assert.True(t, isBanned(here, "key"))
	assert.Equal(t, "rule", awaitBanned(t, there, "key").Rule)
	assert.False(t, here.down.Load(), "Redis is not to blame")
}

func TestWhatRedisDidNotLiftComesBack(t *testing.T) {
	list := readList(t, connect(t, redistest.Start(t)), Options{Poll: never})
	require.NoError(t, list.Ban(t.Context(), "key", 0))
	all(t, list) // so that the ban is not read for another reason
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := list.Unban(gone, "key")
	require.ErrorIs(t, err, context.Canceled)
	awaitBanned(t, list, "key")
	unban(t, list, "key", true)
	all(t, list)
	assert.False(t, isBanned(list, "key"))
}

// Redis knows no such key, so its answer is no newer than what has been read.
func TestABanThatHoldsInOneProcessAloneIsLifted(t *testing.T) {
	for _, how := range []string{"not delivered yet", "no room in Redis", "Redis lost the list"} {
		t.Run(how, func(t *testing.T) {
			server := redistest.Start(t)
			list := readList(t, connect(t, server), Options{Poll: never})
			require.NoError(t, list.Ban(t.Context(), "other", time.Hour))
			all(t, list)
			list.mu.Lock()
			local, tag := list.local, list.tag("key")
			require.NoError(t, local.Ban(t.Context(), tag, time.Hour))
			switch ban, _ := local.Find(tag); how {
			case "not delivered yet":
				list.unsent[tag] = put(known{ban: ban}, true)
			case "Redis lost the list":
				server.MustDo("FLUSHALL")
			}
			list.mu.Unlock()
			unban(t, list, "key", true)
			assert.False(t, isBanned(list, "key"))
			all(t, list)
			assert.False(t, isBanned(list, "key"), "what was read does not bring it back")
			assert.True(t, isBanned(list, "other"))
			fresh := readList(t, connect(t, server), Options{Poll: never})
			assert.Equal(t, how == "Redis lost the list", len(all(t, fresh)) == 0)
		})
	}
}

func TestABanByHandHoldsAgainstOneThatWasMadeInAnOutage(t *testing.T) {
	server := redistest.Start(t)
	list, other := readList(t, connect(t, server), Options{Poll: never}), readList(t, connect(t, server), Options{Poll: never})
	silently(t, list, banOf(list, "key", time.Minute))
	list.down.Store(true)                                                          // so that it does not ask
	if _, err := list.Escalate(t.Context(), "key", "rule", doubling); err != nil { // else it has read the ban already
		require.ErrorIs(t, err, errDown)
	}
	await(t, "the list to know the ban by hand", func() bool { return awaitBanned(t, list, "key").Rule == "" })
	all(t, other)
	assert.Empty(t, awaitBanned(t, other, "key").Rule)
}

func TestOfTwoBansTheNewerHoldsElseTheOneByHandElseTheLonger(t *testing.T) {
	list := readList(t, connect(t, redistest.Start(t)), Options{})
	for i, tt := range []struct {
		old, new   bans.Ban // Until is hours from now: zero is for ever
		isNewer    bool
		newHolds   bool
		oldH, newH int
	}{
		{oldH: 2, newH: 1, isNewer: true, newHolds: true},
		{old: bans.Ban{Rule: "r"}, new: bans.Ban{Rule: "r"}, oldH: 2, newH: 1},
		{old: bans.Ban{Rule: "r"}, new: bans.Ban{Rule: "r"}, oldH: 1, newH: 2, newHolds: true},
		{old: bans.Ban{Rule: "r"}, oldH: 2, newH: 1},
		{old: bans.Ban{Rule: "r"}, oldH: 2, newHolds: true},
		{new: bans.Ban{Rule: "r"}, oldH: 1, newH: 2},
		{oldH: 1, newH: 2},
	} {
		end := func(b *bans.Ban, hours int, by string) {
			b.Key, b.By = list.tag(fmt.Sprint(i)), by
			if hours > 0 {
				b.Until = time.Now().Add(time.Duration(hours) * time.Hour)
			}
		}
		end(&tt.old, tt.oldH, "old")
		end(&tt.new, tt.newH, "new")
		a, err := list.redis.exchange(t.Context(), position{cursor: "0"}, []*change{put(known{ban: tt.old}, true), put(known{ban: tt.new}, tt.isNewer)})
		require.NoError(t, err)
		k := a.read(tt.old.Key, a.answers[1])
		assert.Equal(t, map[bool]string{true: "new", false: "old"}[tt.newHolds], k.ban.By, "%+v", tt)
	}
}

// A newer ban of the same key came while the older one was on its way.
func TestAnAnswerToAnOlderBanLeavesTheNewerOneUnsent(t *testing.T) {
	list := &List{log: quietLog, local: newCopy(1)} // without goroutines
	older, newer := banOf(list, "key", time.Hour), banOf(list, "key", time.Minute)
	list.unsent = map[string]*change{newer.Tag: newer}
	_, refused := list.settle([]*change{older}, &answer{answers: []string{""}, gap: true})
	require.NoError(t, refused)
	assert.Same(t, newer, list.unsent[newer.Tag])
}

// Redis's clock may be wrong, and a ban is as long all the same.
func TestATimeOfTheServersIsReadByThisProcesssClock(t *testing.T) {
	now := time.Now()
	a := &answer{now: 1_000_000, received: now}
	assert.Equal(t, now.Add(2*time.Second), a.at(1_002_000))
	assert.Zero(t, a.at(0))
}

// Bans of an outage took its place. Reading the list may evict others, and is no reason to read it again.
func TestABanThatTheCopyHadNoRoomForIsReadAgain(t *testing.T) {
	list := readList(t, connect(t, redistest.Start(t)), Options{MaxBans: 2, Poll: never})
	require.NoError(t, list.Ban(t.Context(), "key", time.Hour))
	list.exchange <- struct{}{} // no late message makes it read the list before All
	list.mu.Lock()
	for i := range 4 {
		require.NoError(t, list.local.Ban(t.Context(), list.tag(fmt.Sprint(i)), 2*time.Hour))
	}
	list.mu.Unlock()
	require.False(t, isBanned(list, "key"))
	<-list.exchange
	all(t, list)
	assert.True(t, isBanned(list, "key"))
	list.mu.Lock()
	defer list.mu.Unlock()
	assert.Equal(t, list.gone(), list.missed)
}

// Else it would be sent again and again, and no exchange would end.
func TestABanOfAnOutageThatFindsNoRoomHoldsInItsProcessAlone(t *testing.T) {
	client := connect(t, redistest.Start(t))
	var log syncBuffer
	list := readList(t, client, Options{MaxBans: 1, Poll: never, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, list.Ban(t.Context(), "endless", 0))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, list.Ban(gone, "key", time.Hour), context.Canceled)
	await(t, "Redis to refuse it", func() bool { return strings.Contains(log.String(), "code=weir-bans-full") })
	assert.Len(t, all(t, list), 2)
	assert.Equal(t, 1, strings.Count(log.String(), "code=weir-bans-full"))
	_, err := list.Escalate(t.Context(), "another", "rule", doubling)
	assert.ErrorIs(t, err, bans.ErrFull)
}

func TestAListIsReadInPages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := connect(t, server)
	list := readList(t, client, Options{})
	const most = 3000
	for i := range most {
		list.mu.Lock()
		list.keep(put(known{ban: bans.Ban{Key: list.tag(fmt.Sprint(i)), Rule: "a rule\nwith \x00 strange % name ", Times: i, Until: time.Now().Add(time.Hour)}}, false))
		list.mu.Unlock()
	}
	awaitList(t, list)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // the list changes while it is read
		for i := 0; ; i = (i + 1) % 50 {
			select {
			case <-done:
				return
			default:
				_, err := list.Unban(t.Context(), fmt.Sprint(i))
				assert.NoError(t, err)
				assert.NoError(t, list.Ban(t.Context(), fmt.Sprint(i), 2*time.Hour))
			}
		}
	})
	for range 5 {
		other := readList(t, client, Options{})
		for i := 50; i < most; i++ {
			ban, ok := other.Find(fmt.Sprint(i))
			require.True(t, ok)
			require.Equal(t, i, ban.Times)
			require.Equal(t, "a rule\nwith \x00 strange % name ", ban.Rule)
		}
	}
	close(done)
	wg.Wait()
	assert.Len(t, all(t, list), most)
}

// Whatever happens to messages, all processes know the same in the end.
func TestProcessesAgreeAfterAnUproar(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lists []*List
	for range 3 {
		list := newList(t, ctx, connect(t, server), Options{MaxBans: 40, Poll: 50 * time.Millisecond})
		awaitList(t, list)
		lists = append(lists, list)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, list := range lists {
		for range 4 {
			wg.Go(func() {
				for range 300 {
					key := fmt.Sprint(rand.IntN(60))
					switch rand.IntN(4) {
					case 0:
						_ = list.Ban(ctx, key, time.Duration(1+rand.IntN(20))*time.Second*100)
					case 1:
						_, _ = list.Unban(ctx, key)
					case 2:
						_, _ = list.Escalate(ctx, key, "rule", doubling)
					default:
						list.Find(key)
					}
				}
			})
		}
	}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = server.Do("CLIENT", "KILL", "TYPE", "pubsub")
				_, _ = server.Do("SCRIPT", "FLUSH")
			}
		}
	})
	time.AfterFunc(300*time.Millisecond, func() { close(stop) })
	wg.Wait()
	for _, list := range lists {
		awaitList(t, list)
	}
	want := all(t, lists[0])
	assert.NotEmpty(t, want)
	assert.Equal(t, strconv.Itoa(len(want)), server.MustDo("HLEN", lists[0].redis.names[0]))
	for _, list := range lists[1:] {
		got := all(t, list)
		require.Len(t, got, len(want))
		slices.SortFunc(got, func(a, b bans.Ban) int { return strings.Compare(a.Digest, b.Digest) })
		slices.SortFunc(want, func(a, b bans.Ban) int { return strings.Compare(a.Digest, b.Digest) })
		for i := range got {
			assert.WithinDuration(t, want[i].Until, got[i].Until, 10*time.Second)
			assert.WithinDuration(t, want[i].Since, got[i].Since, 10*time.Second)
			got[i].Until, got[i].Since = want[i].Until, want[i].Since
			assert.Equal(t, want[i], got[i])
		}
	}
	cancel()
}

func TestOfBansOnlyDigestsAreInRedisAndAllOfItExpires(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	plain := readList(t, client, Options{})
	secret := readList(t, client, Options{Prefix: "other", Secret: []byte("a secret of 16 bytes")})
	for _, list := range []*List{plain, secret} {
		require.NoError(t, list.Ban(t.Context(), "203.0.113.7", time.Hour))
		require.NoError(t, list.Ban(t.Context(), "203.0.113.8", 0))
		_, err := list.Escalate(t.Context(), "user:42", "POST /login", doubling)
		require.NoError(t, err)
		_, err = list.Escalate(t.Context(), "user:43", "POST /login", bans.Escalation{Ban: time.Millisecond, Factor: 1, Max: time.Hour})
		require.NoError(t, err)
		time.Sleep(2 * time.Millisecond)
		require.NoError(t, list.Ban(t.Context(), "203.0.113.9", time.Hour)) // the one before is remembered now
	}
	form := regexp.MustCompile(`^(weir|other):4:\{bans\}:(list|changes|ends)$`)
	names := strings.Split(server.MustDo("KEYS", "*"), "\n")
	assert.Len(t, names, 6)
	for _, name := range names {
		assert.Regexp(t, form, name)
		assert.Positive(t, life(t, server, name), name)
		content := server.MustDo("DUMP", name)
		if strings.HasSuffix(name, ":list") {
			content = server.MustDo("HGETALL", name)
		}
		for _, key := range []string{"203.0.113", "user:4"} {
			assert.NotContains(t, content, key)
		}
	}
	digest := plain.tag("203.0.113.8")
	assert.Regexp(t, `^\{("(ends|remember|times)":0,?|"(rule|by|reason)":"",?|"since":[0-9]+,?){7}\}$`, server.MustDo("HGET", "weir:4:{bans}:list", digest), "what is stored is what a version means")
	assert.Empty(t, server.MustDo("HGET", "other:4:{bans}:list", digest), "a secret changes it")
}

func TestLuaAndGoAgreeHowLongABanIs(t *testing.T) {
	list := readList(t, connect(t, redistest.Start(t)), Options{})
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
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		tag := list.tag("key")
		changes := []*change{{Op: "unban", Tag: tag}}
		if times > 1 {
			over := bans.Ban{Key: tag, Until: time.Now().Add(-time.Second), Times: times - 1}
			changes = append(changes, put(known{ban: over, remember: time.Hour}, false))
		}
		changes = append(changes, &change{
			Op: "escalate", Tag: tag, state: state{Rule: "rule"},
			First: e.Ban.Milliseconds(), Factor: e.Factor, Max: e.Max.Milliseconds(),
		})
		a, err := list.redis.exchange(context.Background(), position{cursor: "0"}, changes)
		require.NoError(t, err)
		var s state
		require.NoError(t, json.Unmarshal([]byte(a.answers[len(changes)-1]), &s))
		if got, want := time.Duration(s.Ends-a.now)*time.Millisecond, e.Duration(times); got != want || s.Times != times {
			t.Fatalf("Lua says %v for time %d of %+v, Go %v for %d", got, s.Times, e, want, times)
		}
	})
}

func TestWhatIsOverIsDroppedFromRedis(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	list := readList(t, client, Options{Poll: never})
	for i := range 40 {
		_, err := list.Escalate(t.Context(), fmt.Sprint("key ", i), "rule", bans.Escalation{Ban: time.Hour, Factor: 1, Max: 2 * time.Hour})
		require.NoError(t, err)
		require.NoError(t, list.Ban(t.Context(), fmt.Sprint("hand ", i), time.Hour))
	}
	require.NoError(t, list.Ban(t.Context(), "long", 100*time.Hour))
	sizes := func() string {
		return server.MustDo("HLEN", list.redis.names[0]) + " " + server.MustDo("ZCARD", list.redis.names[2])
	}
	assert.Equal(t, "81 81", sizes())
	passInRedis(t, list, time.Hour)
	for range 4 {
		unban(t, list, "nobody", false)
	}
	assert.Equal(t, "41 41", sizes(), "the escalated are remembered")
	passInRedis(t, list, 2*time.Hour)
	for range 4 {
		unban(t, list, "nobody", false)
	}
	assert.Equal(t, "1 1", sizes())
	unban(t, list, "long", true)
	assert.Equal(t, "0 0", sizes())
}

func TestAStateThatCannotBeReadIsABan(t *testing.T) {
	server := redistest.Start(t)
	for name, state := range map[string]string{
		"no JSON":      "?",
		"nothing":      "",
		"no object":    "7",
		"a wrong type": `{"ends":"tomorrow"}`,
		"a late end":   `{"ends":9000000000000000000,"rule":"r"}`,
		"a bad note":   `{"ends":0,"reason":"two\nlines"}`,
		"bad times":    `{"ends":0,"times":-1}`,

		"an end before all":   `{"ends":-9000000000000000000,"since":0,"remember":0,"times":1}`,
		"a huge since":        `{"ends":0,"since":9000000000000000000,"remember":0,"times":1}`,
		"a since before all":  `{"ends":0,"since":-9000000000000000000,"remember":0,"times":1}`,
		"a huge remember":     `{"ends":0,"since":0,"remember":9000000000000000000,"times":1}`,
		"a negative remember": `{"ends":0,"since":0,"remember":-9000000000000000000,"times":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			server.MustDo("FLUSHALL")
			writer := readList(t, connect(t, server), Options{})
			require.NoError(t, writer.Ban(t.Context(), "key", time.Minute))
			digest := writer.tag("key")
			server.MustDo("HSET", writer.redis.names[0], digest, state)
			reader := readList(t, connect(t, server), Options{})
			ban, ok := reader.Find("key")
			require.True(t, ok)
			assert.Zero(t, ban.Until, "permanent")
			unban(t, reader, digest, name != "an end before all") // which Redis takes for over
			awaitFree(t, reader, "key")
			require.NoError(t, writer.Ban(t.Context(), "key", time.Minute), "it can be written again")
			awaitBanned(t, reader, "key")

			server.MustDo("HSET", writer.redis.names[0], digest, state)
			server.MustDo("ZADD", writer.redis.names[2], "1", digest) // it is over, as Redis counts
			_, err := writer.All(t.Context())
			assert.NoError(t, err, "the rest of the list can be read")
		})
	}
}

// Somebody wrote into the list by hand, or another program uses its name.
func TestAFieldThatIsNoDigestIsLeftOutAndTheRestHolds(t *testing.T) {
	server := redistest.Start(t)
	var log syncBuffer
	o := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	before := readList(t, connect(t, server), o)
	require.NoError(t, before.Ban(t.Context(), "key", 0))
	list, changes, ends := before.redis.names[0], before.redis.names[1], before.redis.names[2]
	for _, field := range []string{"203.0.113.7", "", "x", before.tag("other") + "=", strings.Repeat("~", 22)} {
		server.MustDo("HSET", list, field, `{"ends":0}`)
		server.MustDo("XADD", changes, "*", "tag", field)
		server.MustDo("ZADD", ends, "1", field) // it is over
	}
	server.MustDo("HSET", list, "s3cr3t", `{"ends":0}`)
	server.MustDo("XADD", changes, "*", "one", "1", "two", "2")
	after := readList(t, connect(t, server), o)
	for _, l := range []*List{before, after} {
		assert.True(t, isBanned(l, "key"))
		assert.Len(t, all(t, l), 1)
		assert.Zero(t, l.Stale())
		require.NoError(t, l.Ban(t.Context(), "further", time.Hour))
		unban(t, l, "further", true)
	}
	assert.Equal(t, 2, strings.Count(log.String(), "code=weir-bans-strange"), "each process says so once")
	assert.NotContains(t, log.String(), "s3cr3t")
}

// A process that was away for so long that a lifted ban is forgotten reads all, and so does each
// when Redis has lost its last writes. Redis gets those back that were read.
func TestAProcessThatMissedChangesReadsTheWholeList(t *testing.T) {
	server := redistest.Start(t)
	here, there := readList(t, connect(t, server), Options{Poll: never}), readList(t, connect(t, server), Options{Poll: never})
	for _, key := range []string{"first", "lifted"} {
		require.NoError(t, here.Ban(t.Context(), key, 0))
	}
	awaitBanned(t, there, "lifted")
	all(t, there)
	for _, l := range []*List{here, there} {
		l.exchange <- struct{}{} // no late message makes it read the change before Redis forgets it
	}
	silently(t, here, &change{Op: "unban", Tag: here.tag("lifted")}, banOf(here, "missed", time.Hour))
	server.MustDo("XTRIM", here.redis.names[1], "MAXLEN", "0")
	for _, l := range []*List{here, there} {
		<-l.exchange
	}
	silently(t, here, banOf(here, "new", time.Hour))
	all(t, there)
	for _, key := range []string{"first", "missed", "new"} {
		assert.True(t, isBanned(there, key), key)
	}
	assert.True(t, isBanned(there, "lifted"), "Redis may have lost it")
	unban(t, here, "lifted", true) // which it did not hear of either
	awaitFree(t, there, "lifted")
}

// A list that was empty when a process read it has had no changes before its first ones, so the process has
// missed none. Reading the whole list again would miss that a ban was lifted meanwhile.
func TestABanThatIsLiftedWhileItIsTheFirstOfAllIsLiftedInItsProcess(t *testing.T) {
	server := redistest.Start(t)
	there, client := readList(t, connect(t, server), Options{Poll: never}), connect(t, server)
	client.AddHook(afterPut(func() { unban(t, there, "key", true) }))
	here := readList(t, client, Options{Poll: never})
	require.NoError(t, here.Ban(t.Context(), "key", 0))
	all(t, here)
	assert.False(t, isBanned(here, "key"))

	var changes []*change
	for i := range 500 {
		changes = append(changes, banOf(there, fmt.Sprint(i), time.Hour))
	}
	silently(t, there, changes...)
	a, err := there.redis.exchange(t.Context(), position{seen: "0-0"}, nil)
	require.NoError(t, err)
	assert.True(t, a.gap, "of so many changes the first may be forgotten")
}

// An afterPut is called when Redis has taken a ban from a client, before the client has the answer.
type afterPut func()

func (f afterPut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f afterPut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f afterPut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.Contains(fmt.Sprint(cmd.Args()...), `"op":"put"`) {
			f()
		}
		return err
	}
}

// What expires with a ban in force lifts it. Without the stream a process that has read a change
// can't see that Redis has lost it.
func TestNothingOfAListExpiresBeforeItsLongestBan(t *testing.T) {
	server := redistest.Start(t)
	r := newRemote(connect(t, server), under("weir", format), defaultMaxBans, redistest.Patience)
	rapid.Check(t, func(rt *rapid.T) {
		server.MustDo("FLUSHALL")
		ends := map[string]time.Time{}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 8).Draw(rt, "keys") {
			tag := keyfunc.NewDigester(nil).Digest(key).String()
			d := time.Duration(rapid.IntRange(1, 366*24).Draw(rt, "hours")) * time.Hour
			c := &change{Op: "unban", Tag: tag}
			switch op := rapid.SampledFrom([]string{"put", "escalate", "unban"}).Draw(rt, "op"); {
			case op == "put":
				ends[key] = time.Now().Add(d)
				c = put(known{ban: bans.Ban{Key: tag, Until: ends[key]}}, true)
			case op == "unban":
				delete(ends, key)
			case ends[key].IsZero():
				ends[key] = time.Now().Add(2 * d) // with its repetitions
				c = &change{Op: "escalate", Tag: tag, state: state{Rule: "rule"}, First: d.Milliseconds(), Factor: 1, Max: d.Milliseconds()}
			default:
				continue // it is banned
			}
			_, err := r.exchange(context.Background(), position{cursor: "0"}, []*change{c})
			require.NoError(rt, err)
			for _, name := range r.names {
				for key, end := range ends {
					require.GreaterOrEqual(rt, life(t, server, name), time.Until(end), "%s, of a ban of %s", name, key)
				}
			}
		}
	})
}

func TestAnEndlessBanLivesAsLongAsSomebodyReadsTheList(t *testing.T) {
	server := redistest.Start(t)
	list := readList(t, connect(t, server), Options{})
	name := list.redis.names[0]
	require.NoError(t, list.Ban(t.Context(), "short", time.Hour))
	all(t, list)
	assert.Less(t, life(t, server, name), 25*time.Hour, "a list without endless bans need not live")
	require.NoError(t, list.Ban(t.Context(), "endless", 0))
	server.MustDo("PEXPIRE", name, "10000")
	all(t, list)
	assert.Greater(t, life(t, server, name), 365*24*time.Hour)
}

// A server without memory for bans lifts them all the same, and says what others have lifted.
func TestARedisThatTakesNoBansIsReadAndLiftsThem(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	client := connect(t, server)
	here, there := readList(t, client, Options{}), readList(t, client, Options{})
	for _, key := range []string{"a", "b"} {
		require.NoError(t, here.Ban(t.Context(), key, time.Hour))
		awaitBanned(t, there, key)
	}
	server.MustDo("CONFIG", "SET", "maxmemory", "1mb")
	assert.ErrorContains(t, here.Ban(t.Context(), "new", time.Hour), "OOM")
	assert.True(t, isBanned(here, "new"), "it holds in this process")
	_, err := here.All(t.Context())
	assert.ErrorContains(t, err, "OOM", "not all is shared")
	silently(t, here, &change{Op: "unban", Tag: here.tag("a")})
	_, err = here.All(t.Context())
	assert.ErrorContains(t, err, "OOM")
	assert.False(t, isBanned(here, "a"), "it was lifted elsewhere")
	assert.Error(t, here.Ban(t.Context(), "b", 2*time.Hour))
	silently(t, here, &change{Op: "unban", Tag: here.tag("b")})
	for range 2 {
		_, err = here.All(t.Context())
		assert.ErrorContains(t, err, "OOM")
		assert.True(t, isBanned(here, "b"), "its newer ban is not in Redis yet")
		assert.True(t, isBanned(here, "new"))
		here.mu.Lock()
		here.scan = true
		here.mu.Unlock()
	}
	server.MustDo("CONFIG", "SET", "maxmemory", "8mb")
	awaitBanned(t, there, "new")
}

func life(t testing.TB, server *redistest.Server, name string) time.Duration {
	t.Helper()
	ms, err := strconv.Atoi(server.MustDo("PTTL", name))
	require.NoError(t, err)
	return time.Duration(ms) * time.Millisecond
}

func TestUnbanTakesAKeyThatLooksLikeADigest(t *testing.T) {
	list := readList(t, connect(t, redistest.Start(t)), Options{})
	digest := list.tag("key")
	for _, key := range []string{"key", digest} {
		require.NoError(t, list.Ban(t.Context(), key, 0))
	}
	unban(t, list, digest, true)
	assert.False(t, isBanned(list, digest), "it is a key first")
	assert.True(t, isBanned(list, "key"))
	unban(t, list, digest, true)
	assert.False(t, isBanned(list, "key"))
}

func TestBansNeedNoMoreRightsThanTheyTell(t *testing.T) {
	server := redistest.Start(t)
	source, err := os.ReadFile("list.go")
	require.NoError(t, err)
	said := regexp.MustCompile(`(?s)An ACL user needs (.*?), and in a Cluster`).FindSubmatch(source)
	require.NotNil(t, said)
	rights := strings.Fields(strings.ReplaceAll(string(said[1]), "//", ""))
	server.MustDo(append([]string{"ACL", "SETUSER", "weir", "on", ">password"}, rights...)...)
	client := closeAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, Username: "weir", Password: "password"}))
	o := Options{MaxBans: 2, Poll: never}
	here, there := newList(t, t.Context(), client, o), newList(t, t.Context(), client, o)
	all(t, here)
	await(t, "both to hear of changes", func() bool {
		return server.MustDo("PUBSUB", "NUMSUB", here.redis.channel) == here.redis.channel+"\n2"
	})
	for _, key := range []string{"a", "b", "c"} {
		_, err = here.Escalate(t.Context(), key, "rule", bans.Escalation{Ban: time.Millisecond, Factor: 1, Max: time.Second})
		require.NoError(t, err)
	}
	_, err = here.Unban(t.Context(), "c")
	require.NoError(t, err)
	require.NoError(t, here.Ban(t.Context(), "endless", 0))
	awaitBanned(t, there, "endless")
	all(t, there)
	require.NoError(t, client.Ping(t.Context()).Err())
}

func TestBansEndWithTheirContext(t *testing.T) {
	client := connect(t, redistest.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	list := newList(t, ctx, client, Options{})
	awaitList(t, list)
	require.NoError(t, list.Ban(ctx, "key", 0))
	cancel()
	await(t, "the list to end", func() bool {
		known, err := list.All(context.Background())
		return err != nil && len(known) == 1
	})
	assert.True(t, isBanned(list, "key"))
	assert.Positive(t, list.Stale(), "it learns nothing any more")
	_, err := list.Unban(context.Background(), "key")
	assert.NoError(t, err)
	assert.False(t, isBanned(list, "key"))
}

func TestNewSaysWhatItNeeds(t *testing.T) {
	client := closeAfter(t, redis.NewClient(&redis.Options{}))
	for _, tt := range []struct {
		client  redis.UniversalClient
		options Options
		want    []string
	}{
		{nil, Options{}, []string{"needs a client"}},
		{(*redis.Client)(nil), Options{}, []string{"needs a client"}},
		{client, Options{Prefix: "a b", Secret: []byte("short"), MaxBans: -1, Poll: -time.Second},
			[]string{`Prefix "a b"`, "Secret has 5 bytes", "MaxBans is -1", "Poll is -1s"}},
		{client, Options{Poll: 9 * time.Millisecond}, []string{"Poll is 9ms", "from 10ms to 1h0m0s"}},
		{client, Options{Poll: time.Hour + 1}, []string{"Poll is 1h0m0.000000001s"}},
	} {
		_, err := New(t.Context(), tt.client, tt.options)
		require.Error(t, err)
		for _, want := range tt.want {
			assert.ErrorContains(t, err, want)
		}
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	for _, secret := range []string{"", "a secret of 16 bytes"} {
		list := readList(t, connect(t, redistest.Start(t)), Options{Secret: []byte(secret)})
		key := strings.Repeat("k", 256)
		for _, isListed := range []bool{false, true} {
			if isListed {
				require.NoError(t, list.Ban(t.Context(), key, time.Hour))
			}
			least := 1.0
			for range 100 { // as the list's goroutines allocate too, and the race detector has pools forget
				least = min(least, testing.AllocsPerRun(1, func() {
					list.Find(key)
					list.Find("another")
				}))
			}
			assert.Zero(t, least)
		}
	}
}

func TestAListTakesAKeyAsItsFunctionReturnsIt(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { _ = client.Close() })
	l := newList(t, t.Context(), client, Options{})
	require.NoError(t, l.Ban(t.Context(), keyfunc.InDoubt.Mark("10.0.0.1"), 0))
	for _, key := range []string{"10.0.0.1", keyfunc.InDoubt.Mark("10.0.0.1")} {
		_, ok := l.Find(key)
		assert.True(t, ok, "a ban that no request meets")
	}
	lifted, err := l.Unban(t.Context(), keyfunc.Shared.Mark("10.0.0.1"))
	require.NoError(t, err)
	assert.True(t, lifted)
}
