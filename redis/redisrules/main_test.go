package redisrules

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

const (
	// long is how long a test waits for what has to happen, on a busy machine.
	long = redistest.Patience / 2

	// never is a time between polls that no test lives to see.
	never = time.Hour
)

func TestMain(m *testing.M) {
	redis.SetLogger(redistest.Silent{})
	redistest.Main(m)
}

func clientOf(t testing.TB, server *redistest.Server) *redis.Client {
	return redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
}

func awaitNudge(t testing.TB, s *source) {
	t.Helper()
	select {
	case <-s.Changed():
	case <-time.After(long):
		t.Fatal("there was no nudge")
	}
}

// awaitText reads after each nudge, as users of a source do, until the text is there.
func awaitText(t testing.TB, s *source, want string) {
	t.Helper()
	late := time.After(long)
	for {
		select {
		case <-s.Changed():
			text, err := s.Read(t.Context())
			if err == nil && string(text) == want {
				return
			}
		case <-late:
			text, err := s.Read(t.Context())
			t.Fatalf("no nudge told of %q; now there is %.100q, %v", want, text, err)
		}
	}
}

func requireText(t testing.TB, s *source, want string) {
	t.Helper()
	text, err := s.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, string(text))
}

func closeAfter(t testing.TB, s *source) {
	t.Cleanup(func() { require.NoError(t, s.Close()) })
}
