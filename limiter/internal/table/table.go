// Package table holds small states under 64-bit digests, in memory that the
// garbage collector has nothing to follow in.
//
// A table is a power of two of shards. A [Shard] is an array of lines, and a line is
// one 64-byte cache line with three cells:
//
//	byte 0      8       16                     40                     64
//	     | head | turns | digest, digest, digest | word, word, word |
//
//	head:  bit 0    16    32    48                  57   63
//	           | tag, tag, tag | marks, marks, marks | ... | spill |
//
// A digest's low bits choose the shard; hashes of all its bits choose two lines, and
// the cell is in one of them: in the first if there was room, and if not, in the
// second, which the first's spill bit tells. Where both are full, cells move to their
// own second lines to make room, along the shortest chain of at most maxReach lines
// (cuckoo hashing, after Pagh and Rodler 2004). So a line of three is full nearly
// always before the shard grows, and a cell is found in one or two cache misses.
//
// A tag says how to read the state in a cell's word; the table itself never does.
// A shard's [Owner] does, and the cells it calls idle carry no information:
// they are taken over by new digests on the way, which is all the sweeping there is. A
// shard grows when all cells in reach are live, up to its maximum. There, the cell
// nearest to idle makes room, unless most are refusing.
//
// # Without the lock and with it
//
// Which digest is in which cell changes only under the shard's lock. What a cell's word says
// changes without it, by compare-and-swap (see place.go). Three things make that safe:
//
//   - A word is sealed: XORed with a mask of its cell's digest and tag. A swap that comes
//     late, when the cell is another digest's, so finds another word, even if the states
//     are equal. (Digests are 64 random bits: it errs once in 2^64, as they do.)
//   - A word that is 0 is taken: the goroutine that replaced it by 0, with the lock, has the cell for
//     itself until it puts a word back. Whatever moves a cell, or changes several as one, takes it
//     first. Without the lock it is tried again then, and never waited for.
//   - turns counts the changes of which digests are in the line's cells, each counted before the new
//     word is there. A word that was read while it stood still belongs to the digest and
//     the tag that were read with it. (Marks change without a turn: a stale one at worst
//     sends a caller to the lock.)
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

	// A shard has some thousand cells where there are few shards, so that growing one
	// holds no request up for long, and where there are many keys, more shards.
	fewShards, fewCells = 64, 1 << 10
	manyCells           = 1 << 14
)

// MostShards is how many shards there are at most.
const MostShards = 4096

// A Tag says how a cell's state is to be read. Zero marks an empty cell.
type Tag uint16

// A Mark says what a cell is protected from.
type Mark uint8

const (
	// Pinned cells are not taken over while a batch that uses them is decided.
	Pinned Mark = 1 << iota

	// Kept cells are never taken over.
	Kept

	// Refusing cells are not evicted, even if the Judge would let them go.
	Refusing
)

// A line's fields are written under the shard's lock, except for words. They are read
// without it, so what is written to a line that others can see is written atomically.
type line struct {
	head   head
	turns  uint64
	digest [cellsPerLine]uint64
	word   [cellsPerLine]uint64
}

const lineBytes = int(unsafe.Sizeof(line{}))

// A line is a cache line.
var _ [64]byte = [lineBytes]byte{}

// A head is what a line says of its cells.
type head uint64

