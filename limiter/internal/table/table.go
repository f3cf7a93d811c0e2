// Package table holds small states under 64-bit digests, in memory that the
// garbage collector has nothing to follow in.
//
// A [Table] is a power of two of shards, each behind a mutex. A shard is an array
// of lines, and a line is one 64-byte cache line with three cells:
//
//	byte 0      6       7      8           32          56     64
//	     | tags | pinned| spill| 3 digests | 3 states  | spare |
//
// A digest's low bits choose the shard and its high bits the home line. The cell is
// in the home line or one of the next [window]-1; a line without the spill mark ends
// the search, because nothing was ever put beyond it for want of room.
//
// A tag says how to read the state; the table itself never does. Whoever uses it
// supplies a [Judge], and the cells it calls idle carry no information: they are
// taken over by new digests on the way, which is all the sweeping there is. A shard
// grows by a quarter when a window is full of live cells, up to its maximum. There,
// the cell nearest to idle makes room, unless all are refusing.
//
// A state that does not fit a word is a reference to a span of words kept beside
// the lines (see span.go); its tag has the Boxed bit.
package table

import (
	"math"
	"math/bits"
	"sync"
	"unsafe"
)

const (
	cellsPerLine = 3
	window       = 8  // lines in which a digest may lie
	maxShards    = 64 // so that a set of shards is a uint64
	minLines     = 4
)

// A Tag says how a cell's state is to be read. Zero marks an empty cell.
type Tag uint16

// Boxed marks the tags whose state is a reference to a span.
const Boxed Tag = 1 << 15

type line struct {
	tag    [cellsPerLine]Tag
	pinned uint8 // a bit for each cell that must stay where it is
	spill  bool  // a digest was put further on because this line was full
	digest [cellsPerLine]uint64
	state  [cellsPerLine]uint64
	_      uint64
}

// A line is a cache line.
var _ [64]byte = [unsafe.Sizeof(line{})]byte{}

// A Cell is a place in a shard, good until the shard grows.
type Cell int

// A Judge tells what a state is worth at the shard's time: after how many
// microseconds it carries no information any more (0: it already does not),
// and whether it is refusing.
type Judge interface {
	Judge(s *Shard, tag Tag, state uint64) (idleIn int64, refusing bool)
}

// A Table is a fixed number of shards.
type Table struct {
	shards []Shard
}

// New returns a table that never has more than maxCells cells, rounded up to
// whole lines in each shard. It begins with none.
func New(maxCells int) *Table {
	shards := 1
	for shards < maxShards && maxCells/shards > 1024 {
		shards *= 2
	}
	t := &Table{shards: make([]Shard, shards)}
	perShard := (maxCells + shards - 1) / shards
	for i := range t.shards {
		t.shards[i].maxLines = (perShard + cellsPerLine - 1) / cellsPerLine
	}
	return t
}

// Index is which shard a digest belongs to.
func (t *Table) Index(digest uint64) int { return int(digest) & (len(t.shards) - 1) }

// Shard is the shard of that index.
func (t *Table) Shard(i int) *Shard { return &t.shards[i] }

// Shards is how many there are.
func (t *Table) Shards() int { return len(t.shards) }

// A Shard is a part of a table. Its methods need its lock.
type Shard struct {
	sync.Mutex

	// Now is the latest time at which something was decided here.
	Now int64

	// Evicted counts the live cells that made room for new ones.
	Evicted uint64

	lines    []line
	maxLines int
	spans    spans

	_ [64]byte // keeps neighbours' locks on other cache lines
}

// NewShard returns a shard on its own, without a maximum.
func NewShard() *Shard { return &Shard{maxLines: math.MaxInt / cellsPerLine} }

// Cells is how many cells the shard has memory for.
func (s *Shard) Cells() int { return len(s.lines) * cellsPerLine }

// Bytes is how much memory the shard's cells and spans take.
func (s *Shard) Bytes() int {
	return cap(s.lines)*int(unsafe.Sizeof(line{})) + s.spans.bytes()
}

// At is what a cell holds.
func (s *Shard) At(c Cell) (Tag, uint64) {
	l, i := s.cell(c)
	return l.tag[i], l.state[i]
}

// Set replaces what a cell holds. The caller frees a span it no longer refers to.
func (s *Shard) Set(c Cell, tag Tag, state uint64) {
	l, i := s.cell(c)
	l.tag[i], l.state[i] = tag, state
}

// Clear empties a cell.
func (s *Shard) Clear(c Cell) {
	l, i := s.cell(c)
	s.clear(l, i)
}

// Pin keeps Room and growth from taking a cell over, until Unpin.
func (s *Shard) Pin(c Cell) {
	l, i := s.cell(c)
	l.pinned |= 1 << i
}

// Unpin undoes Pin.
func (s *Shard) Unpin(c Cell) {
	l, i := s.cell(c)
	l.pinned &^= 1 << i
}

