package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/redis/internal/wire"
)

// A transport brings batches to Redis.
type transport struct {
	client  redis.UniversalClient
	scripts *scripts

	// split is set where a script reaches only keys of one tag: in a Cluster or a Ring.
	split bool

	batches *atomic.Uint64

	// testClock is the server's time in tests that move it.
	testClock func() []any
}

// within is the transport with that deadline on round trips, and whether its client keeps it.
//
// A client for one server can be made to, by a copy that has its connections but may lack
// its hooks, so it is used only where it has to be. Two do not keep deadlines whatever
// they are told: go-redis dials TLS without one, and asks sentinels without one.
func (t *transport) within(timeout time.Duration) (*transport, bool) {
	client, ok := t.client.(*redis.Client)
	if !ok {
		return t, false
	}
	o := client.Options()
	if o.TLSConfig != nil || o.Addr == sentinelAddr {
		return t, false
	}
	if o.ContextTimeoutEnabled {
		return t, true
	}
	other := *t
	client = client.WithTimeout(settling * timeout) // contexts have shorter ones
	client.Options().ContextTimeoutEnabled = true
	// What is sent again may count twice, and a refused connection is known at once.
	client.Options().MaxRetries = 0
	other.client = client
	return &other, true
}

// sentinelAddr is the address of a client of redis.NewFailoverClient's.
const sentinelAddr = "FailoverClient"

// send is a [sendFunc].
func (t *transport) send(b *batch, finished func()) {
	t.batches.Add(1)
	requests := []*request{{groups: b.groups, batch: b}}
	if t.split {
		requests = splitByTag(b)
	}
	for _, r := range requests {
		r.encode()
	}
	for rest := slices.Clone(requests); ; b.again() {
		t.exchange(b, rest)
		rest = slices.DeleteFunc(rest, func(r *request) bool {
			_, err := r.cmd.result()
			if isAnswer(err) {
				b.hear()
			}
			return err == nil || !t.amend(r, err)
		})
		if len(rest) == 0 {
			break
		}
	}
	finished()
	for _, r := range requests {
		r.deliver(r.cmd.result())
	}
}

// exchange brings requests to Redis, in one round trip for each server.
func (t *transport) exchange(ctx context.Context, requests []*request) {
	for _, r := range requests {
		scripts := t.scripts.known()
		args, script := r.args, scripts.of
		if r.single {
			script = scripts.single
		}
		script(r.algorithms).Put(args, r.withSource)
		if t.testClock != nil {
			args = append(args[:len(args):len(args)], t.testClock()...)
		}
		r.cmd = command{Cmd: redis.NewCmd(ctx, args...)}
	}
	// A command has its error, here and below.
	if len(requests) == 1 {
		_ = t.client.Process(ctx, requests[0].cmd.Cmd)
		return
	}
	pipeline := t.client.Pipeline()
	for _, r := range requests {
		if r.alone {
			_ = t.client.Process(ctx, r.cmd.Cmd)
		} else {
			_ = pipeline.Process(ctx, &r.cmd)
		}
	}
	_, _ = pipeline.Exec(ctx)
}

// A command is one of several that go out together. A Cluster asks for a script to be
// tried again while of its keys' slot some are on one node and some on another. go-redis
// then repeats all that went to the node, if it was the first, though others have been
// run; or none. So it does not get to know, and the script is tried again alone.
type command struct {
	*redis.Cmd
	again error
}

// SetErr is called with every answer.
func (c *command) SetErr(err error) {
	c.again = nil
	if err != nil && isTryAgain(err) {
		c.again, err = err, nil
	}
	c.Cmd.SetErr(err)
}

func (c *command) result() (string, error) {
	if c.again != nil {
		return "", c.again
	}
	return c.Text()
}

// amend changes r so that it succeeds where Redis did not run it for want of source, or of
// some of its keys, and reports whether it could.
func (t *transport) amend(r *request, err error) bool {
	switch {
	case wire.LacksStruct(err) && !r.plain:
		t.scripts.lacking.Store(true)
		r.plain, r.withSource = true, true
	case wire.IsUnknown(err) && !r.withSource:
		r.withSource = true
	case isIncomplete(err) && r.single:
		r.single, r.withSource = false, false
		r.encodeBatch()
	case isIncomplete(err) && r.algorithms != every:
		r.algorithms, r.withSource = every, false
	case isTryAgain(err) && !r.alone:
		r.alone = true
	default:
		return false
	}
	return true
}

// isAnswer tells an answer, if only an error, from none.
func isAnswer(err error) bool {
	said := redis.Error(nil)
	return err == nil || errors.As(err, &said)
}

// splitByTag makes a request for each tag.
func splitByTag(b *batch) []*request {
	index := make(map[[tagSize]byte]int, len(b.groups))
	var requests []*request
	for _, g := range b.groups {
		i, ok := index[g.tag]
		if !ok {
			i = len(requests)
			index[g.tag] = i
			requests = append(requests, &request{batch: b})
		}
		requests[i].groups = append(requests[i].groups, g)
	}
	return requests
}
