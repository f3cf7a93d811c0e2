package shed

import "time"

// A queue is the requests that wait, by level.
type queue struct {
	levels []level
	n      int
}

// A level has those apart that have waited for longer than a request may: they delay none that
// can still be answered in time.
type level struct{ timely, late list }

func (l *level) n() int { return l.timely.n + l.late.n }

// A list is linked through its places, in the order in which they came.
type list struct {
	oldest, newest *place
	n              int
}

func (l *list) push(p *place) {
	p.in, p.older, p.newer = l, l.newest, nil
	if l.newest != nil {
		l.newest.newer = p
	} else {
		l.oldest = p
	}
	l.newest = p
	l.n++
}

func (l *list) remove(p *place) {
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

func (q *queue) push(p *place) {
	q.levels[p.level].timely.push(p)
	q.n++
}

func (q *queue) remove(p *place) {
	p.in.remove(p)
	q.n--
}

// next is the request of the first level that has any that is to be admitted first: of those
// that came after since the oldest or, from the level cut on, the newest.
func (q *queue) next(cut int, since time.Duration) *place {
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

// last is the request that is to be refused first: the oldest of the last level.
func (q *queue) last() *place {
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
