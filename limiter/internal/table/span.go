package table

import (
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// A state that does not fit a word is a reference to one of two things, both of the shard's:
//
//   - A span: at most MostWords words, in a page with others of its size. Pages do not move and
//     spans are read and written atomically, so that they can be read without the lock: what was
//     read is of one moment if the cell's word is still the same. So each change is one of the
//     reference too ([Changed]), and is made with the cell taken.
//
//   - A run: any number of words, of a slice of its own, for the lock alone.
//
//     bit 0                 39    40        64
//     | offset, page    | run | changes |
const (
	MostWords = 128

	pageBits  = 9
	pageWords = 1 << pageBits
	runBit    = 1 << 39
	changed   = 1 << 40
	wordBytes = 8
)

// Changed is a reference to a span after its content has changed.
func Changed(ref uint64) uint64 { return ref + changed }

// A page holds spans of one size.
type page [pageWords]uint64

// A use says which spans of a page are free.
type use struct {
	size, live int
	free       [pageWords / 64]uint64 // bits
}

func (u *use) room() bool { return u.live < pageWords/u.size }

// boxes is what a shard knows of its spans and runs besides the pages. It needs the lock.
type boxes struct {
	uses   []use
	roomy  [MostWords + 1][]int32 // by size: pages with room, and some that have none any more
	vacant int                    // pages with no span in use, which are of no size
	runs   [][]int64
	unused []uint64 // references to runs
	bytes  int      // of runs
}

// NewSpan returns a reference to n words, all zero, if there is memory for them; if it must,
// whether there is or not.
func (s *Shard) NewSpan(n int, must bool) (ref uint64, ok bool) {
	at, ok := s.pageFor(n, must)
	if !ok {
		return 0, false
	}
	u := &s.boxes.uses[at]
	if u.live == 0 {
		s.boxes.vacant--
	}
	for i, free := range u.free {
		if free == 0 {
			continue
		}
		bit := bits.TrailingZeros64(free)
		u.free[i] &^= 1 << bit
		ref = uint64(at)<<pageBits | uint64((i*64+bit)*n)
		break
	}
	if u.live++; !u.room() {
		roomy := s.boxes.roomy[n]
		s.boxes.roomy[n] = roomy[:len(roomy)-1] // where pageFor found it
	}
	span := s.Span(ref, n)
	for i := range span {
		if span[i] != 0 {
			atomic.StoreUint64(&span[i], 0)
		}
	}
	return ref, true
}

// pageFor is a page with room for a span of n words, the last of those that are known to have.
func (s *Shard) pageFor(n int, must bool) (at int, ok bool) {
	b := &s.boxes
	for roomy := b.roomy[n]; len(roomy) > 0; {
		at := int(roomy[len(roomy)-1])
		if b.uses[at].size == n && b.uses[at].room() {
			return at, true
		}
		roomy = roomy[:len(roomy)-1]
		b.roomy[n] = roomy
	}
	if b.vacant == 0 {
		if !s.budget.reserve(pageWords*wordBytes, must) {
			return 0, false
		}
		s.addPage()
	}
	at = 1
	for b.uses[at].live > 0 {
		at++
	}
	b.uses[at] = use{size: n}
	for i := range pageWords / n {
		b.uses[at].free[i/64] |= 1 << (i % 64)
	}
	b.roomy[n] = append(b.roomy[n], int32(at))
	return at, true
}

// addPage adds one that is vacant. The first, which is none, makes no reference 0.
func (s *Shard) addPage() {
	var pages []*page
	if known := s.pages.Load(); known != nil {
		pages = *known
	} else {
		pages, s.boxes.uses = []*page{nil}, []use{{live: 1}}
	}
	pages = append(pages, new(page)) // beyond what those without the lock see of the slice
	s.pages.Store(&pages)
	s.boxes.uses = append(s.boxes.uses, use{})
	s.boxes.vacant++
}

// Span is the n words behind a reference, which have to be read and written atomically. It
// needs no lock.
func (s *Shard) Span(ref uint64, n int) []uint64 {
	at := ref & (pageWords - 1)
	page := (*s.pages.Load())[ref&(runBit-1)>>pageBits]
	return page[at:][:n:n]
}

// NewRun is NewSpan for a run.
func (s *Shard) NewRun(n int, must bool) (ref uint64, ok bool) {
	if !s.budget.reserve(runBytes(n), must) {
		return 0, false
	}
	b := &s.boxes
	if last := len(b.unused) - 1; last >= 0 {
		ref, b.unused = b.unused[last], b.unused[:last]
	} else {
		ref = runBit | uint64(len(b.runs))
		b.runs = append(b.runs, nil)
	}
	b.runs[ref&^runBit] = make([]int64, n)
	b.bytes += runBytes(n)
	return ref, true
}

// runBytes is what a run of n words takes, with the slice that it is.
func runBytes(n int) int { return n*wordBytes + 3*wordBytes }

// Run is the words behind a reference.
func (s *Shard) Run(ref uint64) []int64 { return s.boxes.runs[ref&^runBit] }

// Free gives back a span or a run. Its words stay readable until there is a new one.
func (s *Shard) Free(ref uint64) {
	b := &s.boxes
	if ref&runBit != 0 {
		bytes := runBytes(len(s.Run(ref)))
		s.budget.release(bytes)
		b.bytes -= bytes
		b.runs[ref&^runBit] = nil
		b.unused = append(b.unused, ref)
		return
	}
	ref &= runBit - 1
	at := int(ref >> pageBits)
	u := &b.uses[at]
	if !u.room() {
		b.roomy[u.size] = append(b.roomy[u.size], int32(at))
	}
	slot := int(ref&(pageWords-1)) / u.size
	u.free[slot/64] |= 1 << (slot % 64)
	if u.live--; u.live == 0 {
		b.vacant++
	}
}

func (s *Shard) boxBytes() int {
	bytes := s.boxes.bytes
	if pages := s.pages.Load(); pages != nil {
		bytes += (len(*pages) - 1) * int(unsafe.Sizeof(page{}))
	}
	return bytes
}

// A budget is how much memory the shards of a table may take together.
type budget struct {
	most int64
	used atomic.Int64
}

func newBudget(most int64) *budget { return &budget{most: most} }

// noBudget is for a shard on its own.
const noBudget = math.MaxInt64

// reserve takes so many bytes, if there are as many or it must.
func (b *budget) reserve(bytes int, must bool) bool {
	if b.used.Add(int64(bytes)) > b.most && !must {
		b.release(bytes)
		return false
	}
	return true
}

func (b *budget) release(bytes int) { b.used.Add(-int64(bytes)) }
