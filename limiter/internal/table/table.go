// Package table holds small states under 64-bit digests, in memory that the
// garbage collector has nothing to follow in.
//
// A [Table] is a power of two of shards, each behind a mutex. A shard is an array
// of lines, and a line is one 64-byte cache line with three cells:
//
//	byte 0      6       9       10      16          40         64
//	     | tags | marks | spill | spare | 3 digests | 3 states |
//
// A digest's low bits choose the shard; hashes of all its bits choose two lines, and
// the cell is in one of them: in the first if there was room, and if not, in the
// second, which the first's spill mark tells. Where both are full, cells move to their
// own second lines to make room, along the shortest chain of at most maxReach lines
// (cuckoo hashing, after Pagh and Rodler 2004). So a line of three is full nearly
// always before the shard grows, and a cell is found in one or two cache misses.
//
// A tag says how to read the state; the table itself never does. Whoever uses it
// supplies a [Judge], and the cells it calls idle carry no information: they are
// taken over by new digests on the way, which is all the sweeping there is. A shard
// grows by a quarter when all cells in reach are live, up to its maximum. There,
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
	maxReach     = 32 // lines that are looked at to make room for a digest
	fullReach    = 8  // in a shard that has no empty cell and can have no more
	maxShards    = 64 // so that a set of shards is a uint64
	minLines     = 4
)

// A Tag says how a cell's state is to be read. Zero marks an empty cell.
type Tag uint16

// Boxed marks the tags whose state is a reference to a span.
const Boxed Tag = 1 << 15

// A Mark says what a cell is protected from.
type Mark uint8

const (
	// Pinned cells are not taken over while a batch that uses them is decided.
	Pinned Mark = 1 << iota

	// Kept cells are never taken over.
	Kept

	// Refusing cells are not evicted, though they may say that they could be. The
	// next Set ends it.
	Refusing
)

type line struct {
	tag    [cellsPerLine]Tag
	mark   [cellsPerLine]Mark
	spill  bool // a digest whose first line this is went to its second
	_      [6]byte
	digest [cellsPerLine]uint64
	state  [cellsPerLine]uint64
}

// A line is a cache line.
var _ [64]byte = [unsafe.Sizeof(line{})]byte{}

// A Cell is a place in a shard, good until Room moves cells.
type Cell int

// A Judge tells what a state is worth at the shard's time: 0 if it is idle, which is
// to say that it carries no information, and more the longer it will take to be;
// and whether it is refusing.
type Judge interface {
	Judge(s *Shard, tag Tag, state uint64) (worth int64, refusing bool)
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
	used     int // cells that are not empty
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
	l.mark[i] &^= Refusing
}

// Clear empties a cell.
func (s *Shard) Clear(c Cell) {
	l, i := s.cell(c)
	s.clear(l, i)
}

// Mark protects a cell, beside what protects it already.
func (s *Shard) Mark(c Cell, m Mark) {
	l, i := s.cell(c)
	l.mark[i] |= m
}

// Unmark ends a protection.
func (s *Shard) Unmark(c Cell, m Mark) {
	l, i := s.cell(c)
	l.mark[i] &^= m
}

// Find is where a digest's cell is.
func (s *Shard) Find(digest uint64) (Cell, bool) {
	n := len(s.lines)
	if n == 0 {
		return 0, false
	}
	at := first(digest, n)
	if i := s.lines[at].index(digest); i >= 0 {
		return Cell(at*cellsPerLine + i), true
	}
	if !s.lines[at].spill {
		return 0, false
	}
	at = second(digest, n)
	if i := s.lines[at].index(digest); i >= 0 {
		return Cell(at*cellsPerLine + i), true
	}
	return 0, false
}

// index is which of a line's cells a digest has, or -1.
func (l *line) index(digest uint64) int {
	for i := range l.digest {
		if l.digest[i] == digest && l.tag[i] != 0 {
			return i
		}
	}
	return -1
}

// Room makes a cell for a digest that Find did not find, with that tag and state 0.
// It takes an empty or idle cell within reach, or grows the shard, or evicts the cell
// nearest to idle; it fails when every cell in reach is refusing or marked. It may
// move other cells.
func (s *Shard) Room(digest uint64, tag Tag, judge Judge) (Cell, bool) {
	for {
		var r reach
		r.explore(s, digest, judge)
		switch {
		case r.free != nowhere:
			return s.occupy(&r, r.free, digest, tag), true
		case s.grow(judge):
			continue
		case r.victim != nowhere:
			s.Evicted++
			return s.occupy(&r, r.victim, digest, tag), true
		default:
			return 0, false
		}
	}
}

// occupy makes a cell in reach empty, moves the cells on the way to it one step on,
// and gives the one that this frees to digest.
func (s *Shard) occupy(r *reach, at place, digest uint64, tag Tag) Cell {
	to, i := &s.lines[r.steps[at.step].line], at.cell
	s.clear(to, i)
	for step := at.step; r.steps[step].from.step >= 0; {
		from := r.steps[step].from
		l := &s.lines[r.steps[from.step].line]
		to.tag[i], to.mark[i] = l.tag[from.cell], l.mark[from.cell]
		to.digest[i], to.state[i] = l.digest[from.cell], l.state[from.cell]
		s.noteSpill(to.digest[i], r.steps[step].line)
		to, i, step = l, from.cell, from.step
		at = from
	}
	to.tag[i], to.mark[i], to.digest[i], to.state[i] = tag, 0, digest, 0
	s.used++
	line := r.steps[at.step].line
	s.noteSpill(digest, line)
	return Cell(line*cellsPerLine + i)
}

