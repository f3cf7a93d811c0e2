package openloop

import "time"

// An event happens at a time. Of several at one time, the one that was made first is first.
type event struct {
	at   time.Duration
	made int
	do   func()
}

func (e event) Before(other event) bool {
	return e.at < other.at || e.at == other.at && e.made < other.made
}

// events are those to come. Most come after one of a few times, such as a timeout, and so in the
// order in which they were made: these are in a line.
type events struct {
	made  int
	lines []line
	other heap[event]
}

type line struct {
	after time.Duration
	queue []event
}

func (l *events) add(now, after time.Duration, do func()) {
	after = max(0, after)
	l.made++
	e := event{now + after, l.made, do}
	for i := range l.lines {
		if l.lines[i].after == after {
			l.lines[i].queue = append(l.lines[i].queue, e)
			return
		}
	}
	if after >= time.Millisecond && after%time.Millisecond == 0 {
		l.lines = append(l.lines, line{after, []event{e}})
		return
	}
	l.other.push(e)
}

func (l *events) pop() (e event, ok bool) {
	var first *line
	for i := range l.lines {
		if q := l.lines[i].queue; len(q) > 0 && (first == nil || q[0].Before(first.queue[0])) {
			first = &l.lines[i]
		}
	}
	if len(l.other) > 0 && (first == nil || l.other[0].Before(first.queue[0])) {
		return l.other.pop(), true
	}
	if first == nil {
		return event{}, false
	}
	e, first.queue = first.queue[0], first.queue[1:]
	return e, true
}

// A heap has the first in front.
type heap[T interface{ Before(T) bool }] []T

func (h *heap[T]) push(v T) {
	*h = append(*h, v)
	l := *h
	i := len(l) - 1
	for ; i > 0 && v.Before(l[(i-1)/2]); i = (i - 1) / 2 {
		l[i] = l[(i-1)/2]
	}
	l[i] = v
}

func (h *heap[T]) pop() T {
	l := *h
	first, last := l[0], l[len(l)-1]
	l = l[:len(l)-1]
	*h = l
	i := 0
	for {
		next := 2*i + 1
		if next >= len(l) {
			break
		}
		if next+1 < len(l) && l[next+1].Before(l[next]) {
			next++
		}
		if !l[next].Before(last) {
			break
		}
		l[i] = l[next]
		i = next
	}
	if len(l) > 0 {
		l[i] = last
	}
	return first
}