// Find is where a digest's cell is.
func (s *Shard) Find(digest uint64) (Cell, bool) {
	n := len(s.lines)
	if n == 0 {
		return 0, false
	}
	at := home(digest, n)
	for range min(window, n) {
		l := &s.lines[at]
		for i := range l.digest {
			if l.digest[i] == digest && l.tag[i] != 0 {
				return Cell(at*cellsPerLine + i), true
			}
		}
		if !l.spill {
			break
		}
		if at++; at == n {
			at = 0
		}
	}
	return 0, false
}

// Room makes a cell for a digest that Find did not find, with that tag and state 0.
// It takes an empty or idle cell, or grows the shard, or evicts the cell nearest to
// idle; it fails when every cell in reach is refusing or pinned. A growth moves cells.
func (s *Shard) Room(digest uint64, tag Tag, judge Judge) (Cell, bool) {
	for {
		free, victim := s.search(digest, judge)
		switch {
		case free >= 0:
			return s.occupy(free, digest, tag), true
		case s.grow(judge):
			continue
		case victim >= 0:
			s.Evicted++
			return s.occupy(victim, digest, tag), true
		default:
			return 0, false
		}
	}
}

const nowhere Cell = -1

// search looks through a digest's window for the first cell that is free, and if
// there is none for the one that can best be spared.
func (s *Shard) search(digest uint64, judge Judge) (free, victim Cell) {
	n := len(s.lines)
	victim = nowhere
	if n == 0 {
		return nowhere, nowhere
	}
	var nearest int64
	at := home(digest, n)
	for range min(window, n) {
		l := &s.lines[at]
		for i := range l.tag {
			if l.tag[i] == 0 {
				return Cell(at*cellsPerLine + i), nowhere
			}
		}
		for i := range l.tag {
			if l.pinned&(1<<i) != 0 {
				continue
			}
			cell := Cell(at*cellsPerLine + i)
			idleIn, refusing := judge.Judge(s, l.tag[i], l.state[i])
			if idleIn == 0 {
				return cell, nowhere
			}
			if !refusing && (victim == nowhere || idleIn < nearest) {
				victim, nearest = cell, idleIn
			}
		}
		if at++; at == n {
			at = 0
		}
	}
	return nowhere, victim
}

// occupy gives a cell to a digest and marks the lines before it as passed over.
func (s *Shard) occupy(c Cell, digest uint64, tag Tag) Cell {
	l, i := s.cell(c)
	s.clear(l, i)
	l.tag[i], l.digest[i] = tag, digest
	n := len(s.lines)
	for at := home(digest, n); at != int(c)/cellsPerLine; {
		s.lines[at].spill = true
		if at++; at == n {
			at = 0
		}
	}
	return c
}

// grow drops the idle cells and, unless that made ample room, moves the others to
// a larger array. It reports false when the shard is as large as it may be.
func (s *Shard) grow(judge Judge) bool {
	n := len(s.lines)
	if n >= s.maxLines {
		return false
	}
	live := 0
	for at := range s.lines {
		l := &s.lines[at]
		for i := range l.tag {
			if l.tag[i] == 0 {
				continue
			}
			if idleIn, _ := judge.Judge(s, l.tag[i], l.state[i]); idleIn == 0 && l.pinned&(1<<i) == 0 {
				s.clear(l, i)
				continue
			}
			live++
		}
	}
	size := n
	if live > s.Cells()/2 || n == 0 {
		size = max(minLines, n+(n+3)/4)
	}
	for {
		size = min(size, s.maxLines)
		if lines, ok := s.rehash(size); ok {
			s.lines = lines
			return true
		}
		if size == s.maxLines {
			s.maxLines = n // a window would not hold its cells: stay as it is
			return false
		}
		size += (size + 3) / 4
	}
}

// rehash returns the cells in an array of size lines, unless some window is too small.
func (s *Shard) rehash(size int) ([]line, bool) {
	moved := Shard{lines: make([]line, size)}
	for at := range s.lines {
		l := &s.lines[at]
		for i := range l.tag {
			if l.tag[i] == 0 {
				continue
			}
			to, _ := moved.search(l.digest[i], allLive{})
			if to == nowhere {
				return nil, false
			}
			moved.occupy(to, l.digest[i], l.tag[i])
			moved.Set(to, l.tag[i], l.state[i])
			if l.pinned&(1<<i) != 0 {
				moved.Pin(to)
			}
		}
	}
	return moved.lines, true
}

// allLive judges for rehash, which has dropped the idle cells already.
type allLive struct{}

func (allLive) Judge(*Shard, Tag, uint64) (int64, bool) { return 1, true }

func (s *Shard) cell(c Cell) (*line, int) {
	return &s.lines[int(c)/cellsPerLine], int(c) % cellsPerLine
}

func (s *Shard) clear(l *line, i int) {
	if l.tag[i]&Boxed != 0 {
		s.FreeSpan(l.state[i])
	}
	l.tag[i], l.digest[i], l.state[i] = 0, 0, 0
}

// home maps a digest's high bits evenly to n lines, n being no power of two.
func home(digest uint64, n int) int {
	hi, _ := bits.Mul64(digest, uint64(n))
	return int(hi)
}
