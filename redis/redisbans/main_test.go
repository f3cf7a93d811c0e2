package redisbans

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func await(t testing.TB, what string, done func() bool) { t.Helper(); redistest.Await(t, what, done) }

func connect(t testing.TB, server *redistest.Server) redis.UniversalClient { return server.Connect(t) }

func closeAfter(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	return redistest.CloseAfter(t, client)
}
