package redisstore

import (
	"slices"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A batch is groups that are sent together. It ends when its time is up, and then another batch takes
// its place, so that a connection that hangs holds up no others.
type batch struct {
	groups []*group
	waited int // groups for which a caller waits
	flight wire.Flight

	messages []*message    // about slots
	lease    time.Duration // of them; zero: there are none
	requests []*request    // before it is finished
}

func newBatch(groups []*group, led bool, start time.Time, timeout time.Duration) *batch {
	b := &batch{groups: groups, flight: wire.Flight{
		Start: start, Timeout: timeout, Patience: timeout, Led: led, Ended: make(chan struct{}),
	}}
	for _, g := range groups {
		if g.isAwaited() {
			b.waited++
		}
	}
	return b
}

// exclusive calls f for the counters of b's settlements, for which no caller waits, and of its slots.
func (b *batch) exclusive(f func(name string)) {
	for _, g := range b.groups {
		for i := range g.items {
			if it := &g.items[i]; it.isSlot || g.ended != nil {
				f(it.name)
			}
		}
	}
}

// isOverdue reports whether to wait for b no more. A batch that is not sent has the patience of
// callers. With messages about slots it has a quarter of their lease for that, and an eighth for the
// answer: so there is time for several others before a lease ends, on other connections, whatever
// the timeout is.
func (b *batch) isOverdue(now time.Time, patience time.Duration) bool {
	if written := b.flight.Written(); written != 0 {
		patience = written + b.flight.Patience
	} else if b.lease > 0 {
		patience = min(patience, b.lease/4)
	}
	return now.Sub(b.flight.Start) >= patience
}

// send is a [sendFunc].
func (s *store) send(b *batch, finished func()) {
	s.batches.Add(1)
	requests := []*request{{groups: b.groups}}
	if s.redis.IsSplit() {
		requests = splitByTag(b.groups)
	}
	for _, r := range requests {
		r.Flight = &b.flight
		r.encode(s.clock.Now())
	}
	for rest := slices.Clone(requests); ; b.flight.Again() {
		s.sendOnce(b, rest)
		rest = slices.DeleteFunc(rest, func(r *request) bool {
			if wire.IsAnswer(r.Err()) {
				b.flight.Hear()
			}
			return !s.amend(r)
		})
		if len(rest) == 0 {
			break
		}
	}
	for _, r := range requests {
		r.read()
	}
	b.requests = requests
	finished()
	if r := requests[0]; s.tries && r.failed == nil {
		s.redis.CheckRoute(&r.Request, s.names.Prefix, s.log)
	}
	for _, r := range requests {
		r.deliver()
	}
}

// sendOnce sends requests to Redis, in one round trip for each server.
func (s *store) sendOnce(b *batch, requests []*request) {
	var space [1]*wire.Request
	all := space[:0]
	for _, r := range requests {
		r.Script = s.script
		all = append(all, &r.Request)
	}
	s.redis.Send(&b.flight, all)
}

// amend changes r so that it can succeed where Redis did not run it, and reports whether it did.
func (s *store) amend(r *request) bool {
	err := r.Err()
	if err == nil {
		return false
	}
	if now, ok := s.clock.Correct(err); ok && r.dated < counters.MostCorrections {
		r.dated++
		r.encode(now)
		return true
	}
	return r.Amend(err)
}

// splitByTag makes a request for each tag.
func splitByTag(groups []*group) []*request {
	index := make(map[keyfunc.Digest]int, len(groups))
	var requests []*request
	for _, g := range groups {
		i, ok := index[g.tag]
		if !ok {
			i = len(requests)
			index[g.tag] = i
			requests = append(requests, &request{})
		}
		requests[i].groups = append(requests[i].groups, g)
	}
	return requests
}
