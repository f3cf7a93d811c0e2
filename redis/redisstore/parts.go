package redisstore

import (
	"cmp"
	"context"
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
	var failed failures
	for _, g := range parts {
		part := s.part(g.tag)
		if err := s.receive(ctx, g); err != nil {
			failed.add(part, err)
			continue
		}
		all = s.conclude(g) && all
		decided = append(decided, g)
	}
	if !all || failed.error != nil {
		s.undo(decided)
	}
	for _, g := range decided {
		for i, index := range g.indexes {
			charges[index].Decision = g.charges[i].Decision
		}
		g.free()
	}
	return failed.err()
}

// failures are the first error of the parts of a batch, and the parts that failed. As an error they tell
// package failover to go on asking the other parts.
type failures struct {
	error
	parts uint64
}

func (f *failures) add(part int, err error) {
	f.error = cmp.Or(f.error, err)
	f.parts |= 1 << part
}

// err returns f if there was a failure, or nil.
func (f *failures) err() error {
	if f.error == nil {
		return nil
	}
	return f
}

// Parts returns the set of parts of the store that failed.
func (f *failures) Parts() uint64 { return f.parts }

func (f *failures) Unwrap() error { return f.error }

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
