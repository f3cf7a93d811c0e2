package redisstore

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

const (
	placesInProcesses = 6
	leaseOfProcesses  = 2 * time.Second
)

// TestProcess is what TestPlacesOfProcesses runs three times: callers that take a place, tell the
// referee, tell it again, and return the place.
func TestProcess(t *testing.T) {
	server, referee := os.Getenv("WEIR_TEST_REDIS"), os.Getenv("WEIR_TEST_REFEREE")
	if server == "" {
		t.Skip("it is run by TestPlacesOfProcesses")
	}
	s := newStore(redis.NewClient(&redis.Options{Addr: server}), Options{}).Within(patience).(*store).leases(leaseOfProcesses)
	q := concurrency(t, "exports", placesInProcesses)
	for range 12 {
		go func() {
			conn, err := net.Dial("tcp", referee)
			if err != nil {
				os.Exit(1)
			}
			tell := func(format string, args ...any) {
				fmt.Fprintf(conn, format, args...)
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					os.Exit(0) // the test is over
				}
			}
			for {
				var d [1]limiter.Decision
				charges := []limiter.Charge{charge(q, "key", 1)}
				if err := s.Decide(context.Background(), charges, d[:]); err != nil || !d[0].Allowed {
					time.Sleep(rand.N(5 * time.Millisecond))
					continue
				}
				tell("+ %d %d\n", os.Getpid(), d[0].At)
				time.Sleep(rand.N(5 * time.Millisecond))
				tell("- %d 0\n", os.Getpid())
				charges[0].At = d[0].At
				_ = s.Settle(context.Background(), []limiter.Settlement{{Charge: charges[0]}})
				time.Sleep(rand.N(30 * time.Millisecond)) // or one process would have them all
			}
		}()
	}
	select {}
}

// An umpire counts the events of processes, and notes the most of them at once, and when on
// Redis's clock there were first more than the limit. It hears of an event after Redis has, and of
// its end before, so it never counts more than there are.
type umpire struct {
	mu     sync.Mutex
	of     map[int]int
	latest map[int]int64 // when Redis admitted a process's last one
	now    int

	since int64 // it looks at what there is when one comes that was admitted after that
	looks bool
	most  int
	over  int64
}

func (u *umpire) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var what string
		var pid int
		var at int64
		if _, err := fmt.Sscan(lines.Text(), &what, &pid, &at); err != nil {
			return
		}
		u.mu.Lock()
		n := 1
		if what == "-" {
			n = -1
		}
		u.of[pid] += n
		u.now += n
		if n > 0 {
			u.latest[pid] = max(u.latest[pid], at)
			u.looks = u.looks || at > u.since
		}
		if u.looks {
			if u.now > placesInProcesses && n > 0 && u.over == 0 {
				u.over = at
			}
			u.most = max(u.most, u.now)
		}
		u.mu.Unlock()
		if _, err := conn.Write([]byte{'.'}); err != nil {
			return
		}
	}
}

// heldBy is how many events of a process are under way, and of all others.
func (u *umpire) heldBy(pid int) (its, others int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of[pid], u.now - u.of[pid]
}

func (u *umpire) latestOf(pid int) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.latest[pid]
}

func (u *umpire) startAnew(since int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.since, u.looks, u.most, u.over = since, false, 0, 0
}

func TestPlacesOfProcesses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	u := &umpire{of: map[int]int{}, latest: map[int]int64{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go u.serve(conn)
		}
	}()
	clock := connect(t, server)
	redisTime := func() int64 {
		now, err := clock.Time(t.Context()).Result()
		require.NoError(t, err)
		return now.UnixMicro()
	}
	var pids []int
	for range 3 {
		c := exec.Command(os.Args[0], "-test.run=^TestProcess$")
		c.Env = append(os.Environ(), "WEIR_TEST_REDIS="+server.Addr, "WEIR_TEST_REFEREE="+listener.Addr().String())
		require.NoError(t, c.Start())
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		pids = append(pids, c.Process.Pid)
	}
	// stop has a signal reach a process that holds some places, and says how many, and when.
	stop := func(pid int, signal syscall.Signal) (held int, at int64) {
		await(t, "a process to hold places", func() bool { its, _ := u.heldBy(pid); return its > 0 })
		at = redisTime()
		require.NoError(t, syscall.Kill(pid, signal))
		for before := -1; held != before; time.Sleep(50 * time.Millisecond) { // what it has sent arrives
			before = held
			held, _ = u.heldBy(pid)
		}
		return held, at
	}
	full := func(pid int) func() bool {
		return func() bool { _, others := u.heldBy(pid); return others == placesInProcesses }
	}
	check := func(held int, at int64) {
		u.mu.Lock()
		defer u.mu.Unlock()
		assert.LessOrEqual(t, u.most, placesInProcesses+held, "above the limit by no more than was held")
		if u.over != 0 {
			assert.Greater(t, u.over, at+(leaseOfProcesses*2/3-leaseOfProcesses/8).Microseconds(), "no place sooner than a lease after the last message, which was a third before at most")
		}
	}

	await(t, "all places to be used", full(0))
	u.mu.Lock()
	assert.Equal(t, placesInProcesses, u.most, "never more than the limit, and as many")
	u.mu.Unlock()

	held, at := stop(pids[0], syscall.SIGSTOP)
	if held > 0 { // else it was stopped between two events
		await(t, "the places of a process that is stopped to be used", full(pids[0]))
		check(held, at)
	}
	goesOn := redisTime()
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGCONT))
	await(t, "it to go on", func() bool { return u.latestOf(pids[0]) > goesOn })
	u.startAnew(u.latestOf(pids[0])) // by when Redis has heard what it still held
	for _, pid := range pids {
		before := u.latestOf(pid)
		await(t, "all to hold places again", func() bool { return u.latestOf(pid) > before })
	}
	check(0, 0)

	held, at = stop(pids[1], syscall.SIGKILL)
	await(t, "the places of a process that was killed to be used", full(pids[1]))
	check(held, at)
}
