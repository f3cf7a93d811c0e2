package redisstore

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A carrier brings batches to Redis.
type carrier struct {
	client  redis.UniversalClient
	scripts *scripts

	// split is set where a script reaches only keys of one tag: in a Cluster or a Ring.
	split bool

	batches atomic.Uint64

	// testClock is the server's time in tests that move it.
	testClock func() []any
}

// carry runs a batch and delivers the answers.
func (c *carrier) carry(ctx context.Context, batch []*group) {
	c.batches.Add(1)
	requests := []request{{groups: batch}}
	if c.split {
		requests = splitByTag(batch)
	}
	for i := range requests {
		requests[i].encode()
	}
	for len(requests) > 0 {
		c.send(ctx, requests)
		var again []request
		for i := range requests {
			r := &requests[i]
			reply, err := r.cmd.Text()
			if err != nil && r.amend(err) {
				again = append(again, *r)
			} else {
				r.deliver(reply, err)
			}
		}
		requests = again
	}
}

// send brings requests to Redis, in one round trip for each server.
func (c *carrier) send(ctx context.Context, requests []request) {
	for i := range requests {
		r := &requests[i]
		args := r.args
		if script := c.scripts.of(r.algorithms); r.withSource {
			args[0], args[1] = "eval", script.source
		} else {
			args[0], args[1] = "evalsha", script.hash
		}
		if c.testClock != nil {
			args = append(args[:len(args):len(args)], c.testClock()...)
		}
		r.cmd = redis.NewCmd(ctx, args...)
	}
	if len(requests) == 1 {
		_ = c.client.Process(ctx, requests[0].cmd) // the command has its error, here and below
		return
	}
	pipeline := c.client.Pipeline()
	for i := range requests {
		_ = pipeline.Process(ctx, requests[i].cmd)
	}
	_, _ = pipeline.Exec(ctx)
}

// amend changes r so that it succeeds where Redis did not run it for want of source, and
// reports whether it could.
func (r *request) amend(err error) bool {
	switch {
	case isUnknown(err) && !r.withSource:
		r.withSource = true
	case isIncomplete(err) && r.algorithms != every:
		r.algorithms, r.withSource = every, false
	default:
		return false
	}
	return true
}

// splitByTag makes a request for each tag.
func splitByTag(batch []*group) []request {
	index := make(map[[tagSize]byte]int, len(batch))
	var requests []request
	for _, g := range batch {
		i, ok := index[g.tag]
		if !ok {
			i = len(requests)
			index[g.tag] = i
			requests = append(requests, request{})
		}
		requests[i].groups = append(requests[i].groups, g)
	}
	return requests
}
