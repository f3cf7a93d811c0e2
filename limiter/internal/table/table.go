// Package table holds small states under 64-bit digests, in memory without pointers, so the garbage
// collector has nothing to scan.
//
// A table is a power of two of shards. A [Shard] is an array of lines, and a line is one 64-byte
// cache line with three cells:
//
//	byte 0      8       16                     40                     64
//	     | head | turns | digest, digest, digest | word, word, word |
//
//	head:  bit 0    16    32    48                  57   63
//	           | tag, tag, tag | marks, marks, marks | ... | spill |
//
// The low bits of a digest choose its shard. Hashes of all bits choose two lines of the shard. The
// digest's cell is in the first line if that had an empty cell, and otherwise in the second; then the
// first line's spill bit is set. If both lines are full, other cells move to their own second lines,
// along the shortest chain within maxReach lines (cuckoo hashing, Pagh and Rodler 2004). So nearly all
// cells are in use before the shard grows, and finding a cell takes one or two cache misses.
//
// A cell's word has its state. The tag says how to read the state; only the shard's [Owner] reads it. A
// cell that the owner calls idle carries no information, and new digests take it over. There is no
// other sweeping. A shard grows if all cells in reach are live. If it cannot grow, the cell nearest to
// idle is evicted, unless most cells in reach are refusing.
//
// # Concurrency
//
// The digest of a cell changes only under the shard's lock. The word of a cell changes without the lock
// too, by compare-and-swap (see seek.go). Three things make that safe:
//
//   - A word is sealed: it is XORed with a mask of the cell's digest and tag. So a late swap fails if the
//     cell has another digest by then, even if the states are equal. (Digests are 64 random bits, so the
//     chance of an error is 2^-64.)
//   - A word of 0 is taken: the goroutine that stored the 0, under the lock, owns the cell until it
//     stores a word. Code that moves a cell, or changes several as one, takes them first. Code without
//     the lock retries; it never waits.
//   - turns counts the changes of digests and tags in the line, before the new word is stored. If turns
//     is the same before and after a read, the word belongs to the digest and the tag that were read.
//     (Marks change without turns: a stale mark at worst sends a caller to the lock.)
//
// Locks of several shards are taken in one order.
package table

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	cellsPerLine = 3

	// Up to fewShards shards have fewCells cells each, so that growing one delays no request for long.
	// Beyond that, shards grow to manyCells before their number does.
	fewShards, fewCells = 64, 1 << 10
	manyCells           = 1 << 14
)

// MostShards is the largest number of shards.
const MostShards = 4096

// A Tag says how to read a cell's state. Zero marks an empty cell.
type Tag uint16

// A Mark protects a cell.
type Mark uint8

const (
	// Pinned cells are not taken over while a decision about a batch uses them.
	Pinned Mark = 1 << iota

	// Kept cells are never taken over.
	Kept

	// Refusing: the key was refused lately. The cell is not evicted until the owner clears the mark.
	Refusing
)

// Except for words, the fields of a line are written under the shard's lock. They are read without it, so
// writes to a line of a shard in use are atomic.
type line struct {
	head   head
	turns  uint64
	digest [cellsPerLine]uint64
	word   [cellsPerLine]uint64
}

const lineBytes = int(unsafe.Sizeof(line{}))

// A line is a cache line.
var _ [64]byte = [lineBytes]byte{}

// A head has the tags and marks of a line's cells.
type head uint64

const (
	tagBits  = 16
	markBits = 3
	marksAt  = tagBits * cellsPerLine
	spill    = head(1) << 63 // a digest whose first line this is has its cell in its second line
)

func (h head) tag(i int) Tag    { return Tag(h >> (tagBits * i)) }
func (h head) marks(i int) Mark { return Mark(h>>(marksAt+markBits*i)) & (1<<markBits - 1) }

func (h head) withTag(i int, t Tag) head {
	const ones = 1<<tagBits - 1
	at := tagBits * i
	return h&^(ones<<at) | head(t)<<at
}

func (h head) withMarks(i int, m Mark) head {
	const ones = 1<<markBits - 1
	at := marksAt + markBits*i
	return h&^(ones<<at) | head(m)<<at
}

func (l *line) setHead(h head) { atomic.StoreUint64((*uint64)(&l.head), uint64(h)) }

// taken is the word of a cell that a goroutine owns, and of an empty cell.
const taken = 0

// golden is 2^64 divided by the golden ratio. A product with it depends on all bits of the other factor.
const golden = 0x9e3779b97f4a7c15

// seal returns the mask of a cell's words.
func seal(digest uint64, tag Tag) uint64 { return digest ^ uint64(tag)*golden }

// sealed returns the word of a state. If the word would be taken, it is off by one: the chance is 2^-64.
func sealed(state, seal uint64) uint64 {
	if word := state ^ seal; word != taken {
		return word
	}
	return taken + 1
}

// An Owner reads the states in a shard. The shard calls it with its lock held.
type Owner interface {
	// Judge returns the worth of a state, and whether it is refusing. An idle state carries no
	// information and is worth 0. Other states are worth more the longer they take to become idle.
	Judge(tag Tag, state uint64) (worth int64, refusing bool)

	// Drop is called with the state of a cell that is emptied.
	Drop(tag Tag, state uint64)
}

