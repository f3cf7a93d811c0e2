package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A Sentinel is a master with a replica, and three sentinels that watch over them.
type Sentinel struct {
	Master, Replica *Server
	Sentinels       []*Server
	Name            string // of the master, for clients to ask the sentinels
}

// StartSentinel starts a Sentinel. If the master is killed, the sentinels make the replica the master
// within a few seconds.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{Name: "weir", Master: startOwn(t, "--repl-diskless-sync-delay", "0")}
	host, port, err := net.SplitHostPort(s.Master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	s.Replica = startOwn(t, "--replicaof", host, port)
	s.Replica.await("to follow its master", func() bool {
		info, err := s.Replica.Do("INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	for range 3 {
		sentinelPort := freePort(t)
		config := filepath.Join(t.TempDir(), "sentinel.conf") // which it rewrites
		text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor %s %s %s 2\n"+
			"sentinel down-after-milliseconds %[2]s 1000\nsentinel failover-timeout %[2]s 5000\n",
			sentinelPort, s.Name, host, port)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Sentinels = append(s.Sentinels, start(t, sentinelPort, []string{config, "--sentinel"}))
	}
	for _, sentinel := range s.Sentinels {
		sentinel.await("to know the others", func() bool {
			known, err := sentinel.Do("SENTINEL", "MASTER", s.Name)
			return err == nil && strings.Contains(known+"\n", "num-other-sentinels\n2\n") && strings.Contains(known+"\n", "num-slaves\n1\n")
		})
	}
	return s
}

// AwaitFailover waits until the sentinels have made the replica the master.
func (s *Sentinel) AwaitFailover() {
	s.Replica.t.Helper()
	s.Replica.await("to become the master", func() bool {
		role, err := s.Replica.Do("ROLE")
		return err == nil && strings.HasPrefix(role, "master")
	})
	for _, sentinel := range s.Sentinels {
		sentinel.await("to name the new master", func() bool {
			addr, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
			return err == nil && strings.ReplaceAll(addr, "\n", ":") == s.Replica.Addr
		})
	}
}
