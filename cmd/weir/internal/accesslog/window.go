package accesslog

import (
	"cmp"
	"errors"
	"io"
	"math/bits"
	"slices"
)

// windowSize is how many entries are looked ahead at least: servers write lines nearly in the order
// of answers, and a request may have begun long before.
const windowSize = 1 << 15

const second = 1_000_000 // in microseconds

// A window puts entries in the order in which requests began, as far as they are out of order by no
// more than windowSize entries.
type window struct {
	held  []placed
	ready int   // of held, in order, that none can come before any more
	taken int   // of those
	floor int64 // the time of the last of them

	lines map[int64]uint32 // of each whole second that is not over
}

// A placed entry has beside it what orders it, so that to order them reads one array.
type placed struct {
	at, line int64
	*Entry
}

// next is the next entry of those that from gives, in order.
func (w *window) next(from func() (*Entry, error)) (*Entry, error) {
	if w.taken == w.ready {
		if err := w.fill(from); err != nil {
			return nil, err
		}
	}
	e := w.held[w.taken].Entry
	w.taken++
	return e, nil
}

func (w *window) fill(from func() (*Entry, error)) error {
	w.held = slices.Delete(w.held, 0, w.taken)
	w.taken, w.ready = 0, 0
	var err error
	for len(w.held) < 2*windowSize && err == nil {
		var e *Entry
		if e, err = from(); err == nil {
			w.held = append(w.held, placed{e.At, e.line, e})
		}
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(w.held) == 0) {
		return err
	}
	slices.SortFunc(w.held, func(a, b placed) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return cmp.Compare(a.line, b.line)
	})
	if w.ready = len(w.held); err == nil {
		w.ready = windowSize
	}
	w.floor = w.held[w.ready-1].at
	for at := range w.lines {
		if at+second < w.floor {
			delete(w.lines, at)
		}
	}
	return nil
}

// spread is how long after the beginning of its second a line came, of which the log has whole
// seconds only: the first in the middle, the next two in the middle of the halves, and so on (van
// der Corput's sequence), so that they are spread evenly however many there are.
func (w *window) spread(at int64) int64 {
	w.lines[at]++
	return int64(uint64(bits.Reverse32(w.lines[at])) * second >> 32)
}
