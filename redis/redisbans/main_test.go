package redisbans

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/weirgo/weir/internal/redistest"
)

// patience is how long a test waits for what has to happen, on a busy machine.
const patience = 30 * time.Second

// TestMain waits longer than goleak does by itself: a client that is closed while its
// server is down may sleep for a second before it notices.
func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // which tells of outages that tests make
	code := m.Run()
	var leak error
	for deadline := time.Now().Add(patience / 2); code == 0 && time.Now().Before(deadline); {
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

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// await polls until done, and fails the test if it never is.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited %v in vain for %s", patience, what)
}

func closeAfter(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	t.Cleanup(func() { _ = client.Close() }) // a test may have closed it
	return client
}

func connect(t testing.TB, server *redistest.Server) redis.UniversalClient {
	return closeAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
}

// leavesNoGoroutine says that all goroutines which a test starts have ended after its
// clients are closed. It has to come before everything else.
func leavesNoGoroutine(t *testing.T) {
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name()))) // they are inherited
	t.Cleanup(func() {
		pprof.SetGoroutineLabels(context.Background())
		var b bytes.Buffer
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			b.Reset()
			if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), fmt.Sprintf("%q:%q", "test", t.Name())) {
				return
			}
		}
		t.Errorf("goroutines are left behind:\n%s", b.String())
	})
}
