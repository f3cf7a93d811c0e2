package redisfleet_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/redis/redisfleet"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func board(t *testing.T, client redis.UniversalClient, o redisfleet.Options) *redisfleet.Board {
	b, err := redisfleet.New(client, o)
	require.NoError(t, err)
	return b
}

// told is what is on a board.
func told(t *testing.T, b *redisfleet.Board) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, b.Each(t.Context(), func(process string, text []byte, ago time.Duration) {
		all[process] = string(text)
		assert.GreaterOrEqual(t, ago, time.Duration(0))
		assert.Less(t, ago, redistest.Patience)
	}))
	return all
}

func TestWhatAProcessTellsEachOneReads(t *testing.T) {
	server := redistest.Start(t)
	here, there := board(t, server.Connect(t), redisfleet.Options{}), board(t, server.Connect(t), redisfleet.Options{})
	assert.Empty(t, told(t, here))
	require.NoError(t, here.Tell(t.Context(), "a", []byte(`{"n": 1}`)))
	require.NoError(t, there.Tell(t.Context(), "b", []byte("text\nof \x00 any kind")))
	require.NoError(t, here.Tell(t.Context(), "a", []byte(`{"n": 2}`)))
	want := map[string]string{"a": `{"n": 2}`, "b": "text\nof \x00 any kind"}
	assert.Equal(t, want, told(t, here))
	assert.Equal(t, want, told(t, there))

	require.NoError(t, here.Leave(t.Context(), "a"))
	require.NoError(t, here.Leave(t.Context(), "a"), "it has left before")
	delete(want, "a")
	assert.Equal(t, want, told(t, there))
	assert.Empty(t, told(t, board(t, server.Connect(t), redisfleet.Options{Prefix: "other"})), "another service")
	assert.Equal(t, "weir:1:{fleet}:told", server.MustDo("KEYS", "*"))
}

func TestAProcessThatTellsNothingForLongIsForgotten(t *testing.T) {
	server := redistest.Start(t)
	b := board(t, server.Connect(t), redisfleet.Options{})
	require.NoError(t, b.Tell(t.Context(), "a", []byte("a")))
	long := fmt.Sprint(time.Now().Add(-11 * time.Minute).UnixMilli())
	server.MustDo("HSET", "weir:1:{fleet}:told", "gone", long+" gone", "odd", "no time")
	assert.Equal(t, map[string]string{"a": "a"}, told(t, b))
	assert.Equal(t, "1", server.MustDo("HLEN", "weir:1:{fleet}:told"))
	assert.NotEqual(t, "-1", server.MustDo("PTTL", "weir:1:{fleet}:told"), "nothing stays when all have left")
}

func TestABoardIsBounded(t *testing.T) {
	server := redistest.Start(t)
	b := board(t, server.Connect(t), redisfleet.Options{})
	args := []string{"HSET", "weir:1:{fleet}:told"}
	for i := range 1000 {
		args = append(args, fmt.Sprint("p", i), fmt.Sprint(time.Now().UnixMilli(), " x"))
	}
	server.MustDo(args...)
	assert.ErrorContains(t, b.Tell(t.Context(), "one more", nil), "there are 1000 processes")
	require.NoError(t, b.Tell(t.Context(), "p1", []byte("known")))
	server.MustDo("HSET", "weir:1:{fleet}:told", "p2", "1 x")
	require.NoError(t, b.Tell(t.Context(), "one more", []byte("x")), "one that is gone gives way")

	assert.ErrorContains(t, b.Tell(t.Context(), "", nil), "0 bytes")
	assert.ErrorContains(t, b.Tell(t.Context(), strings.Repeat("p", 201), nil), "201 bytes")
	assert.ErrorContains(t, b.Tell(t.Context(), "p1", make([]byte, 65<<10)), "at most 65536 are allowed")
}

func TestARedisThatIsDownIsAnError(t *testing.T) {
	server := redistest.Start(t)
	b := board(t, server.Connect(t), redisfleet.Options{})
	server.Kill()
	assert.ErrorContains(t, b.Tell(t.Context(), "a", nil), "redisfleet: ")
	assert.Error(t, b.Leave(t.Context(), "a"))
	assert.Error(t, b.Each(t.Context(), func(string, []byte, time.Duration) { t.Error("nothing is known") }))
}

func TestABoardNeedsNoMoreRightsThanItTells(t *testing.T) {
	server := redistest.Start(t)
	source, err := os.ReadFile("board.go")
	require.NoError(t, err)
	said := regexp.MustCompile(`(?s)An ACL user needs (.*?), and in a Cluster`).FindSubmatch(source)
	require.NotNil(t, said)
	rights := strings.Fields(strings.ReplaceAll(string(said[1]), "//", ""))
	server.MustDo(append([]string{"ACL", "SETUSER", "weir", "on", ">password"}, rights...)...)
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, Username: "weir", Password: "password"}))
	b := board(t, client, redisfleet.Options{})
	require.NoError(t, b.Tell(t.Context(), "a", []byte("a")))
	assert.Len(t, told(t, b), 1)
	require.NoError(t, b.Leave(t.Context(), "a"))
}

func TestNewSaysWhatItNeeds(t *testing.T) {
	_, err := redisfleet.New(nil, redisfleet.Options{})
	assert.ErrorContains(t, err, "New needs a client")
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{}))
	_, err = redisfleet.New(client, redisfleet.Options{Prefix: "{a}"})
	assert.ErrorContains(t, err, "redisfleet: Prefix")
	assert.Panics(t, func() { redisfleet.Must(redisfleet.New(nil, redisfleet.Options{})) })
}
