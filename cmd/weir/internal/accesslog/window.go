package accesslog

import (
	"cmp"
	"errors"
	"io"
	"math/bits"
	"slices"
)

// windowSize is the minimum number of entries to read ahead: servers write lines nearly in the order of
// answers, and a request may have begun long before.
const windowSize = 1 << 15

const second = 1_000_000 // in microseconds

// A window sorts entries by when their requests began, if no entry is more than windowSize entries out
// of order.
type window struct {
	held  []*Entry
	ready int   // how many of held are sorted and final
	taken int   // how many of these were returned
	floor int64 // the time of the last one returned

	lines map[int64]uint32 // the number of lines of each whole second that is not over
}

// next returns the next of from's entries, in order.
func (w *window) next(from func() (*Entry, error)) (*Entry, error) {
	if w.taken == w.ready {
		if err := w.fill(from); err != nil {
			return nil, err
		}
	}
	e := w.held[w.taken]
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
			w.held = append(w.held, e)
		}
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(w.held) == 0) {
		return err
	}
	slices.SortFunc(w.held, func(a, b *Entry) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.line, b.line)) })
	if w.ready = len(w.held); err == nil {
		w.ready = windowSize
	}
	w.floor = w.held[w.ready-1].At
	for at := range w.lines {
		if at+second < w.floor {
			delete(w.lines, at)
		}
	}
	return nil
}

// spread returns the time after the beginning of a second at which its next line counts, as the log has
// whole seconds. The first line is in the middle, the next two in the middle of the halves, and so on (van
// der Corput's sequence), so that any number of lines is spread evenly.
func (w *window) spread(at int64) int64 {
	w.lines[at]++
	return int64(uint64(bits.Reverse32(w.lines[at])) * second >> 32)
}
