package redisbans_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/redisbans"
)

// names are those of a list: its hash, its version, and the ends of its bans.
var names = []string{"weir:5:{bans}:list", "weir:5:{bans}:version", "weir:5:{bans}:ends"}

// never is a Poll that a test does not live to see.
const never = time.Hour

// digest is what a list without a Secret has in place of a key.
func digest(key string) string { return keyfunc.NewDigester(nil).Digest(key).String() }

func newList(t testing.TB, ctx context.Context, client redis.UniversalClient, o redisbans.Options) *redisbans.List {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	list, err := redisbans.New(ctx, client, o.Patient(redistest.Patience))
	require.NoError(t, err)
	return list
}

// readList is newList, and waits until the list hears of changes, and has been read.
func readList(t testing.TB, client redis.UniversalClient, o redisbans.Options) *redisbans.List {
	t.Helper()
	before := hearers(t, client, o)
	list := newList(t, t.Context(), client, o)
	await(t, "a list to hear of changes", func() bool { return hearers(t, client, o) > before })
	all(t, list)
	return list
}

// awaitNobody waits until the lists of earlier tests have ended, since readList goes by the number of subscribers.
func awaitNobody(t testing.TB, client redis.UniversalClient) {
	t.Helper()
	await(t, "the lists before to end", func() bool { return hearers(t, client, redisbans.Options{}) == 0 })
}

// hearers is how many lists hear of changes.
func hearers(t testing.TB, client redis.UniversalClient, o redisbans.Options) (heard int64) {
	t.Helper()
	channel := "weir:5:{bans}:changes"
	if o.Prefix != "" {
		channel = o.Prefix + strings.TrimPrefix(channel, "weir")
	}
	var mu sync.Mutex
	count := func(ctx context.Context, client *redis.Client) error {
		of, err := client.PubSubNumSub(ctx, channel).Result()
		mu.Lock()
		defer mu.Unlock()
		heard += of[channel]
		return err
	}
	err := error(nil)
	switch client := client.(type) {
	case *redis.Client:
		err = count(t.Context(), client)
	case *redis.ClusterClient:
		err = client.ForEachMaster(t.Context(), count)
	}
	require.NoError(t, err)
	return heard
}

func isBanned(list *redisbans.List, key string) bool {
	_, ok := list.Find(key)
	return ok
}

func awaitBanned(t testing.TB, list *redisbans.List, key string) bans.Ban {
	t.Helper()
	await(t, fmt.Sprintf("%q to be banned", key), func() bool { return isBanned(list, key) })
	ban, _ := list.Find(key)
	return ban
}

func awaitFree(t testing.TB, list *redisbans.List, key string) {
	t.Helper()
	await(t, fmt.Sprintf("%q to be free", key), func() bool { return !isBanned(list, key) })
}

// unban lifts a ban that there is, or lifts nothing.
func unban(t testing.TB, list bans.List, key string, want bool) {
	t.Helper()
	lifted, err := list.Unban(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, want, lifted, "there was a ban")
}

// cancelled is the context of a caller that has left.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
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

func (b *syncBuffer) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func (b *syncBuffer) Count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), text)
}

// A network is between a client and its server.
type network struct {
	deaf atomic.Bool  // messages are lost
	cut  atomic.Bool  // connections end, and none can be made
	lose atomic.Value // the answer to this operation is lost, with its connection
}

func (n *network) client(t testing.TB, server *redistest.Server) redis.UniversalClient {
	return closeAfter(t, redis.NewClient(&redis.Options{
		Addr: server.Addr, MaxRetries: -1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if n.cut.Load() {
				return nil, io.EOF
			}
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &wireOf{Conn: c, network: n}, err
		},
	}))
}

// A wireOf is a connection.
type wireOf struct {
	net.Conn
	network            *network
	isLost, isMessages atomic.Bool
}

func (w *wireOf) Write(b []byte) (int, error) {
	if op, ok := w.network.lose.Load().(string); ok && bytes.Contains(b, []byte(op)) {
		w.isLost.Store(true)
		w.network.lose.Store("nothing")
	}
	w.isMessages.Store(w.isMessages.Load() || bytes.Contains(b, []byte("subscribe")))
	return w.Conn.Write(b)
}

func (w *wireOf) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		if w.network.cut.Load() || w.isLost.Load() {
			_ = w.Close()
			return 0, io.EOF
		}
		if err != nil || !w.network.deaf.Load() || !w.isMessages.Load() {
			return n, err
		}
	}
}

