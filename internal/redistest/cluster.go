package redistest

import (
	"net"
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
		node := startOwn(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
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

// Owner returns the node of a cluster that has key's slot.
func Owner(nodes []*Server, key string) *Server {
	nodes[0].t.Helper()
	var owner *Server
	nodes[0].await("to say which has "+key, func() bool {
		for _, node := range nodes {
			if _, err := node.Do("EXISTS", key); err == nil {
				owner = node
			}
		}
		return owner != nil
	})
	return owner
}

// MoveSlot moves key's slot and its keys to another node, as resharding does. Meanwhile some keys are
// on one node and some on the other.
func MoveSlot(nodes []*Server, key string, to *Server) {
	to.t.Helper()
	BeginMove(nodes, key, to)()
}

// BeginMove moves the first key of key's slot to another node. finish moves the other keys, and ends the
// move. It takes few commands, on connections that exist before: on a busy machine each connection takes a
// while, and until the move ends, Redis runs no script whose keys are on two nodes.
func BeginMove(nodes []*Server, key string, to *Server) (finish func()) {
	to.t.Helper()
	from := Owner(nodes, key)
	if from == to {
		return func() {}
	}
	slot := from.MustDo("CLUSTER", "KEYSLOT", key)
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		to.t.Fatal(err)
	}
	conns := make(map[*Server]*conn)
	for _, node := range nodes {
		conn, err := node.open()
		if err != nil {
			to.t.Fatal(err)
		}
		to.t.Cleanup(func() { _ = conn.Close() })
		conns[node] = conn
	}
	must := func(node *Server, command ...string) string {
		to.t.Helper()
		answer, err := conns[node].do(command...)
		if err != nil {
			to.t.Fatalf("redistest: %s: %v", strings.Join(command, " "), err)
		}
		return answer
	}
	move := func(most string) (moved bool) {
		names := must(from, "CLUSTER", "GETKEYSINSLOT", slot, most)
		if names != "" {
			must(from, append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, strings.Split(names, "\n")...)...)
		}
		return names != ""
	}
	ids := make(map[*Server]string)
	for _, node := range nodes {
		ids[node] = must(node, "CLUSTER", "MYID")
	}
	must(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
	must(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
	move("1")
	return func() {
		for move("1000") {
		}
		must(to, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
		for _, node := range nodes {
			if node != to {
				must(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
			}
		}
	}
}