const (
	tagBits  = 16
	markBits = 3
	marksAt  = tagBits * cellsPerLine
	spill    = head(1) << 63 // a digest that has this for its first line went to its second
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

// taken is the word of a cell that a goroutine has for itself, and of an empty one.
const taken = 0

// golden spreads what it multiplies over all bits: 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// seal is the mask of a cell's words.
func seal(digest uint64, tag Tag) uint64 { return digest ^ uint64(tag)*golden }

// sealed is a state as a cell's word. Once in 2^64 that would be taken, and is off by one.
func sealed(state, seal uint64) uint64 {
	if word := state ^ seal; word != taken {
		return word
	}
	return taken + 1
}

// An Owner knows what the states in a shard mean. The shard asks it with its lock held.
type Owner interface {
	// Judge returns what a state is worth, and whether it is refusing. An idle state carries no
	// information and is worth 0. Other states are worth more the longer they take to be idle.
	Judge(tag Tag, state uint64) (worth int64, refusing bool)

	// Drop is told of a state whose cell is emptied.
	Drop(tag Tag, state uint64)
}

// Sizes is into how many shards so many cells are divided, a power of two, and how many lines each
// has at most.
func Sizes(maxCells int) (shards, lines int) {
	shards = 1
	for shards < fewShards && maxCells/shards > fewCells || shards < MostShards && maxCells/shards > manyCells {
		shards *= 2
	}
	perShard := (maxCells + shards - 1) / shards
	return shards, (perShard + cellsPerLine - 1) / cellsPerLine
}

// A Shard is a part of a table, the one of a digest by its low bits. Its methods need its lock,
// except for Seek.
type Shard struct {
	lines atomic.Pointer[[]line]
	_     [56]byte // what is read all the time is on another cache line than what is written

	sync.Mutex

	// Evicted counts the live cells that made room for new ones.
	Evicted uint64

	owner    Owner
	budget   *Budget
	maxLines int
	used     int // cells that are not empty
	patience int // how often it is not tried again to have more memory
	_        [64]byte
}

// Init makes an empty shard, which takes the memory for its lines from the budget.
func (s *Shard) Init(maxLines int, budget *Budget, owner Owner) {
	s.maxLines, s.budget, s.owner = maxLines, budget, owner
	s.lines.Store(new([]line))
}

// Cells is how many cells the shard has memory for.
func (s *Shard) Cells() int { return len(*s.lines.Load()) * cellsPerLine }

// Bytes is how much memory the shard's cells take.
func (s *Shard) Bytes() int { return len(*s.lines.Load()) * lineBytes }

// Find is where a digest's cell is.
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

// index is which of a line's cells a digest has, or -1.
func (l *line) index(digest uint64) int {
	for i := range l.digest {
		if l.digest[i] == digest && l.head.tag(i) != 0 {
			return i
		}
	}
	return -1
}

// first and second are the lines a digest may be in, of n, which is no power of two.
func first(digest uint64, n int) int { return spread(digest, n) }

func second(digest uint64, n int) int {
	line := spread(digest*golden, n) // the odd multiplier brings the low bits up
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

// A Cell is a cell of a shard, good until Room moves cells. Its methods need the lock.
type Cell struct {
	line *line
	i    int
}

// Tag is how the cell's state is to be read.
func (c Cell) Tag() Tag { return c.line.head.tag(c.i) }

// Take has the cell for the caller alone, until it calls Put, and returns its state.
func (c Cell) Take() (state uint64) { return c.take() ^ c.seal() }

// Look returns the state of a cell that nobody changes without the lock.
func (c Cell) Look() (state uint64) { return atomic.LoadUint64(&c.line.word[c.i]) ^ c.seal() }

// Put ends Take, with a state to be read by that tag.
func (c Cell) Put(tag Tag, state uint64) {
	if tag != c.Tag() {
		c.settle(c.line.digest[c.i], tag, c.Marks())
	}
	c.put(sealed(state, c.seal()))
}

// Marks is what protects the cell.
func (c Cell) Marks() Mark { return c.line.head.marks(c.i) }

// SetMarks protects the cell from just that.
func (c Cell) SetMarks(m Mark) {
	if m != c.Marks() {
		c.line.setHead(c.line.head.withMarks(c.i, m))
	}
}

// Clear empties a cell that is not taken for longer than a moment.
func (s *Shard) Clear(c Cell) { s.empty(c, c.Take()) }

// empty empties a cell that is taken.
func (s *Shard) empty(c Cell, state uint64) {
	s.owner.Drop(c.Tag(), state)
	c.settle(0, 0, 0)
	s.used--
}

func (c Cell) seal() uint64 { return seal(c.line.digest[c.i], c.Tag()) }

func (c Cell) put(word uint64) { atomic.StoreUint64(&c.line.word[c.i], word) }

// take has the cell for the caller, which has the lock and has not taken it.
func (c Cell) take() (word uint64) { return atomic.SwapUint64(&c.line.word[c.i], taken) }

// settle says which digest is in a cell that is taken or empty, before a word is put there.
func (c Cell) settle(digest uint64, tag Tag, marks Mark) {
	l := c.line
	atomic.StoreUint64(&l.digest[c.i], digest)
	l.setHead(l.head.withTag(c.i, tag).withMarks(c.i, marks))
	atomic.StoreUint64(&l.turns, l.turns+1)
}

// A Budget is how much memory may be taken together.
type Budget struct {
	most int64
	used atomic.Int64
}

// NewBudget returns one of so many bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Reserve takes so many bytes, if there are as many or it must. None can always be taken.
func (b *Budget) Reserve(bytes int, must bool) bool {
	if b.used.Add(int64(bytes)) > b.most && !must && bytes > 0 {
		b.Release(bytes)
		return false
	}
	return true
}

// Release gives bytes back.
func (b *Budget) Release(bytes int) { b.used.Add(-int64(bytes)) }
