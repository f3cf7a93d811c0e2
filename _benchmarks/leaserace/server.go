package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a redis-server without persistence, on a free port.
type server struct {
	addr   string
	client *redis.Client
	stop   func()
}

// startServer runs one until stop is called or ctx ends.
func startServer(ctx context.Context) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if err := l.Close(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "leaserace")
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
	s := &server{addr: addr, client: redis.NewClient(&redis.Options{Addr: addr})}
	s.stop = func() {
		_ = s.client.Close()
		_ = cmd.Process.Kill() // it may be gone already
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := s.client.Ping(ctx).Err()
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}

func (s *server) reset(ctx context.Context) error { return s.client.FlushAll(ctx).Err() }

// scripts is how many the server was asked to run: round trips that decide, settle or
// exchange.
func (s *server) scripts(ctx context.Context) (calls int, err error) {
	text, err := s.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		for _, command := range []string{"cmdstat_evalsha:calls=", "cmdstat_eval:calls="} {
			var n int
			if _, err := fmt.Sscanf(line, command+"%d,", &n); err == nil {
				calls += n
			}
		}
	}
	return calls, nil
}
