package race

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is a redis-server without persistence, on a free port.
type Server struct {
	Addr   string
	Client *redis.Client
	Stop   func()
}

// StartServer runs one until Stop is called or ctx ends.
func StartServer(ctx context.Context) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if err := l.Close(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "race")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "redis-server",
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	if err := cmd.Start(); err != nil {
		_ = os.Remove(dir)
		if errors.Is(err, exec.ErrNotFound) {
			return nil, errors.New("redis-server is not installed; install it with: apt-get install redis-server (Debian, Ubuntu) or brew install redis (macOS)")
		}
		return nil, err
	}
	s := &Server{Addr: addr, Client: redis.NewClient(&redis.Options{Addr: addr})}
	s.Stop = func() {
		_ = s.Client.Close()
		_ = cmd.Process.Kill() // it may be gone already
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := s.Client.Ping(ctx).Err()
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			s.Stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}
