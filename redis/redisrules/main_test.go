package redisrules

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	// long is how long a test waits for what has to happen, on a busy machine.
	long = 30 * time.Second

	// never is a time between polls that no test lives to see.
	never = time.Hour
)

// TestMain waits longer than goleak does by itself: what hangs in a client ends with the
// client's own timeouts.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // which tells of outages that tests make
	code := m.Run()
	var leak error
	for deadline := time.Now().Add(long); code == 0 && time.Now().Before(deadline); {
		if leak = goleak.Find(ofTheClient); leak == nil {
			break
		}
	}
	if leak != nil {
		fmt.Fprintln(os.Stderr, "goroutines that outlived the tests:", leak)
		code = 1
	}
	os.Exit(code)
}

// ofTheClient is a goroutine that clients of go-redis 9.23 leave behind when they are closed.
var ofTheClient = goleak.IgnoreTopFunction("github.com/redis/go-redis/v9/maintnotifications.(*CircuitBreakerManager).cleanupLoop")

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(long); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited %v in vain for %s", long, what)
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
