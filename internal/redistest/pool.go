package redistest

import (
	"os"
	"slices"
	"sync"
	"testing"
)

// Cluster is StartCluster for tests that change nothing but keys. Such tests share clusters, one test at
// a time, as a cluster takes two seconds to start. Without Main, which ends them, no tests share.
func Cluster(t testing.TB) []*Server {
	t.Helper()
	if !pooled {
		return StartCluster(t)
	}
	return clusters.take(t, StartCluster, func(nodes []*Server) bool {
		return !slices.ContainsFunc(nodes, func(node *Server) bool { return !node.forget() })
	})
}

// forget empties a server, and reports whether it is like a new one.
func (s *Server) forget() bool {
	for _, command := range [][]string{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"CONFIG", "RESETSTAT"}} {
		if s.altered.Load() {
			return false
		}
		if _, err := s.Do(command...); err != nil {
			return false
		}
	}
	return true
}

var (
	pooled   bool // Main ends the pools
	servers  pool[*Server]
	clusters pool[[]*Server]
)

func endPools() {
	servers.end()
	clusters.end()
}

// A pool is servers that tests share, one test at a time.
type pool[T any] struct {
	mu        sync.Mutex
	free, all []*shared[T]
}

// A shared is an element of a pool, and the testing.TB of its servers: it fails the test that uses them
// now, and keeps their cleanups until the end.
type shared[T any] struct {
	testing.TB
	servers  T
	cleanups []func()
}

func (s *shared[T]) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// end ends the servers, once.
func (s *shared[T]) end() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	s.cleanups = nil
}

func (s *shared[T]) TempDir() string {
	dir, err := os.MkdirTemp("", "weir-redistest")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *pool[T]) take(t testing.TB, start func(testing.TB) T, forget func(T) bool) T {
	t.Helper()
	p.mu.Lock()
	var s *shared[T]
	if n := len(p.free); n > 0 {
		s, p.free = p.free[n-1], p.free[:n-1]
		s.TB = t
	}
	p.mu.Unlock()
	if s == nil {
		s = &shared[T]{TB: t}
		p.mu.Lock()
		p.all = append(p.all, s) // even if it fails to start
		p.mu.Unlock()
		s.servers = start(s)
	}
	t.Cleanup(func() {
		if t.Failed() || !forget(s.servers) {
			s.end() // the test may have damaged them
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, s)
	})
	return s.servers
}

func (p *pool[T]) end() {
	for _, s := range p.all {
		s.end()
	}
}
