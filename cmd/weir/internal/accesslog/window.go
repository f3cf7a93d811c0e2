package accesslog

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"
)

// How many entries are looked ahead at least, to put them in order: by the log's times, which
// servers write nearly in order, and by when requests began, which may be long before.
const (
	loggedWindow = 1 << 14
	begunWindow  = 1 << 15
)

// A window puts entries in the order of their times, as far as they are out of order by no
// more than size entries.
type window struct {
	size  int
	held  []placed
	ready int   // of held, in order, that none can come before any more
	taken int   // of those
	floor int64 // the time of the last of them, before it was spread
}

// A placed entry has beside it what orders it, so that to order them reads one array.
type placed struct {
	at, line int64
	*Entry
}

// next is the next entry of those that from gives, in order. If it spreads, it spreads the
// entries of a second that are not told apart.
func (w *window) next(from func() (*Entry, error), spreads bool) (*Entry, error) {
	if w.taken == w.ready {
		w.held = slices.Delete(w.held, 0, w.taken)
		w.taken, w.ready = 0, 0
		var err error
		for len(w.held) < 2*w.size && err == nil {
			var e *Entry
			if e, err = from(); err == nil {
				w.held = append(w.held, placed{e.At, e.line, e})
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(w.held) == 0 {
			return nil, io.EOF
		}
		if !slices.IsSortedFunc(w.held, earlier) {
			slices.SortFunc(w.held, earlier)
		}
		if w.ready = len(w.held); err == nil {
			w.ready = w.size
		}
		if spreads {
			w.ready = spread(w.held, w.ready)
		}
		w.floor = w.held[w.ready-1].at
	}
	e := w.held[w.taken].Entry
	w.taken++
	return e, nil
}

func earlier(a, b placed) int {
	if a.at != b.at {
		return cmp.Compare(a.at, b.at)
	}
	return cmp.Compare(a.line, b.line)
}

// spread spreads the entries of each whole second evenly over it, in the order of the log. It
// returns how many were spread: ready, or fewer, so that no second is torn.
func spread(held []placed, ready int) int {
	const second = 1_000_000
	for from := 0; from < ready; {
		to, whole := from, int64(0)
		for ; to < len(held) && held[to].at == held[from].at; to++ {
			if held[to].whole {
				whole++
			}
		}
		if to > ready && from > 0 && ready < len(held) {
			return from
		}
		i := int64(0)
		for _, e := range held[from:to] {
			if e.whole {
				e.At += (2*i + 1) * second / (2 * whole)
				e.whole = false
				i++
			}
		}
		from = to
		ready = max(ready, to) // a second of more than a window
	}
	return ready
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
