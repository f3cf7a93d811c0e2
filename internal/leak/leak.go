// Package leak finds goroutines that outlive a test.
package leak

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long a goroutine may take to end, on a busy machine.
const patience = 30 * time.Second

// VerifyMain runs a package's tests, a *testing.M, and fails if they pass and leave goroutines.
func VerifyMain(m interface{ Run() int }) {
	code := m.Run()
	if code == 0 {
		if stacks := (Goroutines{}).Left(); stacks != "" {
			fmt.Fprintf(os.Stderr, "goroutines that outlived the tests:\n\n%s\n", stacks)
			code = 1
		}
	}
	os.Exit(code)
}

// Goroutines are the goroutines of a moment, by the first line of their stacks up to the state.
type Goroutines map[string]bool

// Now returns the goroutines that run now.
func Now() Goroutines {
	running := Goroutines{}
	for id := range stacks() {
		running[id] = true
	}
	return running
}

// Verify fails the test if goroutines run that did not run before, and that do not end.
func (before Goroutines) Verify(t testing.TB) {
	t.Helper()
	if stacks := before.Left(); stacks != "" {
		t.Errorf("goroutines that outlived the test:\n\n%s", stacks)
	}
}

// Left returns the stacks of goroutines that did not run before, and that do not end.
func (before Goroutines) Left() string {
	var left []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		left = left[:0]
		running := stacks()
		for id, stack := range running {
			_, creator, _ := strings.Cut(stack, " in goroutine ")
			creator, _, _ = strings.Cut(creator, "\n")
			if !before[id] && !isOthers(stack) && !isOthers(running["goroutine "+creator]) {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			break
		}
	}
	return strings.Join(left, "\n\n")
}

// stacks returns the stacks of all goroutines but the caller's.
func stacks() map[string]string {
	text := make([]byte, 64<<10)
	for {
		n := runtime.Stack(text, true)
		if n < len(text) {
			text = text[:n]
			break
		}
		text = make([]byte, 2*len(text))
	}
	found := map[string]string{}
	for i, stack := range strings.Split(string(bytes.TrimSpace(text)), "\n\n") {
		if id, _, ok := strings.Cut(stack, " ["); ok && i > 0 { // the first is the caller's
			found[id] = stack
		}
	}
	return found
}

// others run for the whole program: tests that wait for their parallel tests, what package testing needs
// for its flags, signals, and what go-redis leaves when a client is closed: 9.23 a goroutine, and 9.19 those
// of a Sentinel's client that was dialling.
var others = []string{
	"testing.(*T).Run(", "testing.(*T).Parallel(", "testing.(*F).Fuzz", "testing.runFuzzing(", "testing.runFuzzTests(", "testing.(*M).startAlarm",
	"runtime.ensureSigM", "os/signal.signal_recv(", "os/signal.loop(", "testing/internal/testdeps", "internal/fuzz.",
	"maintnotifications.(*CircuitBreakerManager).cleanupLoop(", "go-redis/v9.(*sentinelFailover).listen(",
}

func isOthers(stack string) bool {
	for _, function := range others {
		if strings.Contains(stack, function) {
			return true
		}
	}
	return false
}
