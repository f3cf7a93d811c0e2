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

// events are those to come.
type events struct {
	made int
	heap heap[event]
}

func (l *events) add(now, after time.Duration, do func()) {
	l.made++
	l.heap.push(event{now + max(0, after), l.made, do})
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