func TestABanIsKnownInEveryProcess(t *testing.T) {
	t.Parallel()
	one, cluster := redistest.Start(t), redistest.Cluster(t)
	for name, client := range map[string]redis.UniversalClient{
		"a server":  redis.NewClient(&redis.Options{Addr: one.Addr}),
		"a cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(cluster)}),
	} {
		t.Run(name, func(t *testing.T) {
			closeAfter(t, client)
			o := redisbans.Options{Prefix: strings.ReplaceAll(name, " ", "-"), Poll: never}
			here, there := readList(t, client, o), readList(t, client, o)
			require.NoError(t, here.Ban(t.Context(), "by hand", 0, bans.Reason("scrapes | the shop"), bans.By("ada")))
			begun := time.Now()
			ban, err := there.Escalate(t.Context(), "key", "rule", doubling)
			require.NoError(t, err)
			for _, list := range []*redisbans.List{here, there} {
				got := awaitBanned(t, list, "by hand")
				assert.WithinDuration(t, begun, got.Since, 10*time.Second)
				got.Since = time.Time{}
				assert.Equal(t, bans.Ban{Digest: digest("by hand"), Reason: "scrapes | the shop", By: "ada"}, got)
				got = awaitBanned(t, list, "key")
				assert.WithinDuration(t, ban.Until, got.Until, 10*time.Second)
				got.Until, got.Since = ban.Until, ban.Since
				assert.Equal(t, ban, got)
			}
			for _, ban := range all(t, here) { // a digest that is listed in one process is lifted in another
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
	var lists []*redisbans.List
	for range 4 {
		lists = append(lists, readList(t, connect(t, server), redisbans.Options{}))
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
		passInRedis(t, server, time.Hour<<round, lists...)
		for _, list := range lists {
			assert.Empty(t, all(t, list))
		}
	}
}

func TestLostMessagesAreMissed(t *testing.T) {
	server := redistest.Start(t)
	var n network
	here := readList(t, connect(t, server), redisbans.Options{Poll: never})
	waiting := readList(t, n.client(t, server), redisbans.Options{Poll: never})
	polling := readList(t, n.client(t, server), redisbans.Options{Poll: 50 * time.Millisecond})
	require.NoError(t, here.Ban(t.Context(), "lifted", time.Hour))
	awaitBanned(t, waiting, "lifted")

	n.deaf.Store(true)
	require.NoError(t, here.Ban(t.Context(), "a", time.Hour))
	unban(t, here, "lifted", true)
	awaitBanned(t, polling, "a")
	awaitFree(t, polling, "lifted")
	assert.False(t, isBanned(waiting, "a"))
	n.deaf.Store(false)

	require.NoError(t, here.Ban(t.Context(), "b", time.Hour))
	awaitBanned(t, waiting, "b")
	awaitBanned(t, waiting, "a")
	awaitFree(t, waiting, "lifted")

	n.deaf.Store(true)
	require.NoError(t, here.Ban(t.Context(), "c", time.Hour))
	assert.Len(t, all(t, waiting), 3, "All asks Redis")
}

func TestTheListIsReadAfterALostConnection(t *testing.T) {
	server := redistest.Start(t)
	var n network
	here := readList(t, connect(t, server), redisbans.Options{Poll: never})
	there := readList(t, n.client(t, server), redisbans.Options{Poll: never})
	require.NoError(t, here.Ban(t.Context(), "lifted", 0))
	awaitBanned(t, there, "lifted")
	n.cut.Store(true)
	_, err := there.All(t.Context())
	require.Error(t, err)
	unban(t, here, "lifted", true)
	require.NoError(t, here.Ban(t.Context(), "new", 0))
	require.Error(t, there.Ban(t.Context(), "of the outage", 0))
	require.Error(t, there.Ban(t.Context(), "lifted meanwhile", 0))
	time.Sleep(10 * time.Millisecond) // more than a millisecond, in which times are
	unban(t, here, "lifted meanwhile", false)
	n.cut.Store(false)
	awaitBanned(t, there, "new")
	awaitFree(t, there, "lifted")
	awaitFree(t, there, "lifted meanwhile")
	awaitBanned(t, here, "of the outage")
	assert.False(t, isBanned(here, "lifted meanwhile"), "it was lifted after it was banned")
}

func TestAChangeWhoseAnswerIsLostIsMadeOnce(t *testing.T) {
	server := redistest.Start(t)
	var n network
	here := readList(t, n.client(t, server), redisbans.Options{Poll: never})
	there := readList(t, connect(t, server), redisbans.Options{Poll: never})
	n.lose.Store("escalate")
	_, err := here.Escalate(t.Context(), "key", "rule", doubling)
	require.Error(t, err)
	assert.Equal(t, 1, awaitBanned(t, here, "key").Times)
	await(t, "Redis to answer", func() bool { return here.Stale() == 0 })
	assert.Equal(t, 1, awaitBanned(t, there, "key").Times)
	n.lose.Store("unban")
	lifted, err := here.Unban(t.Context(), "key")
	assert.Error(t, err)
	assert.True(t, lifted)
	awaitFree(t, there, "key")
	await(t, "Redis to answer", func() bool { return here.Stale() == 0 })
	assert.False(t, isBanned(here, "key"))
}

func TestBansAreMadeWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	var log syncBuffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	list := newList(t, ctx, connect(t, server), redisbans.Options{Poll: never, Logger: log.Logger()})
	assert.True(t, list.Empty())
	assert.Error(t, list.Ban(ctx, "by hand", time.Hour))
	assert.True(t, isBanned(list, "by hand"))
	for i := range 100 {
		ban, err := list.Escalate(ctx, fmt.Sprint(i), "rule", doubling)
		assert.ErrorContains(t, err, "Redis gives no answer: the ban holds in this process", "Redis is not asked")
		assert.Equal(t, 1, ban.Times)
	}
	ban, err := list.Escalate(ctx, "key", "rule", doubling)
	assert.Error(t, err)
	assert.Equal(t, digest("key"), ban.Digest)
	assert.Empty(t, ban.Key)
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
	assert.Len(t, known, 102, "All returns what is known")
	assert.Positive(t, list.Stale(), "Redis was never read")

	server.Restart()
	await(t, "the bans to be in Redis", func() bool { return server.MustDo("HLEN", names[0]) == "102" })
	other := readList(t, connect(t, server), redisbans.Options{Poll: never})
	assert.Equal(t, "rule", awaitBanned(t, other, "key").Rule)
	awaitBanned(t, other, "by hand")
	assert.False(t, isBanned(other, "lifted"))
	await(t, "the log to tell", func() bool { return log.Count("code=weir-bans-current") == 1 })
	assert.Equal(t, 1, log.Count("code=weir-bans-stale"))
	assert.Zero(t, list.Stale())
}

// A promise of the package: nobody writes back what Redis has lost, and nobody forgets it.
func TestWhatRedisLostHoldsWhereItIsKnown(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"a restart", "FLUSHALL", "a failover"} {
		t.Run(how, func(t *testing.T) {
			server := redistest.Start(t, "--dbfilename", "snapshot")
			o := redisbans.Options{Poll: 100 * time.Millisecond}
			lists := []*redisbans.List{readList(t, connect(t, server), o), readList(t, connect(t, server), o)}
			inRedis := 1
			if how == "a failover" { // to a server that lacks the last changes
				inRedis++
				require.NoError(t, lists[0].Ban(t.Context(), "old", 0))
				server.MustDo("SAVE")
			}
			require.NoError(t, lists[0].Ban(t.Context(), "endless", 0, bans.By("ada")))
			_, err := lists[0].Escalate(t.Context(), "key", "rule", doubling)
			require.NoError(t, err)
			awaitBanned(t, lists[1], "key")
			if how == "FLUSHALL" {
				server.MustDo("FLUSHALL")
			} else {
				server.Kill()
				assert.True(t, isBanned(lists[0], "endless"), "it holds while Redis is away")
				server.Restart()
			}
			for _, list := range lists {
				await(t, "Redis to answer", func() bool { _, err := list.All(t.Context()); return err == nil })
				require.NoError(t, list.Ban(t.Context(), "later", time.Hour))
				assert.Len(t, all(t, list), inRedis+2, "and when it is back")
				assert.Equal(t, "ada", awaitBanned(t, list, "endless").By)
				assert.Equal(t, "rule", awaitBanned(t, list, "key").Rule)
			}
			other := readList(t, connect(t, server), redisbans.Options{})
			assert.Len(t, all(t, other), inRedis, "who did not know it does not learn it")
			unban(t, other, "endless", false) // Redis has no such ban, and whoever lifts it may not know it either
			for _, list := range lists {
				awaitFree(t, list, "endless")
				assert.True(t, isBanned(list, "key"))
			}
		})
	}
}

func TestACallEndsThoughRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Without the list's own patience, calls would not end before the client's.
	client := closeAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Hour}))
	list, err := redisbans.New(ctx, client, redisbans.Options{Poll: never, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	await(t, "the list to be read", func() bool { _, err := list.All(ctx); return err == nil })
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
	assert.Positive(t, list.Stale())
	server.Resume()
	await(t, "Redis to be asked again", func() bool { return list.Stale() == 0 })
	other := readList(t, connect(t, server), redisbans.Options{})
	assert.Len(t, all(t, other), 2, "what was banned is in Redis")
}

func TestWhoLeavesIsBannedAllTheSame(t *testing.T) {
	server := redistest.Start(t)
	here, there := readList(t, connect(t, server), redisbans.Options{Poll: never}), readList(t, connect(t, server), redisbans.Options{Poll: never})
	_, err := here.Escalate(cancelled(), "key", "rule", doubling)
	assert.ErrorIs(t, err, context.Canceled)
	assert.True(t, isBanned(here, "key"))
	assert.Equal(t, "rule", awaitBanned(t, there, "key").Rule)
	assert.Zero(t, here.Stale(), "Redis is not to blame")

	require.ErrorIs(t, here.Ban(cancelled(), "key", time.Minute), context.Canceled)
	await(t, "the ban by hand to replace the longer one", func() bool { return awaitBanned(t, there, "key").Rule == "" })
}

func TestWhatRedisDidNotLiftComesBack(t *testing.T) {
	list := readList(t, connect(t, redistest.Start(t)), redisbans.Options{Poll: never})
	require.NoError(t, list.Ban(t.Context(), "key", 0))
	all(t, list) // so that the ban is not read for another reason
	_, err := list.Unban(cancelled(), "key")
	require.ErrorIs(t, err, context.Canceled)
	awaitBanned(t, list, "key")
	unban(t, list, "key", true)
	all(t, list)
	assert.False(t, isBanned(list, "key"))
}

func TestABanThatFindsNoRoomHoldsInItsProcessAlone(t *testing.T) {
	server := redistest.Start(t)
	var log syncBuffer
	list := readList(t, connect(t, server), redisbans.Options{MaxBans: 1, Poll: never, Logger: log.Logger()})
	require.NoError(t, list.Ban(t.Context(), "endless", 0))
	require.ErrorIs(t, list.Ban(cancelled(), "key", time.Hour), context.Canceled)
	await(t, "Redis to refuse it", func() bool { return log.Count("code=weir-bans-full") > 0 })
	assert.Len(t, all(t, list), 2)
	assert.Equal(t, 1, log.Count("code=weir-bans-full"))
	_, err := list.Escalate(t.Context(), "another", "rule", doubling)
	assert.ErrorIs(t, err, bans.ErrFull)
	unban(t, list, "key", true)
	assert.Len(t, all(t, list), 1)
}

func TestALongListIsReadWhileItChanges(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	list := readList(t, connect(t, server), redisbans.Options{})
	require.NoError(t, list.Ban(t.Context(), "sample", time.Hour))
	const most = 20_000
	for i := 0; i < most; i += 1000 {
		command, now := []string{"HSET", names[0]}, time.Now().UnixMilli()
		for j := i; j < i+1000; j++ {
			command = append(command, digest(fmt.Sprint(j)), fmt.Sprintf(
				`{"ends":%d,"remembered":%d,"since":%d,"times":%d,"rule":"a rule\nwith \u0000 strange %% name ","by":"","reason":""}`,
				now+3_600_000, now+7_200_000, now, j))
		}
		server.MustDo(command...)
	}
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
	other := readList(t, connect(t, server), redisbans.Options{})
	for i := 50; i < most; i++ {
		ban, ok := other.Find(fmt.Sprint(i))
		require.True(t, ok)
		require.Equal(t, i, ban.Times)
		require.Equal(t, "a rule\nwith \x00 strange % name ", ban.Rule)
	}
	close(done)
	wg.Wait()
	assert.Len(t, all(t, other), most+1)
}

// A process bans a key in an outage, and meanwhile another process bans the same key.
func TestOfTwoBansTheOneByHandHoldsElseTheLonger(t *testing.T) {
	server := redistest.Start(t)
	var n network
	here := readList(t, n.client(t, server), redisbans.Options{Poll: 50 * time.Millisecond})
	there := readList(t, connect(t, server), redisbans.Options{Poll: never})
	ban := func(list *redisbans.List, key string, byHand bool, hours int) {
		d := time.Duration(hours) * time.Hour
		if byHand {
			_ = list.Ban(t.Context(), key, d)
		} else {
			_, _ = list.Escalate(t.Context(), key, "rule", bans.Escalation{Ban: d, Factor: 1, Max: d})
		}
	}
	for i, tt := range []struct {
		old, new   bool // by hand
		oldH, newH int  // hours
		newHolds   bool
	}{
		{true, true, 2, 1, true},
		{true, true, 0, 1, true},
		{false, true, 2, 1, true},
		{false, true, 2, 0, true},
		{false, false, 2, 1, false},
		{false, false, 1, 2, true},
		{true, false, 1, 2, false},
		{true, false, 0, 1, false},
	} {
		key, hours := fmt.Sprint(i), tt.oldH
		if tt.newHolds {
			hours = tt.newH
		}
		n.cut.Store(true)
		ban(there, key, tt.old, tt.oldH)
		ban(here, key, tt.new, tt.newH)
		n.cut.Store(false)
		await(t, "Redis to answer", func() bool { _, err := here.All(t.Context()); return err == nil })
		for _, list := range []*redisbans.List{here, there} {
			all(t, list)
			got, ok := list.Find(key)
			require.True(t, ok)
			assert.Equal(t, tt.newHolds && tt.new || !tt.newHolds && tt.old, got.Rule == "", "%+v", tt)
			if hours == 0 {
				assert.Zero(t, got.Until, "%+v", tt)
			} else {
				assert.WithinDuration(t, time.Now().Add(time.Duration(hours)*time.Hour), got.Until, time.Minute, "%+v", tt)
			}
		}
	}
}

func TestLuaAndGoAgreeHowLongABanIs(t *testing.T) {
	server := redistest.Start(t)
	list, n := readList(t, connect(t, server), redisbans.Options{Poll: never}), 0
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(1, bans.MaxDuration.Milliseconds())
		e := bans.Escalation{
			Ban:    time.Duration(ms.Draw(t, "first")>>rapid.IntRange(0, 34).Draw(t, "shift")+1) * time.Millisecond,
			Factor: rapid.OneOf(rapid.Float64Range(1, 1000), rapid.Float64Range(1, 1.01), rapid.SampledFrom([]float64{1, 1.5, 2, 3, 10, 1000})).Draw(t, "factor"),
		}
		e.Ban = min(e.Ban, bans.MaxDuration)
		e.Max = max(e.Ban, time.Duration(ms.Draw(t, "max"))*time.Millisecond)
		times := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 1<<31-1)).Draw(t, "times")
		n++
		key := fmt.Sprint(n)
		server.MustDo("HSET", names[0], digest(key), fmt.Sprintf(`{"ends":1,"remembered":9000000000000,"times":%d}`, times-1))
		got, err := list.Escalate(context.Background(), key, "rule", e)
		require.NoError(t, err)
		if d, want := got.Until.Sub(got.Since), e.Duration(times); d != want || got.Times != times {
			t.Fatalf("Lua says %v for time %d of %+v, Go %v for %d", d, got.Times, e, want, times)
		}
	})
}

