package table

import "sync/atomic"

// A Place is a cell as [Shard.Seek] saw it, without the lock. What is done to it later is
// done only if its word is still the same.
type Place struct {
	about uint64 // the tag, and above it the marks; few fields stay in registers
	at    *uint64
	word  uint64
	seal  uint64
}

// A Sight is what came of seeking a cell without the lock.
type Sight uint8

const (
	Unseen Sight = iota // with the lock there may be one
	Busy                // it is taken, most likely for nanoseconds
	Seen
)

// Seek is where a digest's cell is, as far as that can be told without the lock. This is
// the hot path.
func (s *Shard) Seek(digest uint64) (Place, Sight) {
	lines := *s.lines.Load()
	n := len(lines)
	if n == 0 {
		return Place{}, Unseen
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
				return Place{}, Busy
			}
			return Place{uint64(tag) | uint64(h.marks(i))<<tagBits, &l.word[i], word, seal(digest, tag)}, Seen
		}
		if last || h&spill == 0 {
			return Place{}, Unseen
		}
		l = &lines[second(digest, n)]
	}
}

// Tag is how the state is to be read.
func (p Place) Tag() Tag { return Tag(p.about) }

// Marks is what protects the cell.
func (p Place) Marks() Mark { return Mark(p.about >> tagBits) }

// State is what the cell held.
func (p Place) State() uint64 { return p.word ^ p.seal }

// Swap replaces the state.
func (p Place) Swap(state uint64) bool {
	return atomic.CompareAndSwapUint64(p.at, p.word, sealed(state, p.seal))
}
