package redistest

import (
	"os/exec"
	"strings"
	"testing"
)

// StartCluster runs a cluster of three masters, with the slots spread over them.
func StartCluster(t testing.TB) []*Server {
	t.Helper()
	cli := executable(t, "redis-cli")
	var nodes []*Server
	command := []string{"--cluster", "create"}
	for range 3 {
		node := Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
		nodes = append(nodes, node)
		command = append(command, node.Addr)
	}
	if said, err := exec.Command(cli, append(command, "--cluster-yes")...).CombinedOutput(); err != nil {
		t.Fatalf("redistest: redis-cli --cluster create: %v\n%s", err, said)
	}
	for _, node := range nodes {
		node.await("to see the whole cluster", func() bool {
			info, err := node.Do("CLUSTER", "INFO")
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	return nodes
}

// Addrs are the addresses of servers.
func Addrs(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr
	}
	return addrs
}