// noteSpill marks a digest's first line if it is not the one the digest is in.
func (s *Shard) noteSpill(digest uint64, line int) {
	if home := first(digest, len(s.lines)); home != line {
		s.lines[home].spill = true
	}
}

// A reach is the cells that can be freed for a digest by moving others to their
// second lines: those of its own two lines, of the lines its neighbours there could
// move to, and so on, nearest first.
type reach struct {
	steps  [maxReach]step
	n      int
	free   place // an empty or idle cell
	victim place // without one: the cell worth least
}

// A step is a line, and the cell that would move there.
type step struct {
	line int
	from place
}

// A place is a cell of a step's line.
type place struct{ step, cell int }

var nowhere = place{-1, -1}

func (r *reach) explore(s *Shard, digest uint64, judge Judge) {
	r.free, r.victim = nowhere, nowhere
	n := len(s.lines)
	if n == 0 {
		return
	}
	most := maxReach
	if n >= s.maxLines && s.used == n*cellsPerLine {
		most = fullReach // each more is a cache miss, and all that it finds is another victim
	}
	var least int64
	visit := func(line int, from place) (found bool) {
		for i := range r.n {
			if r.steps[i].line == line {
				return false
			}
		}
		here := r.n
		r.steps[here] = step{line, from}
		r.n++
		l := &s.lines[line]
		for i := range l.tag {
			if l.tag[i] == 0 {
				r.free = place{here, i}
				return true
			}
		}
		for i := range l.tag {
			if l.mark[i]&(Pinned|Kept) != 0 {
				continue
			}
			worth, refusing := judge.Judge(s, l.tag[i], l.state[i])
			refusing = refusing || l.mark[i]&Refusing != 0
			if worth == 0 {
				r.free = place{here, i}
				return true
			}
			if !refusing && (r.victim == nowhere || worth < least) {
				r.victim, least = place{here, i}, worth
			}
		}
		return false
	}
	if visit(first(digest, n), nowhere) || visit(second(digest, n), nowhere) {
		return
	}
	for from := 0; from < r.n; from++ {
		l := &s.lines[r.steps[from].line]
		for i, other := range l.digest {
			if r.n == most {
				return
			}
			line := first(other, n)
			if line == r.steps[from].line {
				line = second(other, n)
			}
			if visit(line, place{from, i}) {
				return
			}
		}
	}
}

// grow drops the idle cells and, unless that made ample room, moves the others to
// a larger array. It reports whether there may be room now; there is none to make when
// the shard is as large as it may be.
func (s *Shard) grow(judge Judge) bool {
	n := len(s.lines)
	if n >= s.maxLines {
		return false
	}
	live, dropped := 0, 0
	for at := range s.lines {
		l := &s.lines[at]
		for i := range l.tag {
			if l.tag[i] == 0 {
				continue
			}
			if worth, _ := judge.Judge(s, l.tag[i], l.state[i]); worth == 0 && l.mark[i]&(Pinned|Kept) == 0 {
				s.clear(l, i)
				dropped++
				continue
			}
			live++
		}
	}
	size := n
	// All in reach can be live in an array that is half empty: what nothing was dropped
	// from must grow, or the caller would come back for ever.
	if live > s.Cells()/2 || dropped == 0 {
		size = max(minLines, n+(n+3)/4)
	}
	for {
		size = min(size, s.maxLines)
		if lines, ok := s.rehash(size); ok {
			s.lines = lines
			return true
		}
		if size == s.maxLines {
			s.maxLines = n // its cells did not fit: stay as it is
			return dropped > 0
		}
		size += (size + 3) / 4
	}
}

// rehash returns the cells in an array of size lines, unless they do not fit.
func (s *Shard) rehash(size int) ([]line, bool) {
	moved := Shard{lines: make([]line, size)}
	for at := range s.lines {
		l := &s.lines[at]
		for i := range l.tag {
			if l.tag[i] == 0 {
				continue
			}
			var r reach
			r.explore(&moved, l.digest[i], allLive{})
			if r.free == nowhere {
				return nil, false
			}
			cell := moved.occupy(&r, r.free, l.digest[i], l.tag[i])
			moved.Set(cell, l.tag[i], l.state[i])
			moved.Mark(cell, l.mark[i])
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
	if l.tag[i] == 0 {
		return
	}
	if l.tag[i]&Boxed != 0 {
		s.FreeSpan(l.state[i])
	}
	s.used--
	l.tag[i], l.mark[i], l.digest[i], l.state[i] = 0, 0, 0, 0
}

// first and second are the lines a digest may be in, of n, which is no power of two.
func first(digest uint64, n int) int { return spread(digest, n) }

func second(digest uint64, n int) int {
	line := spread(digest*0x9e3779b97f4a7c15, n) // the odd multiplier brings the low bits up
	if line == first(digest, n) {
		line = (line + 1) % n
	}
	return line
}

// spread maps the high bits of x evenly to n lines.
func spread(x uint64, n int) int {
	hi, _ := bits.Mul64(x, uint64(n))
	return int(hi)
}
