package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// mostServers is how many servers run at once on a machine, in all processes of tests: with
// many more than that some took longer than patience to start.
const mostServers = 24

// takeSlot waits until fewer servers run. A slot is the lock of a file, which the system
// releases with the process. A test that holds slots may wait for one that waits for it, so
// the wait has an end, and then there is one server more. Servers that tests take turns at
// are few, and most of the time idle: they have no slots.
func takeSlot(t testing.TB) {
	if _, isShared := t.(interface{ shared() }); isShared {
		return
	}
	for deadline := time.Now().Add(patience / 3); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for i := range mostServers {
			f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("weir-redistest-%d-%d", os.Getuid(), i)), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return // it bounds nothing where it cannot
			}
			if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				t.Cleanup(func() { _ = f.Close() })
				return
			}
			_ = f.Close()
		}
	}
}
