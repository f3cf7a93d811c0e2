package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
)

// probeSuffix names what TryWrite writes. No counter is named like this: a tier's name is not
// empty, and has no colon.
const probeSuffix = "::probe"

// TryWrite writes to where the charges are counted, beside their counters, for package
// failover to find out whether Redis can be written.
func (s *store) TryWrite(ctx context.Context, charges []limiter.Charge) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pipeline := s.carrier.client.Pipeline()
	var tags [][tagSize]byte
	for i := range charges {
		tag := s.keys.tag(charges[i].Key)
		if slices.Contains(tags, tag) {
			continue
		}
		tags = append(tags, tag)
		pipeline.Set(ctx, s.keys.name(tag, charges[i].Quota)+probeSuffix, "", probeLife)
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		s.doubt() // the refusal that came before is no sign of life
		return s.carrier.failed(err, s.timeout)
	}
	return nil
}

// probeLife is how long what TryWrite wrote is there.
const probeLife = time.Second

// Diagnose implements what package failover asks for.
func (s *store) Diagnose(part int, err error) (server string, _ error) {
	return s.carrier.diagnose(part, len(s.lanes), err)
}

// diagnosis bounds how long a diagnosis may take: some ways to a server heed no context.
const diagnosis = time.Second

// diagnose names the server of one of so many parts. If that gave no answer, it tries to
// reach it, as go-redis keeps to itself why it could not while it goes on trying.
func (c *carrier) diagnose(part, parts int, err error) (server string, _ error) {
	mute := isMute(err)
	named, found := make(chan string, 1), make(chan error, 1) // who is late finds no reader
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), diagnosis)
		defer cancel()
		nodes, unknown := c.nodes(ctx, part, parts)
		named <- cmp.Or(addresses(nodes), c.configured())
		if mute && (len(nodes) > 0 || unknown != nil) {
			found <- reach(ctx, nodes, unknown)
			return
		}
		found <- nil
	}()
	server = c.configured()
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
func (c *carrier) configured() string {
	switch client := c.client.(type) {
	case *redis.Client:
		return addresses([]*redis.Client{client})
	case *redis.ClusterClient:
		return strings.Join(client.Options().Addrs, ", ")
	}
	return ""
}

// isMute tells an error that says nothing about why there was no answer.
func isMute(err error) bool {
	var known *diagnosed
	return errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &known)
}

// A diagnosed is an error with what was found out about it.
type diagnosed struct{ err, found error }

func (d *diagnosed) Error() string   { return d.err.Error() + ", " + d.found.Error() }
func (d *diagnosed) Unwrap() []error { return []error{d.err, d.found} }

// reach is whether connections to nodes can be made, by the client's own Dialer: it may go by
// a proxy, or ask sentinels.
func reach(ctx context.Context, nodes []*redis.Client, unknown error) error {
	if unknown != nil {
		return fmt.Errorf("and cannot be reached: %w", unknown)
	}
	for _, node := range nodes {
		o := node.Options()
		conn, err := o.Dialer(ctx, o.Network, o.Addr)
		if err != nil {
			return fmt.Errorf("and cannot be reached: %w", err)
		}
		_ = conn.Close()
	}
	return errors.New("though it accepts connections")
}

// nodes are those that a part is on, as the client knows them.
func (c *carrier) nodes(ctx context.Context, part, parts int) (nodes []*redis.Client, _ error) {
	switch client := c.client.(type) {
	case *redis.Client:
		return []*redis.Client{client}, nil
	case *redis.ClusterClient:
		for _, key := range keysInPart(part, parts) {
			node, err := client.MasterForKey(ctx, key)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(nodes, func(n *redis.Client) bool { return n.Options().Addr == node.Options().Addr }) {
				nodes = append(nodes, node)
			}
		}
	case *redis.Ring:
		var mu sync.Mutex
		err := client.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, node)
			return nil
		})
		slices.SortFunc(nodes, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
		return nodes, err
	}
	return nodes, nil
}

// keysInPart are some keys whose slots are a part's.
func keysInPart(part, parts int) (keys []string) {
	const enough = 8
	for i := 0; len(keys) < enough; i++ {
		if key := strconv.Itoa(i); int(slotOf([]byte(key)))*parts/slots == part {
			keys = append(keys, key)
		}
	}
	return keys
}

// addresses names nodes for people.
func addresses(nodes []*redis.Client) string {
	var names []string
	for _, node := range nodes {
		if addr := node.Options().Addr; addr != sentinelAddr {
			names = append(names, addr)
		}
	}
	return strings.Join(names, ", ")
}
