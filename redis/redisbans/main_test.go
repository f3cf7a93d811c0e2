package redisbans

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/redistest"
)

// patience is how long a test waits for what has to happen, on a busy machine.
const patience = redistest.Patience

func TestMain(m *testing.M) { redistest.Main(m) }

func await(t testing.TB, what string, done func() bool) { t.Helper(); redistest.Await(t, what, done) }

func connect(t testing.TB, server *redistest.Server) redis.UniversalClient { return server.Connect(t) }

func closeAfter(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	return redistest.CloseAfter(t, client)
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
