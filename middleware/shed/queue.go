package shed

import "time"

// A queue holds the waiters by level.
type queue struct {
	levels []level
	n      int
}

// A level has two lists, so that waiters that have waited longer than MaxWait do not delay waiters that
// can be answered in time.
type level struct{ timely, late list }

func (l *level) n() int { return l.timely.n + l.late.n }

// A list is a linked list of slots, the oldest first.
type list struct {
	oldest, newest *slot
	n              int
}

func (l *list) push(p *slot) {
	p.in, p.older, p.newer = l, l.newest, nil
	if l.newest != nil {
		l.newest.newer = p
	} else {
		l.oldest = p
	}
	l.newest = p
	l.n++
}

func (l *list) remove(p *slot) {
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		l.oldest = p.newer
	}
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		l.newest = p.older
	}
	p.in, p.older, p.newer = nil, nil, nil
	l.n--
}

func (q *queue) push(p *slot) {
	q.levels[p.level].timely.push(p)
	q.n++
}

func (q *queue) remove(p *slot) {
	p.in.remove(p)
	q.n--
}

// next returns the waiter to admit next, from the first level with waiters. Among waiters that came after
// since it is the oldest or, in levels from cut on, the newest.
func (q *queue) next(cut int, since time.Duration) *slot {
	for i := range q.levels {
		l := &q.levels[i]
		for p := l.timely.oldest; p != nil && p.came < since; p = l.timely.oldest {
			l.timely.remove(p)
			l.late.push(p)
		}
		switch {
		case l.timely.n > 0 && i < cut:
			return l.timely.oldest
		case l.timely.n > 0:
			return l.timely.newest
		case l.late.n > 0:
			return l.late.newest
		}
	}
	return nil
}

// last returns the waiter to refuse first: the oldest of the last level.
func (q *queue) last() *slot {
	for i := len(q.levels) - 1; i >= 0; i-- {
		if p := q.levels[i].late.oldest; p != nil {
			return p
		}
		if p := q.levels[i].timely.oldest; p != nil {
			return p
		}
	}
	return nil
}
