package redisstore

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A sender brings batches to Redis.
type sender struct {
	*wire.Transport
	scripts *scripts
	clock   *counters.Clock
	batches *atomic.Uint64
}

func newSender(t *wire.Transport, s *scripts) *sender {
	return &sender{t, s, &counters.Clock{}, &atomic.Uint64{}}
}

// within returns the sender with that deadline on round trips, and reports whether its client
// keeps deadlines.
func (s *sender) within(timeout time.Duration) (*sender, bool) {
	other := *s
	transport, keeps := s.Transport.Within(timeout)
	other.Transport = transport
	return &other, keeps
}

// send is a [sendFunc].
func (s *sender) send(b *batch, finished func()) {
	s.batches.Add(1)
	requests := []*request{{groups: b.groups, batch: b}}
	if s.Split {
		requests = splitByTag(b)
	}
	for _, r := range requests {
		r.encode(s.clock.Now())
	}
	for rest := slices.Clone(requests); ; b.again() {
		s.sendOnce(b, rest)
		rest = slices.DeleteFunc(rest, func(r *request) bool {
			err := r.Err()
			if wire.IsAnswer(err) {
				b.hear()
			}
			return err == nil || !s.amend(r, err)
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
	for _, r := range requests {
		r.deliver()
	}
}

// sendOnce sends requests to Redis, in one round trip for each server.
func (s *sender) sendOnce(b *batch, requests []*request) {
	var space [1]*wire.Request
	all := space[:0]
	for _, r := range requests {
		r.Script = s.scripts.of(r.algorithms)
		r.Once = corrects(r.groups)
		all = append(all, &r.Request)
	}
	s.Send(b, all)
}

// corrects reports whether there are settlements among groups, which count twice if they are sent
// twice. A take that does only admits less.
func corrects(groups []*group) bool {
	return slices.ContainsFunc(groups, func(g *group) bool { return g.op == settle })
}

// amend changes r so that it can succeed where Redis did not run it, and reports whether it
// did.
func (s *sender) amend(r *request, err error) bool {
	switch {
	case r.dated < counters.MostCorrections && s.outOfDate(r, err):
	case isIncomplete(err) && r.algorithms&every != every:
		r.algorithms, r.WithSource = r.algorithms|every, false
	default:
		return r.Amend(err)
	}
	return true
}

// outOfDate encodes r again for Redis's time, if err says that r was for another time.
func (s *sender) outOfDate(r *request, err error) bool {
	now, ok := s.clock.Correct(err)
	if !ok {
		return false
	}
	r.dated++
	r.encode(now)
	return true
}

// splitByTag makes a request for each tag.
func splitByTag(b *batch) []*request {
	index := make(map[keyfunc.Digest]int, len(b.groups))
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