// Sizes returns the number of shards for maxCells cells, a power of two, and the largest number of lines of
// each.
func Sizes(maxCells int) (shards, lines int) {
	shards = 1
	for shards < fewShards && maxCells/shards > fewCells || shards < MostShards && maxCells/shards > manyCells {
		shards *= 2
	}
	perShard := (maxCells + shards - 1) / shards
	return shards, (perShard + cellsPerLine - 1) / cellsPerLine
}

// A Shard is the part of a table for digests with the same low bits. Its methods need its lock, except for
// Seek.
type Shard struct {
	lines atomic.Pointer[[]line]
	_     [56]byte // keeps lines, which every call reads, off the cache line of the fields below

	sync.Mutex

	// Evicted counts the live cells that were evicted for new ones.
	Evicted uint64

	owner    Owner
	budget   *Budget
	maxLines int
	used     int // cells that are not empty
	patience int // how many calls of grow and Sweep to skip

	judged, refusing int // cells of the last reaches without a free cell
	_                [64]byte
}

// Init makes an empty shard. Its lines take memory from the budget.
func (s *Shard) Init(maxLines int, budget *Budget, owner Owner) {
	s.maxLines, s.budget, s.owner = maxLines, budget, owner
	s.lines.Store(new([]line))
}

// Cells returns how many cells the shard has memory for.
func (s *Shard) Cells() int { return len(*s.lines.Load()) * cellsPerLine }

// Bytes returns the memory of the shard's cells.
func (s *Shard) Bytes() int { return len(*s.lines.Load()) * lineBytes }

// Find returns the cell of a digest.
func (s *Shard) Find(digest uint64) (Cell, bool) {
	lines := *s.lines.Load()
	if len(lines) == 0 {
		return Cell{}, false
	}
	l := &lines[first(digest, len(lines))]
	if i := l.index(digest); i >= 0 {
		return Cell{l, i}, true
	}
	if l.head&spill == 0 {
		return Cell{}, false
	}
	l = &lines[second(digest, len(lines))]
	if i := l.index(digest); i >= 0 {
		return Cell{l, i}, true
	}
	return Cell{}, false
}

// index returns the index of a digest's cell in the line, or -1.
func (l *line) index(digest uint64) int {
	for i := range l.digest {
		if l.digest[i] == digest && l.head.tag(i) != 0 {
			return i
		}
	}
	return -1
}

// first and second return the lines that a digest's cell may be in, of n. n need not be a power of two.
func first(digest uint64, n int) int { return spread(digest, n) }

func second(digest uint64, n int) int {
	line := spread(digest*golden, n) // the product's high bits depend on the low bits
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

// A Cell is a cell of a shard. It is valid until Room moves cells. Its methods need the lock.
type Cell struct {
	line *line
	i    int
}

// Tag returns how to read the cell's state.
func (c Cell) Tag() Tag { return c.line.head.tag(c.i) }

// Take makes the caller own the cell until it calls Put, and returns the state.
func (c Cell) Take() (state uint64) { return c.take() ^ c.seal() }

// Look returns the state of a cell that is changed only under the lock.
func (c Cell) Look() (state uint64) { return atomic.LoadUint64(&c.line.word[c.i]) ^ c.seal() }

// Put ends Take, with a state and how to read it.
func (c Cell) Put(tag Tag, state uint64) {
	if tag != c.Tag() {
		c.assign(c.line.digest[c.i], tag, c.Marks())
	}
	c.put(sealed(state, c.seal()))
}

// Marks returns the cell's marks.
func (c Cell) Marks() Mark { return c.line.head.marks(c.i) }

// SetMarks replaces the cell's marks.
func (c Cell) SetMarks(m Mark) {
	if m != c.Marks() {
		c.line.setHead(c.line.head.withMarks(c.i, m))
	}
}

// Clear empties a cell. The caller must not own it.
func (s *Shard) Clear(c Cell) { s.empty(c, c.Take()) }

// empty empties a cell that the caller owns.
func (s *Shard) empty(c Cell, state uint64) {
	s.owner.Drop(c.Tag(), state)
	c.assign(0, 0, 0)
	s.used--
}

func (c Cell) seal() uint64 { return seal(c.line.digest[c.i], c.Tag()) }

func (c Cell) put(word uint64) { atomic.StoreUint64(&c.line.word[c.i], word) }

// take makes the caller own the cell, and returns the word. The caller has the lock.
func (c Cell) take() (word uint64) { return atomic.SwapUint64(&c.line.word[c.i], taken) }

// assign gives a cell, which the caller owns or which is empty, to a digest. The word is stored later.
func (c Cell) assign(digest uint64, tag Tag, marks Mark) {
	l := c.line
	atomic.StoreUint64(&l.digest[c.i], digest)
	l.setHead(l.head.withTag(c.i, tag).withMarks(c.i, marks))
	atomic.StoreUint64(&l.turns, l.turns+1)
}

// A Budget bounds the memory of all shards.
type Budget struct {
	most int64
	used atomic.Int64
}

// NewBudget returns a budget of most bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Reserve takes bytes, if the budget has them or if must is set. 0 bytes can always be taken.
func (b *Budget) Reserve(bytes int, must bool) bool {
	if b.used.Add(int64(bytes)) > b.most && !must && bytes > 0 {
		b.Release(bytes)
		return false
	}
	return true
}

// Release returns bytes to the budget.
func (b *Budget) Release(bytes int) { b.used.Add(-int64(bytes)) }
