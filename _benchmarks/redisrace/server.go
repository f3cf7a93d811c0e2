package main

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

// startServer runs a redis-server without persistence on a free port until stop is called
// or ctx ends.
func startServer(ctx context.Context) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if err := l.Close(); err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "redisrace")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, "redis-server",
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	if err := cmd.Start(); err != nil {
		_ = os.Remove(dir)
		if errors.Is(err, exec.ErrNotFound) {
			return "", nil, errors.New("redis-server is not installed; install it with: apt-get install redis-server (Debian, Ubuntu) or brew install redis (macOS)")
		}
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill() // it may be gone already
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := client.Ping(ctx).Err()
		if err == nil {
			return addr, stop, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			stop()
			return "", nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}
