package redistest

import (
	"bytes"
	"context"
	"flag"
	"io"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirgo/weir/internal/leak"
)

// Patience is longer than anything that a test waits for takes on a busy machine.
const Patience = 30 * time.Second

// Main is the TestMain of packages that use Redis. It checks that no goroutine outlives the tests. Packages
// whose tests make outages silence go-redis before: redis.SetLogger(redistest.Silent{}).
func Main(m *testing.M) {
	setFlags()
	pooled = true
	leak.VerifyMain(pools{m})
}

// pools are tests that end what they share.
type pools struct{ *testing.M }

func (p pools) Run() int {
	defer endPools()
	return p.M.Run()
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

// Silent is a logger of go-redis that writes nothing.
type Silent struct{}

// Printf does nothing.
func (Silent) Printf(context.Context, string, ...any) {}

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
func CloseAfter[C io.Closer](t testing.TB, client C) C {
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
