package redistest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// Patience is longer than anything that a test waits for takes on a busy machine.
const Patience = 30 * time.Second

// Main is the TestMain of packages that use Redis. It silences go-redis, which logs the outages that
// tests make, and checks that no goroutine outlives the tests. It waits for goroutines longer than
// goleak does, as a client that hangs ends with its own timeouts.
func Main(m *testing.M) {
	Silence()
	setFlags()
	pooled = true
	code := m.Run()
	endPools()
	var leak error
	for deadline := time.Now().Add(Patience); code == 0 && time.Now().Before(deadline); {
		if leak = goleak.Find(OfTheClient); leak == nil {
			break
		}
	}
	if leak != nil {
		fmt.Fprintln(os.Stderr, "goroutines that outlived the tests:", leak)
		code = 1
	}
	os.Exit(code)
}

// setFlags sets flags that the command line does not set. More tests run in parallel than there are
// processors, as they mostly wait for servers. A property that fails is made smaller for five seconds,
// not thirty.
func setFlags() {
	flag.Parse()
	isSet := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { isSet[f.Name] = true })
	if !isSet["test.parallel"] {
		_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	}
	if !isSet["rapid.shrinktime"] {
		_ = flag.Set("rapid.shrinktime", "5s") // an error where rapid is not compiled in
	}
}

// OfTheClient is a goroutine that go-redis 9.23 leaves when a client is closed.
var OfTheClient = goleak.IgnoreTopFunction("github.com/redis/go-redis/v9/maintnotifications.(*CircuitBreakerManager).cleanupLoop")

// Silence stops go-redis from logging.
func Silence() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Await polls until done returns true, and fails the test after half of Patience.
func Await(t testing.TB, what string, done func() bool) {
	t.Helper()
	const most = Patience / 2
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited %v in vain for %s", most, what)
}

// CloseAfter closes a client when the test ends, unless the test has. A connection that is being made
// ends first: if a client of go-redis 9.7.3 is closed while it asks a sentinel for the master, it begins
// to listen to that sentinel, and dials it for ever.
func CloseAfter(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	t.Cleanup(func() {
		for end := time.Now().Add(Patience); asksSentinel() && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		_ = client.Close()
	})
	return client
}

// asksSentinel reports whether a goroutine asks a sentinel for the master.
func asksSentinel() bool {
	stacks := make([]byte, 4<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*sentinelFailover).MasterAddr"))
}

// Connect returns a client for the server, which is closed when the test ends.
func (s *Server) Connect(t testing.TB) redis.UniversalClient {
	return CloseAfter(t, redis.NewClient(&redis.Options{Addr: s.Addr}))
}
