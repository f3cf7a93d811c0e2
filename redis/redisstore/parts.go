package redisstore

import (
	"context"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A keyPart is the charges of a batch on one key, and so in one slot of a Cluster and on one
// node.
type keyPart struct {
	key     string
	charges []limiter.Charge
	indexes []int // of the charges in the batch
	group   *group
	taken   bool
}

func byKey(charges []limiter.Charge) []keyPart {
	var parts []keyPart
	for i, c := range charges {
		p := 0
		for p < len(parts) && parts[p].key != c.Key {
			p++
		}
		if p == len(parts) {
			parts = append(parts, keyPart{key: c.Key})
		}
		parts[p].charges = append(parts[p].charges, c)
		parts[p].indexes = append(parts[p].indexes, i)
	}
	return parts
}

// sendParts sends the charges of each key, all at the same time.
func (s *store) sendParts(op op, charges []limiter.Charge) []keyPart {
	parts := byKey(charges)
	for i := range parts {
		parts[i].group = s.send(op, parts[i].charges)
	}
	return parts
}

// decideSplit decides on charges that one script cannot reach together. Their parts go out at
// the same time. If one is refused or fails, the others are refunded.
func (s *store) decideSplit(ctx context.Context, charges []limiter.Charge, asked asking) error {
	parts := s.sendParts(take, charges)
	all := true
	var failed failures
	for i := range parts {
		p := &parts[i]
		if err := s.receive(ctx, p.group); err != nil {
			failed.add(s.Part(&p.charges[0]), err)
			continue
		}
		p.taken = s.conclude(p.group, p.charges, asked)
		all = all && p.taken
	}
	if !all || len(failed.errs) > 0 {
		s.undo(parts, asked)
	}
	for _, p := range parts {
		for i, index := range p.indexes {
			charges[index].Decision = p.charges[i].Decision
		}
	}
	return failed.err()
}

// failures are the errors of the parts of a batch. As an error they tell package failover which
// parts of the store failed, so that it goes on asking the others.
type failures struct {
	error
	errs  []error
	parts uint64
}

func (f *failures) add(part int, err error) {
	f.errs = append(f.errs, err)
	f.parts |= 1 << part
}

// err returns f if there was a failure, or nil.
func (f *failures) err() error {
	if f.errs == nil {
		return nil
	}
	f.error = wire.Join(f.errs)
	return f
}

// Parts returns the set of parts of the store that failed.
func (f *failures) Parts() uint64 { return f.parts }

func (f *failures) Unwrap() []error { return f.errs }

// undo refunds the parts that were taken, and describes them as looks. It goes on after the
// caller has left. Units that cannot be refunded stay used, which admits nothing.
func (s *store) undo(parts []keyPart, asked asking) {
	for i := range parts {
		if p := &parts[i]; p.taken {
			for j := range p.charges {
				if c := &p.charges[j]; c.Decision.Allowed {
					c.Cost, c.Decision.Receipt = -c.Cost, c.Quota.Undo(&c.Decision)
				} else {
					c.Cost = 0 // it is optional, and took nothing
				}
			}
			s.correctSlots(p.charges)
			p.group = s.send(settle, p.charges)
		}
	}
	for i := range parts {
		p := &parts[i]
		if !p.taken {
			continue
		}
		if s.receive(context.Background(), p.group) != nil {
			continue
		}
		p.group.answer.look(p.charges)
		s.denied.learn(p.charges, p.group.answer, asked, false)
		p.group.free()
	}
}
