package redisstore

import (
	"time"
)

// later is the settlements that a batcher has not sent yet. Each goes with the next decision on
// its counter, before it, or with another decision, or alone after a moment. Its lock is the
// batcher's.
type later struct {
	count  int
	queue  []*settlement            // in order, with some that are sent
	byName map[string][]*settlement // of the counter
	timer  *time.Timer              // runs flush, while there are any

	inFlight map[string]int // settlements, by name
}

// linger is how long a settlement waits for a decision to go with.
const linger = 10 * time.Millisecond

// settle sees to it that s is sent.
func (b *batcher) settle(s *settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.later
	if l.byName == nil {
		l.byName = make(map[string][]*settlement)
	}
	l.byName[s.name] = append(l.byName[s.name], s)
	l.queue = append(l.queue, s)
	if l.count++; l.count > 1 {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(linger, b.flush)
	} else {
		l.timer.Reset(linger)
	}
}

// flush sends what no decision took along. While a batch is in flight, another will follow.
func (b *batcher) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.later.count == 0:
		return
	case len(b.inFlight) == 0:
		go b.run(b.start(b.later.first(nil, b.most), false, time.Now()))
	}
	if b.later.count > 0 {
		b.later.timer.Reset(linger)
	}
}

// begin and end are for a batch that is in flight meanwhile.
func (l *later) begin(b *batch) { l.add(b, 1) }
func (l *later) end(b *batch)   { l.add(b, -1) }

func (l *later) add(b *batch, n int) {
	if b.waited == len(b.groups) {
		return
	}
	if l.inFlight == nil {
		l.inFlight = make(map[string]int)
	}
	for _, g := range b.groups {
		if g.settlement == nil {
			continue
		}
		name := g.settlement.name
		if l.inFlight[name] += n; l.inFlight[name] == 0 {
			delete(l.inFlight, name)
		}
	}
}

// isBefore reports whether a settlement of a counter of g's is in flight. As batches may
// overtake each other, g has to wait for it.
func (l *later) isBefore(g *group) bool {
	if len(l.inFlight) == 0 {
		return false
	}
	for i := range g.items {
		if l.inFlight[g.items[i].name] > 0 {
			return true
		}
	}
	return false
}

// of is how many settlements have to go before g.
func (l *later) of(g *group) (n int) {
	if l.count > 0 {
		for i := range g.items {
			n += len(l.byName[g.items[i].name])
		}
	}
	return n
}

// before is what is sent with these groups, before them: the settlements of their counters, and
// others until there are as many as groups, if there is room, and one at least.
func (l *later) before(groups []*group, room int) []*group {
	var settlements []*group
	for _, g := range groups {
		settlements = append(settlements, l.some(g, l.of(g))...)
	}
	return l.first(settlements, len(settlements)+max(1, min(room, len(groups)-len(settlements))))
}

// some is up to n of the settlements of g's counters, of each those that came first.
func (l *later) some(g *group, n int) (settlements []*group) {
	now := time.Now()
	for i := range g.items {
		name := g.items[i].name
		of := l.byName[name]
		some := min(len(of), n-len(settlements))
		for _, s := range of[:some] {
			s.isSent = true
			settlements = append(settlements, s.group(now))
		}
		l.count -= some
		if some < len(of) {
			l.byName[name] = of[some:]
		} else {
			delete(l.byName, name)
		}
	}
	return settlements
}

// first appends those that came first, up to n groups in all.
func (l *later) first(groups []*group, n int) []*group {
	now := time.Now()
	for len(l.queue) > 0 {
		s := l.queue[0]
		if !s.isSent {
			if len(groups) >= n {
				break
			}
			s.isSent = true
			groups = append(groups, s.group(now))
			l.count--
			// It is the first of its counter too.
			if of := l.byName[s.name][1:]; len(of) > 0 {
				l.byName[s.name] = of
			} else {
				delete(l.byName, s.name)
			}
		}
		l.queue[0] = nil
		l.queue = l.queue[1:]
	}
	return groups
}
