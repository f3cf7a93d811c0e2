// Package redistest runs redis-server processes for tests, on free ports of the loopback interface: a
// server, a cluster of three masters, or a master with a replica and three sentinels. They end with
// the test.
//
// If redis-server is missing, the test is skipped with a message. With CI or WEIR_REQUIRE_REDIS in the
// environment, as under make test, it fails instead.
package redistest

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A Server is a redis-server process, or a sentinel.
type Server struct {
	Addr string // 127.0.0.1:port

	t    testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd

	altered atomic.Bool // by its test, so no other test may use it
}

// Start runs a server without persistence. Options are redis-server's, such as "--maxmemory", "2mb".
// Under Main, tests without options share servers, one test at a time. A server that a test has
// killed, paused or configured is not used again.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	if len(options) == 0 && pooled {
		return servers.take(t, func(t testing.TB) *Server { return startOwn(t) }, (*Server).forget)
	}
	return startOwn(t, options...)
}

func startOwn(t testing.TB, options ...string) *Server {
	t.Helper()
	port := freePort(t)
	args := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, options...)
	return start(t, port, args)
}

func start(t testing.TB, port string, args []string) *Server {
	t.Helper()
	s := &Server{Addr: "127.0.0.1:" + port, t: t, dir: t.TempDir(), args: args}
	s.launch()
	t.Cleanup(func() {
		s.Resume()
		s.Kill()
	})
	return s
}

func (s *Server) launch() {
	s.t.Helper()
	s.cmd = exec.Command(executable(s.t, "redis-server"), s.args...)
	s.cmd.Dir = s.dir
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("redistest: start redis-server: %v", err)
	}
	s.await("to answer", func() bool {
		answer, err := s.Do("PING")
		return err == nil && answer == "PONG"
	})
}

// Kill ends the process at once, as kill -9 does. Its data is lost.
func (s *Server) Kill() {
	s.altered.Store(true)
	if s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may be gone already
	_ = s.cmd.Wait()
}

// Restart kills the process and starts it again, empty, at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.launch()
}

// Pause makes the server hang (SIGSTOP): connections stay open, and it does not answer. Pause returns
// when the process has stopped.
func (s *Server) Pause() {
	s.t.Helper()
	s.altered.Store(true)
	s.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		s.t.Fatalf("redistest: %s did not stop: status %v, %v", s.Addr, status, err)
	}
}

// Resume undoes Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(sig)
	}
}

// Do sends one command on a new connection and returns the answer as text, an array with a line for
// each element.
func (s *Server) Do(command ...string) (string, error) {
	if command[0] == "ACL" || command[0] == "REPLICAOF" || command[0] == "CONFIG" && command[1] == "SET" {
		s.altered.Store(true)
	}
	conn, err := s.open()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.do(command...)
}

// MustDo is Do, and fails the test on an error.
func (s *Server) MustDo(command ...string) string {
	s.t.Helper()
	answer, err := s.Do(command...)
	if err != nil {
		s.t.Fatalf("redistest: %s: %v", strings.Join(command, " "), err)
	}
	return answer
}

// await polls until done returns true, and fails the test after Patience.
func (s *Server) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	s.t.Fatalf("redistest: %s took more than %v %s\n%s", s.Addr, Patience, what, log)
}

// executable is the path of a program of Redis. If it is missing, the test ends.
func executable(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	message := name + " is not installed; install it with: apt-get install redis-server (Debian, Ubuntu) or brew install redis (macOS)"
	if os.Getenv("CI") != "" || os.Getenv("WEIR_REQUIRE_REDIS") != "" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// freePort returns a free port. The port 10,000 above it is free too, as a node of a cluster uses both.
// Systems give higher ports to outgoing connections.
func freePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := 11_000 + rand.IntN(10_000)
		if isFree(port) && isFree(port+10_000) {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("redistest: there is no free port")
	return ""
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
