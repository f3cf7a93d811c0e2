package redisrules_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisrules"
)

func rulesOf(n int) []byte { return fmt.Appendf(nil, "version: 1\ndefault: %d/s\n", n) }

func TestRulesArePublishedInPlaceOfAVersionAlone(t *testing.T) {
	t.Parallel()
	client := clientOf(t, redistest.Start(t))
	ctx, none := t.Context(), rules.Options{}
	_, err := redisrules.Read(ctx, client, inRedis)
	require.ErrorIs(t, err, redisrules.ErrNone)
	one, two := rules.VersionOf(rulesOf(1)), rules.VersionOf(rulesOf(2))

	require.ErrorIs(t, redisrules.PublishIf(ctx, client, inRedis, one, rulesOf(1), none), redisrules.ErrChanged, "there are none")
	require.NoError(t, redisrules.PublishIf(ctx, client, inRedis, "", rulesOf(1), none))
	require.ErrorIs(t, redisrules.PublishIf(ctx, client, inRedis, "", rulesOf(2), none), redisrules.ErrChanged)
	require.NoError(t, redisrules.PublishIf(ctx, client, inRedis, one, rulesOf(2), none))
	err = redisrules.PublishIf(ctx, client, inRedis, one, rulesOf(3), none)
	require.ErrorIs(t, err, redisrules.ErrChanged)
	assert.ErrorContains(t, err, two, "it says which there is")
	require.Error(t, redisrules.PublishIf(ctx, client, inRedis, two, []byte("version: 2\n"), none), "they are wrong")

	text, err := redisrules.Read(ctx, client, inRedis)
	require.NoError(t, err)
	assert.Equal(t, string(rulesOf(2)), string(text))
	loaded, err := rules.Parse(text, none)
	require.NoError(t, err)
	assert.Equal(t, two, loaded.Version())

	down := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer down.Close()
	assert.NotErrorIs(t, redisrules.PublishIf(ctx, down, inRedis, "", rulesOf(1), none), redisrules.ErrChanged, "that is not known")
}

// Of many that change the rules at once, from what they have read, each change is in the end.
func TestNoPublishedChangeIsLostToAnother(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, none := t.Context(), rules.Options{}
	require.NoError(t, redisrules.Publish(ctx, clientOf(t, server), inRedis, rulesOf(1), none))
	const editors, each = 6, 5
	var lost atomic.Int64
	var all sync.WaitGroup
	for range editors {
		client := clientOf(t, server)
		all.Go(func() {
			for made := 0; made < each; {
				text, err := redisrules.Read(ctx, client, inRedis)
				if !assert.NoError(t, err) {
					return
				}
				var n int
				_, err = fmt.Sscanf(string(text), "version: 1\ndefault: %d/s\n", &n)
				if !assert.NoError(t, err) {
					return
				}
				switch err := redisrules.PublishIf(ctx, client, inRedis, rules.VersionOf(text), rulesOf(n+1), none); {
				case err == nil:
					made++
				case assert.ErrorIs(t, err, redisrules.ErrChanged):
					lost.Add(1)
				default:
					return
				}
			}
		})
	}
	all.Wait()
	text, err := redisrules.Read(ctx, clientOf(t, server), inRedis)
	require.NoError(t, err)
	assert.Equal(t, string(rulesOf(1+editors*each)), string(text))
	t.Logf("%d attempts were told that they came too late", lost.Load())
}
