package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// diagnosis bounds how long a diagnosis may take: some ways to a server heed no context.
const diagnosis = time.Second

// Diagnose names the server of one of so many parts. If that gave no answer, it tries to
// reach it, as go-redis keeps to itself why it could not while it goes on trying.
func (t *Transport) Diagnose(part, parts int, err error) (server string, _ error) {
	mute := isMute(err)
	named, found := make(chan string, 1), make(chan error, 1) // a late answer finds no reader
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), diagnosis)
		defer cancel()
		nodes, unknown := t.nodes(ctx, part, parts)
		named <- cmp.Or(addresses(nodes), t.configured())
		if mute && (len(nodes) > 0 || unknown != nil) {
			found <- reach(ctx, nodes, unknown)
			return
		}
		found <- nil
	}()
	server = t.configured()
	late, cancel := context.WithTimeout(context.Background(), diagnosis)
	defer cancel()
	select {
	case server = <-named:
	case <-late.Done():
	}
	select {
	case reached := <-found:
		if reached != nil {
			err = &diagnosed{err, reached}
		}
	case <-late.Done():
		if mute {
			err = &diagnosed{err, fmt.Errorf("and cannot be reached in %v", diagnosis)}
		}
	}
	return server, err
}

// configured is the address that the client was given, or those that it finds a Cluster by.
func (t *Transport) configured() string {
	switch client := t.Client.(type) {
	case *redis.Client:
		return addresses([]endpoint{endpointOf(client)})
	case *redis.ClusterClient:
		return strings.Join(client.Options().Addrs, ", ")
	}
	return ""
}

// allShardsDown is what a Ring says, instead of why, once its own checks have failed.
const allShardsDown = "all ring shards are down"

// isMute tells an error that says nothing about why there was no answer.
func isMute(err error) bool {
	var known *diagnosed
	if err == nil || errors.As(err, &known) {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), allShardsDown)
}

// A diagnosed is an error with what was found out about it.
type diagnosed struct{ err, found error }

func (d *diagnosed) Error() string   { return d.err.Error() + ", " + d.found.Error() }
func (d *diagnosed) Unwrap() []error { return []error{d.err, d.found} }

// An endpoint is a server as its client reaches it: by the client's own Dialer, which may go
// by a proxy, or ask sentinels.
type endpoint struct {
	addr string
	dial func(context.Context) (net.Conn, error)
}

func endpointOf(node *redis.Client) endpoint {
	o := node.Options()
	return endpoint{o.Addr, func(ctx context.Context) (net.Conn, error) { return o.Dialer(ctx, o.Network, o.Addr) }}
}

// reach is whether connections to nodes can be made.
func reach(ctx context.Context, nodes []endpoint, unknown error) error {
	if unknown != nil {
		return fmt.Errorf("and cannot be reached: %w", unknown)
	}
	for _, node := range nodes {
		conn, err := node.dial(ctx)
		if err != nil {
			return fmt.Errorf("and cannot be reached: %w", err)
		}
		_ = conn.Close()
	}
	return errors.New("though it accepts connections")
}

// nodes are those that a part is on, as the client knows them.
func (t *Transport) nodes(ctx context.Context, part, parts int) (nodes []endpoint, _ error) {
	switch client := t.Client.(type) {
	case *redis.Client:
		return []endpoint{endpointOf(client)}, nil
	case *redis.ClusterClient:
		for _, key := range keysInPart(part, parts) {
			node, err := client.MasterForKey(ctx, key)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(nodes, func(e endpoint) bool { return e.addr == node.Options().Addr }) {
				nodes = append(nodes, endpointOf(node))
			}
		}
	case *redis.Ring:
		var mu sync.Mutex
		err := client.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, endpointOf(node))
			return nil
		})
		if err == nil && len(nodes) == 0 {
			nodes = shards(client.Options())
		}
		slices.SortFunc(nodes, func(a, b endpoint) int { return strings.Compare(a.addr, b.addr) })
		return nodes, err
	}
	return nodes, nil
}

// shards are all of a Ring's, those too that it counts as down.
func shards(o *redis.RingOptions) (all []endpoint) {
	dial := o.Dialer
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: diagnosis, TLSConfig: o.TLSConfig})
	}
	for _, addr := range o.Addrs {
		all = append(all, endpoint{addr, func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", addr) }})
	}
	return all
}

// keysInPart are some keys in the slots of a part.
func keysInPart(part, parts int) (keys []string) {
	const enough = 8
	for i := 0; len(keys) < enough; i++ {
		if key := strconv.Itoa(i); int(SlotOf([]byte(key)))*parts/Slots == part {
			keys = append(keys, key)
		}
	}
	return keys
}

// addresses names nodes for people.
func addresses(nodes []endpoint) string {
	var names []string
	for _, node := range nodes {
		if node.addr != sentinelAddr {
			names = append(names, node.addr)
		}
	}
	return strings.Join(names, ", ")
}
