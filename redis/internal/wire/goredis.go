package wire

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Two things in this file rest on how go-redis works inside. The tests in goredis_test.go hold them, with the
// oldest version in go.mod and the newest:
//
//   - A client that NewFailoverClient has made has no address in Options.Addr: its dialer asks sentinels.
//   - A connection is closed if an answer begins with READONLY, and no other of the pool.

// Within returns a transport that waits no longer than the timeout for each read and write, if the client is for
// one server: by a copy of the client (WithTimeout), which has the same connections and no hooks. If the client
// heeds contexts, it is used itself, and contexts need deadlines. So is a Cluster's client, which may have other
// timeouts.
func (t *Transport) Within(timeout time.Duration) *Transport {
	client, ok := t.Client.(*redis.Client)
	if !ok || client.Options().ContextTimeoutEnabled {
		return t
	}
	other := *t
	other.sender = client.WithTimeout(timeout)
	return &other
}

// HasIdle reports whether a connection is ready. Of a Cluster that is not known, and HasIdle returns true.
func (t *Transport) HasIdle() bool {
	client, ok := t.Client.(*redis.Client)
	return !ok || client.PoolStats().IdleConns > 0
}

// DialTimeout is how long the client tries to make a connection.
func (t *Transport) DialTimeout() time.Duration {
	switch client := t.Client.(type) {
	case *redis.Client:
		return client.Options().DialTimeout
	case *redis.ClusterClient:
		return client.Options().DialTimeout
	}
	return 0
}

// Reach dials the servers of a part of the slots, as the client does, and returns why one cannot be reached:
// go-redis tries five times before it says so.
func (t *Transport) Reach(ctx context.Context, part, parts int) error {
	if cluster, ok := t.Client.(*redis.ClusterClient); ok { // to find the nodes of a part, go-redis dials one of these
		dialer := cluster.Options().Dialer
		if dialer == nil {
			dialer = new(net.Dialer).DialContext
		}
		var failed error
		for _, addr := range cluster.Options().Addrs {
			conn, err := dialer(ctx, "tcp", addr)
			if err == nil {
				_ = conn.Close()
				return nil
			}
			failed = err
		}
		return failed
	}
	nodes, err := t.nodes(ctx, part, parts)
	if err != nil {
		return err
	}
	return dial(ctx, nodes)
}

// address returns the address of a client's server, or "" if its dialer has to ask for that.
func address(o *redis.Options) string {
	if _, _, err := net.SplitHostPort(o.Addr); err != nil && o.Network != "unix" {
		return ""
	}
	return o.Addr
}

// A Run is one run of a script, and then its reply. go-redis does not send it again if the reply is lost: Redis
// may have run it.
type Run struct {
	*redis.Cmd // after Send

	Script     *Script
	Arguments  []any // two that Send fills in, the number of keys, the keys, the arguments
	WithSource bool  // send the script's source, not its hash
}

// NoRetry implements [redis.Cmder].
func (r *Run) NoRetry() bool { return true }

// isNotRun reports whether err says that Redis has not run a script, and may run it in a moment.
func isNotRun(err error) bool {
	for _, code := range []string{"TRYAGAIN ", "LOADING ", "CLUSTERDOWN ", "MASTERDOWN "} {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED)
}

// TryWrite writes keys that live as long: one, or in a Cluster all. If the server answers that
// it is a replica, TryWrite writes on each idle connection, so that go-redis closes those that lead to a
// replica: the address may lead to another server since they were made.
func (t *Transport) TryWrite(ctx context.Context, life time.Duration, names ...string) error {
	var err error
	if len(names) == 1 || !t.IsSplit() {
		err = t.sender.Set(ctx, names[0], "", life).Err() // go-redis may have other connections for pipelines
	} else {
		pipeline := t.sender.Pipeline()
		for _, name := range names {
			pipeline.Set(ctx, name, "", life)
		}
		_, err = pipeline.Exec(ctx)
	}
	if err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		return err
	}
	client, ok := t.sender.(*redis.Client)
	if !ok {
		return err
	}
	var written, closed sync.WaitGroup
	n := int(client.PoolStats().IdleConns)
	written.Add(n)
	for range n {
		closed.Go(func() {
			conn := client.Conn()
			_ = conn.Set(ctx, names[0], "", life).Err()
			written.Done()
			written.Wait() // so that no two have the same connection
			_ = conn.Close()
		})
	}
	closed.Wait()
	return err
}