// What expires with a ban in force lifts it.
func TestNothingOfAListExpiresBeforeItsLongestBan(t *testing.T) {
	server := redistest.Start(t)
	list := readList(t, connect(t, server), redisbans.Options{Poll: never})
	for seed := range uint64(30) {
		server.MustDo("FLUSHALL")
		random, ends := rand.New(rand.NewPCG(seed, 1)), map[string]time.Time{}
		for range 8 {
			key, d := fmt.Sprint(seed, random.IntN(3)), time.Duration(1+random.IntN(366*12))*time.Hour
			switch random.IntN(3) {
			case 0:
				ends[key] = time.Now().Add(d)
				require.NoError(t, list.Ban(t.Context(), key, d))
			case 1:
				delete(ends, key)
				unban(t, list, key, isBanned(list, key))
			default:
				if _, isBanned := ends[key]; !isBanned {
					ends[key] = time.Now().Add(2 * d) // with its repetitions
					_, err := list.Escalate(t.Context(), key, "rule", bans.Escalation{Ban: d, Factor: 1, Max: d})
					require.NoError(t, err)
				}
			}
			for _, end := range ends {
				require.GreaterOrEqual(t, life(t, server, names[0]), time.Until(end))
			}
		}
	}
}

// Whatever happens to messages, all processes know the same in the end.
func TestProcessesAgreeAfterAnUproar(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lists []*redisbans.List
	for range 3 {
		lists = append(lists, readList(t, connect(t, server), redisbans.Options{Poll: 50 * time.Millisecond}))
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
	byDigest := func(list *redisbans.List) []bans.Ban {
		got := all(t, list)
		slices.SortFunc(got, func(a, b bans.Ban) int { return strings.Compare(a.Digest, b.Digest) })
		return got
	}
	for _, list := range lists {
		await(t, "nothing to be unsent", func() bool { all(t, list); return list.Stale() == 0 })
	}
	want := byDigest(lists[0])
	assert.NotEmpty(t, want)
	for _, list := range lists[1:] {
		got := byDigest(list)
		require.Len(t, got, len(want))
		for i := range got {
			assert.WithinDuration(t, want[i].Until, got[i].Until, 10*time.Second)
			got[i].Until, got[i].Since = want[i].Until, want[i].Since
			assert.Equal(t, want[i], got[i])
		}
	}
}

func life(t testing.TB, server *redistest.Server, name string) time.Duration {
	t.Helper()
	ms, err := strconv.Atoi(server.MustDo("PTTL", name))
	require.NoError(t, err)
	return time.Duration(ms) * time.Millisecond
}

func TestOfBansOnlyDigestsAreInRedisAndAllOfItExpires(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	plain := readList(t, client, redisbans.Options{})
	secret := readList(t, client, redisbans.Options{Prefix: "other", Secret: []byte("a secret of 16 bytes")})
	for _, list := range []*redisbans.List{plain, secret} {
		require.NoError(t, list.Ban(t.Context(), "203.0.113.7", time.Hour))
		_, err := list.Escalate(t.Context(), "user:42", "POST /login", doubling)
		require.NoError(t, err)
		unban(t, list, "203.0.113.9", false)
	}
	form := regexp.MustCompile(`^(weir|other):5:\{bans\}:(list|version|ends)$`)
	keys := strings.Split(server.MustDo("KEYS", "*"), "\n")
	assert.Len(t, keys, 6)
	for _, name := range keys {
		assert.Regexp(t, form, name)
		assert.Positive(t, life(t, server, name), name)
		assert.Less(t, life(t, server, name), 50*time.Hour, name)
		content := server.MustDo("DUMP", name)
		if strings.HasSuffix(name, ":list") {
			content = server.MustDo("HGETALL", name)
		}
		for _, key := range []string{"203.0.113", "user:4"} {
			assert.NotContains(t, content, key)
		}
	}
	require.NoError(t, plain.Ban(t.Context(), "203.0.113.8", 0))
	assert.Regexp(t, `^\{("(ends|remembered|times)":0,?|"(rule|by|reason)":"",?|"since":[0-9]+,?){7}\}$`,
		server.MustDo("HGET", names[0], digest("203.0.113.8")), "what is stored is what a version means")
	assert.Empty(t, server.MustDo("HGET", "other:5:{bans}:list", digest("203.0.113.7")), "a secret changes it")
	server.MustDo("PEXPIRE", names[0], "10000")
	all(t, plain)
	assert.Greater(t, life(t, server, names[0]), 365*24*time.Hour, "an endless ban lives as long as somebody reads the list")
}

func TestWhatIsOverIsDroppedFromRedis(t *testing.T) {
	server := redistest.Start(t)
	list := readList(t, connect(t, server), redisbans.Options{Poll: never})
	for i := range 40 {
		_, err := list.Escalate(t.Context(), fmt.Sprint("key ", i), "rule", bans.Escalation{Ban: time.Hour, Factor: 1, Max: 2 * time.Hour})
		require.NoError(t, err)
		require.NoError(t, list.Ban(t.Context(), fmt.Sprint("hand ", i), time.Hour))
	}
	require.NoError(t, list.Ban(t.Context(), "long", 100*time.Hour))
	unban(t, list, "nobody", false)
	sizes := func() string {
		for range 12 {
			require.NoError(t, list.Ban(t.Context(), "long", 100*time.Hour))
		}
		return server.MustDo("HLEN", names[0]) + " " + server.MustDo("ZCARD", names[2])
	}
	assert.Equal(t, "82 82", sizes())
	passInRedis(t, server, time.Hour, list)
	assert.Equal(t, "42 42", sizes(), "the escalated are remembered, and what was lifted")
	passInRedis(t, server, 2*time.Hour, list)
	assert.Equal(t, "2 2", sizes())
	passInRedis(t, server, 22*time.Hour, list)
	assert.Equal(t, "1 1", sizes())
}

func TestAStateThatCannotBeReadIsABan(t *testing.T) {
	server := redistest.Start(t)
	for name, state := range map[string]string{
		"no JSON":             "?",
		"nothing":             "",
		"no object":           "7",
		"a wrong type":        `{"ends":"tomorrow"}`,
		"a late end":          `{"ends":9000000000000000000,"remembered":9000000000000000000,"times":0,"rule":"r"}`,
		"a bad note":          `{"ends":0,"remembered":0,"times":0,"reason":"two\nlines"}`,
		"bad times":           `{"ends":0,"remembered":0,"times":-1}`,
		"an end before all":   `{"ends":-9000000000000000000,"remembered":0,"since":0,"times":1}`,
		"a huge since":        `{"ends":0,"remembered":0,"since":9000000000000000000,"times":1}`,
		"a since before all":  `{"ends":0,"remembered":0,"since":-9000000000000000000,"times":1}`,
		"a huge memory":       `{"ends":0,"since":0,"remembered":9000000000000000000,"times":1}`,
		"a memory before all": `{"ends":0,"since":0,"remembered":-9000000000000000000,"times":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			server.MustDo("FLUSHALL")
			client := connect(t, server)
			awaitNobody(t, client)
			var log syncBuffer
			writer := readList(t, client, redisbans.Options{})
			require.NoError(t, writer.Ban(t.Context(), "key", time.Minute))
			server.MustDo("HSET", names[0], digest("key"), state)
			reader := readList(t, connect(t, server), redisbans.Options{Logger: log.Logger()})
			ban, ok := reader.Find("key")
			require.True(t, ok)
			assert.Zero(t, ban.Until, "permanent")
			assert.Equal(t, 1, log.Count("code=weir-bans-strange"))
			unban(t, reader, digest("key"), true)
			awaitFree(t, reader, "key")
			require.NoError(t, writer.Ban(t.Context(), "key", time.Minute), "it can be written again")
			awaitBanned(t, reader, "key")

			server.MustDo("HSET", names[0], digest("key"), state)
			server.MustDo("ZADD", names[2], "1", digest("key")) // it is over, as Redis counts
			all(t, writer)
			fresh := readList(t, connect(t, server), redisbans.Options{})
			assert.True(t, isBanned(fresh, "key"))
		})
	}
}

// Somebody wrote into the list by hand, or another program uses its name.
func TestAFieldThatIsNoDigestIsLeftOutAndTheRestHolds(t *testing.T) {
	server := redistest.Start(t)
	var log syncBuffer
	o := redisbans.Options{Logger: log.Logger()}
	before := readList(t, connect(t, server), o)
	require.NoError(t, before.Ban(t.Context(), "key", 0))
	for _, field := range []string{"203.0.113.7", "", "x", digest("other") + "=", strings.Repeat("~", 22), "s3cr3t"} {
		server.MustDo("HSET", names[0], field, `{"ends":0}`)
		server.MustDo("ZADD", names[2], "1", field) // it is over
	}
	server.MustDo("PUBLISH", "weir:5:{bans}:changes", "1 2 3 s3cr3t {}")
	server.MustDo("PUBLISH", "weir:5:{bans}:changes", "anything")
	server.MustDo("INCR", names[1])
	after := readList(t, connect(t, server), o)
	for _, l := range []*redisbans.List{before, after} {
		all(t, l)
		assert.True(t, isBanned(l, "key"))
		assert.Len(t, all(t, l), 1)
		assert.Zero(t, l.Stale())
		require.NoError(t, l.Ban(t.Context(), "further", time.Hour))
		unban(t, l, "further", true)
	}
	assert.Equal(t, 2, log.Count("code=weir-bans-strange"), "each process says so once")
	assert.Zero(t, log.Count("s3cr3t"))
}

// A server without memory for bans lifts them all the same, and says what others have lifted.
func TestARedisThatTakesNoBansIsReadAndLiftsThem(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	client := connect(t, server)
	here, there := readList(t, client, redisbans.Options{}), readList(t, client, redisbans.Options{})
	for _, key := range []string{"a", "b"} {
		require.NoError(t, here.Ban(t.Context(), key, time.Hour))
		awaitBanned(t, there, key)
	}
	server.MustDo("CONFIG", "SET", "maxmemory", "1mb")
	assert.ErrorContains(t, here.Ban(t.Context(), "new", time.Hour), "OOM")
	assert.True(t, isBanned(here, "new"), "it holds in this process")
	assert.Positive(t, here.Stale(), "not all is shared")
	unban(t, there, "a", true)
	awaitFree(t, here, "a")
	all(t, here)
	assert.True(t, isBanned(here, "new"))
	assert.False(t, isBanned(here, "a"))
	server.MustDo("CONFIG", "SET", "maxmemory", "8mb")
	awaitBanned(t, there, "new")
	await(t, "all to be shared", func() bool { return here.Stale() == 0 })
}

func TestUnbanTakesAKeyThatLooksLikeADigest(t *testing.T) {
	list := readList(t, connect(t, redistest.Start(t)), redisbans.Options{})
	for _, key := range []string{"key", digest("key")} {
		require.NoError(t, list.Ban(t.Context(), key, 0))
	}
	unban(t, list, digest("key"), true)
	assert.False(t, isBanned(list, digest("key")), "it is a key first")
	assert.True(t, isBanned(list, "key"))
	unban(t, list, digest("key"), true)
	assert.False(t, isBanned(list, "key"))
	unban(t, list, digest("key"), false)
}

func TestAListTakesAKeyAsItsFunctionReturnsIt(t *testing.T) {
	list := readList(t, connect(t, redistest.Start(t)), redisbans.Options{})
	require.NoError(t, list.Ban(t.Context(), keyfunc.InDoubt.Mark("10.0.0.1"), 0))
	assert.True(t, isBanned(list, "10.0.0.1"))
	assert.True(t, isBanned(list, keyfunc.InDoubt.Mark("10.0.0.1")))
	unban(t, list, keyfunc.Shared.Mark("10.0.0.1"), true)
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
	o := redisbans.Options{MaxBans: 2, Poll: never}
	here, there := newList(t, t.Context(), client, o), newList(t, t.Context(), client, o)
	all(t, here)
	await(t, "both to hear of changes", func() bool { return hearers(t, connect(t, server), o) == 2 })
	for _, key := range []string{"a", "b", "c"} {
		_, err = here.Escalate(t.Context(), key, "rule", bans.Escalation{Ban: time.Millisecond, Factor: 1, Max: time.Second})
		require.NoError(t, err)
	}
	_, err = here.Unban(t.Context(), "c")
	require.NoError(t, err)
	require.NoError(t, here.Ban(t.Context(), "by hand", time.Hour))
	require.NoError(t, here.Ban(t.Context(), "another", time.Hour))
	require.NoError(t, here.Ban(t.Context(), "endless", 0))
	awaitBanned(t, there, "endless")
	all(t, there)
	require.NoError(t, client.Ping(t.Context()).Err())
}

func TestBansEndWithTheirContext(t *testing.T) {
	client := connect(t, redistest.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	list := newList(t, ctx, client, redisbans.Options{})
	all(t, list)
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
		options redisbans.Options
		want    []string
	}{
		{nil, redisbans.Options{}, []string{"needs a client"}},
		{(*redis.Client)(nil), redisbans.Options{}, []string{"needs a client"}},
		{client, redisbans.Options{Prefix: "a b", Secret: []byte("short"), MaxBans: -1, Poll: -time.Second},
			[]string{`Prefix "a b"`, "Secret has 5 bytes", "MaxBans is -1", "Poll is -1s"}},
		{client, redisbans.Options{Poll: 9 * time.Millisecond}, []string{"Poll is 9ms", "from 10ms to 1h0m0s"}},
		{client, redisbans.Options{Poll: time.Hour + 1}, []string{"Poll is 1h0m0.000000001s"}},
	} {
		_, err := redisbans.New(t.Context(), tt.client, tt.options)
		require.Error(t, err)
		for _, want := range tt.want {
			assert.ErrorContains(t, err, want)
		}
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	for _, secret := range []string{"", "a secret of 16 bytes"} {
		list := readList(t, connect(t, redistest.Start(t)), redisbans.Options{Secret: []byte(secret)})
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
