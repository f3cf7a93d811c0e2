package redisbans_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redistest.Silent{})
	redistest.Main(m)
}

func await(t testing.TB, what string, done func() bool) { t.Helper(); redistest.Await(t, what, done) }

func connect(t testing.TB, server *redistest.Server) redis.UniversalClient {
	return redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
}

func closeAfter(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	return redistest.CloseAfter(t, client)
}
