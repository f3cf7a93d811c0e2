package table

import "sync/atomic"

// A Snapshot is a cell as [Shard.Seek] read it, without the lock. Swap fails if the cell has changed
// since.
type Snapshot struct {
	about uint64 // the tag, and above it the marks: a struct with few fields stays in registers
	at    *uint64
	word  uint64
	seal  uint64
}

// A Result is the result of Seek.
type Result uint8

const (
	NotFound Result = iota // look again under the lock
	Busy                   // the cell is taken, most likely for nanoseconds
	Found
)

// Seek finds the cell of a digest without the lock. This is the hot path.
func (s *Shard) Seek(digest uint64) (Snapshot, Result) {
	lines := *s.lines.Load()
	n := len(lines)
	if n == 0 {
		return Snapshot{}, NotFound
	}
	l := &lines[first(digest, n)]
	for last := false; ; last = true {
		turns := atomic.LoadUint64(&l.turns)
		h := head(atomic.LoadUint64((*uint64)(&l.head)))
		for i := range l.digest {
			tag := h.tag(i)
			if atomic.LoadUint64(&l.digest[i]) != digest || tag == 0 {
				continue
			}
			word := atomic.LoadUint64(&l.word[i])
			if word == taken || atomic.LoadUint64(&l.turns) != turns {
				return Snapshot{}, Busy
			}
			return Snapshot{uint64(tag) | uint64(h.marks(i))<<tagBits, &l.word[i], word, seal(digest, tag)}, Found
		}
		if last || h&spill == 0 {
			return Snapshot{}, NotFound
		}
		l = &lines[second(digest, n)]
	}
}

// Tag returns how to read the state.
func (p Snapshot) Tag() Tag { return Tag(p.about) }

// Marks returns the cell's marks.
func (p Snapshot) Marks() Mark { return Mark(p.about >> tagBits) }

// State returns the state that the cell had.
func (p Snapshot) State() uint64 { return p.word ^ p.seal }

// Swap replaces the state, and reports whether it did.
func (p Snapshot) Swap(state uint64) bool {
	return atomic.CompareAndSwapUint64(p.at, p.word, sealed(state, p.seal))
}
