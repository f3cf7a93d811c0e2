package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// diagnosis is the longest time of a diagnosis.
const diagnosis = time.Second

// Diagnose returns the address of the server that has one of the parts of the slots. If err says only
// that there was no answer, Diagnose dials the server, and its error says why: go-redis does not
// report that while it goes on trying.
func (t *Transport) Diagnose(part, parts int, err error) (server string, _ error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), diagnosis, &silence{in: diagnosis})
	defer cancel()
	nodes, unknown := Call(ctx, func(ctx context.Context) ([]endpoint, error) { return t.nodes(ctx, part, parts) })
	if server = addresses(nodes); unknown != nil {
		if cluster, ok := t.Client.(*redis.ClusterClient); ok {
			server = strings.Join(cluster.Options().Addrs, ", ")
		}
	}
	if !isMute(err) || len(nodes) == 0 && unknown == nil {
		return server, err
	}
	if unknown == nil {
		_, unknown = Call(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, dial(ctx, nodes) })
	}
	if unknown == nil {
		return server, &diagnosed{err, errors.New("though it accepts connections")}
	}
	return server, &diagnosed{err, fmt.Errorf("and cannot be reached: %w", unknown)}
}

// isMute reports whether err does not say why there was no answer.
func isMute(err error) bool {
	var known *diagnosed
	if err == nil || errors.As(err, &known) {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// A diagnosed is an error and the result of its diagnosis.
type diagnosed struct{ err, found error }

func (d *diagnosed) Error() string   { return d.err.Error() + ", " + d.found.Error() }
func (d *diagnosed) Unwrap() []error { return []error{d.err, d.found} }

// An endpoint is a server and the client's own way to dial it, which may use a proxy or ask sentinels.
type endpoint struct {
	addr string
	dial func(context.Context) (net.Conn, error)
}

func endpointOf(node *redis.Client) endpoint {
	o := node.Options()
	return endpoint{address(o), func(ctx context.Context) (net.Conn, error) { return o.Dialer(ctx, o.Network, o.Addr) }}
}

// dial connects to each of the nodes, and returns the first error.
func dial(ctx context.Context, nodes []endpoint) error {
	for _, node := range nodes {
		conn, err := node.dial(ctx)
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
	return nil
}

// nodes are the servers that may have a part.
func (t *Transport) nodes(ctx context.Context, part, parts int) (nodes []endpoint, _ error) {
	switch client := t.Client.(type) {
	case *redis.Client:
		nodes = append(nodes, endpointOf(client))
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, keyInPart(part, parts))
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, endpointOf(node))
	}
	return nodes, nil
}

// keyInPart returns a key in the slots of a part. Mostly one node has all of them.
func keyInPart(part, parts int) string {
	for i := 0; ; i++ {
		if key := strconv.Itoa(i); int(SlotOf([]byte(key)))*parts/Slots == part {
			return key
		}
	}
}

// addresses lists the addresses of nodes for a message.
func addresses(nodes []endpoint) string {
	var names []string
	for _, node := range nodes {
		if node.addr != "" {
			names = append(names, node.addr)
		}
	}
	return strings.Join(names, ", ")
}
