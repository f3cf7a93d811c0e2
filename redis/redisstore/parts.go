package redisstore

import (
	"context"
	"errors"
	"slices"

	"github.com/weirgo/weir/limiter"
	stores "github.com/weirgo/weir/limiter/store"
)

// split sends the charges of each key in a group of their own, all at the same time. A key is in one slot
// of a Cluster, and so on one node.
func (s *store) split(op op, charges []limiter.Charge) []*group {
	var parts []*group
	asked := s.denied.asking()
	for i := range charges {
		c := &charges[i]
		tag := s.names.Digest(c.Key)
		p := slices.IndexFunc(parts, func(g *group) bool { return g.tag == tag })
		if p < 0 {
			p = len(parts)
			parts = append(parts, newGroup(op))
			parts[p].tag, parts[p].asked = tag, asked
		}
		g := parts[p]
		g.add(s.names.Name(tag, c.Quota), c)
		g.charges, g.indexes = append(g.charges, *c), append(g.indexes, i)
	}
	for _, g := range parts {
		s.batcher(g.tag).enqueue(g)
	}
	return parts
}

// decideSplit decides on charges that one script cannot reach together. If a part is refused or fails,
// the others are refunded.
func (s *store) decideSplit(ctx context.Context, charges []limiter.Charge) error {
	parts := s.split(take, charges)
	all, decided := true, parts[:0]
	var failed []error
	for _, g := range parts {
		if err := s.receive(ctx, g); err != nil {
			failed = append(failed, err)
			continue
		}
		all = s.conclude(g) && all
		decided = append(decided, g)
	}
	if !all || failed != nil {
		s.undo(decided)
	}
	for _, g := range decided {
		for i, index := range g.indexes {
			charges[index].Decision = g.charges[i].Decision
		}
		g.free()
	}
	return errors.Join(failed...)
}

// undo refunds the groups that were taken, and describes them as looks. It goes on after the caller has
// left. Units that cannot be refunded stay used, which admits nothing.
func (s *store) undo(decided []*group) {
	var refunds []*group
	for _, g := range decided {
		if !stores.Taken(g.charges) {
			continue
		}
		for i := range g.charges {
			if c := &g.charges[i]; c.Decision.Allowed {
				c.Cost, c.Decision.Receipt = -c.Cost, c.Quota.Undo(&c.Decision)
			} else {
				c.Cost = 0 // it is optional, and took nothing
			}
		}
		s.correctSlots(g.charges)
		refund := s.group(settle, g.charges)
		s.batcher(g.tag).enqueue(refund)
		refunds = append(refunds, refund)
	}
	for _, g := range refunds {
		if s.receive(context.Background(), g) == nil {
			g.answer.look(g.charges)
			s.denied.learn(g, false)
			g.free()
		}
	}
}
