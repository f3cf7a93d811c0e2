package table

import "sync/atomic"

const (
	maxReach  = 32 // lines that are looked at to make room for a digest
	fullReach = 8  // in a shard that has no empty cell and can have no more
	minLines  = 4
)

// Room makes a cell for a digest that Find did not find, with that tag, for the caller
// to put a first state into. The cell is one within reach that was empty or idle, or
// that the shard grew by, or else the one nearest to idle is evicted; Room fails when most
// in reach are refusing, or all are marked. It may move other cells, so the caller must have
// taken none.
func (s *Shard) Room(digest uint64, tag Tag) (Cell, bool) {
	if c, ok := s.nearby(digest); ok {
		c.settle(digest, tag, 0)
		s.used++
		return c, true
	}
	for {
		var r reach
		if s.used < s.Cells()*7/8 {
			r.explore(s, digest, false) // most likely there is an empty cell: none is judged
		}
		if r.free == nowhere {
			r.explore(s, digest, true)
		}
		switch {
		case r.free != nowhere:
			if s.vacate(r.cell(r.free), false) {
				return s.occupy(&r, r.free, digest, tag), true
			}
		case s.grow():
		case r.victim != nowhere && !r.besieged():
			if s.vacate(r.cell(r.victim), true) {
				return s.occupy(&r, r.victim, digest, tag), true
			}
		default:
			return Cell{}, false
		}
	}
}

// nearby is an empty cell in one of a digest's own lines.
func (s *Shard) nearby(digest uint64) (Cell, bool) {
	lines := *s.lines.Load()
	if len(lines) == 0 {
		return Cell{}, false
	}
	l := &lines[first(digest, len(lines))]
	if i := l.head.empty(); i >= 0 {
		return Cell{l, i}, true
	}
	other := &lines[second(digest, len(lines))]
	if i := other.head.empty(); i >= 0 {
		l.noteSpill()
		return Cell{other, i}, true
	}
	return Cell{}, false
}

// vacate empties a cell if it is idle, or at least may be evicted: its state may have
// changed since it was judged.
func (s *Shard) vacate(c Cell, evict bool) bool {
	if c.Tag() == 0 {
		return true
	}
	state := c.Take()
	worth, refusing := s.owner.Judge(c.Tag(), state)
	if worth > 0 && (refusing || !evict) {
		c.Put(c.Tag(), state)
		return false
	}
	if worth > 0 {
		s.Evicted++
	}
	s.empty(c, state)
	return true
}

// occupy gives digest the cell that is left when each on the way to an empty one has
// moved one step on.
func (s *Shard) occupy(r *reach, at hop, digest uint64, tag Tag) Cell {
	to := r.cell(at)
	for {
		line := r.steps[at.step]
		if line.from == nowhere {
			to.settle(digest, tag, 0)
			s.used++
			r.spill(digest, to)
			return to
		}
		from := r.cell(line.from)
		word, moving := from.take(), from.line.digest[from.i]
		to.settle(moving, from.Tag(), from.Marks())
		to.put(word)
		r.spill(moving, to)
		to, at = from, line.from
	}
}

// spill notes that a digest is in its second line, if it is.
func (r *reach) spill(digest uint64, c Cell) {
	if home := &r.lines[first(digest, len(r.lines))]; home != c.line {
		home.noteSpill()
	}
}

// noteSpill marks a line as the first one of a digest that is in its second.
func (l *line) noteSpill() {
	if l.head&spill == 0 {
		l.setHead(l.head | spill)
	}
}

// A reach is the cells that can be freed for a digest by moving others to their
// second lines: those of its own two lines, of the lines its neighbours there could
// move to, and so on, nearest first.
type reach struct {
	lines  []line
	n      int
	free   hop // an empty or idle cell
	victim hop // without one: the cell worth least
	least  int64

	judged, refusing int // cells
	steps            [maxReach]step
}

// A step is a line, and the cell that would move there.
type step struct {
	line int32
	from hop
}

// A hop is a cell of a step's line, counted from one.
type hop struct{ step, cell int8 }

var nowhere = hop{}

// explore looks for a free cell: an empty one, or if it judges, an idle one.
func (r *reach) explore(s *Shard, digest uint64, judges bool) {
	r.lines, r.n, r.free, r.victim, r.judged, r.refusing = *s.lines.Load(), 0, nowhere, nowhere, 0, 0
	n := len(r.lines)
	if n == 0 {
		return
	}
	most := maxReach
	if (n >= s.maxLines || s.patience > 0) && s.used == n*cellsPerLine {
		most = fullReach // each more is a cache miss, and all that it finds is another victim
	}
	if r.visit(s, judges, first(digest, n), nowhere) || r.visit(s, judges, second(digest, n), nowhere) {
		return
	}
	for from := 0; from < r.n; from++ {
		at := int(r.steps[from].line)
		for i, other := range r.lines[at].digest {
			if r.n == most {
				return
			}
			to := first(other, n)
			if to == at {
				to = second(other, n)
			}
			if r.visit(s, judges, to, hop{int8(from), int8(i + 1)}) {
				return
			}
		}
	}
}

// visit reports whether there is a free cell in a line.
func (r *reach) visit(s *Shard, judges bool, line int, from hop) bool {
	for i := range r.n {
		if r.steps[i].line == int32(line) {
			return false
		}
	}
	here := int8(r.n)
	r.steps[here] = step{int32(line), from}
	r.n++
	l := &r.lines[line]
	if i := l.head.empty(); i >= 0 {
		r.free = hop{here, int8(i + 1)}
		return true
	}
	if !judges {
		return false
	}
	for i := range l.digest {
		worth, refusing, free := s.appraise(Cell{l, i})
		switch {
		case !free:
			continue
		case worth == 0:
			r.free = hop{here, int8(i + 1)}
			return true
		}
		r.judged++
		switch {
		case refusing:
			r.refusing++
		case r.victim == nowhere || worth < r.least:
			r.victim, r.least = hop{here, int8(i + 1)}, worth
		}
	}
	return false
}

// appraise judges a cell as it is now, if it is free to be taken over at all.
func (s *Shard) appraise(c Cell) (worth int64, refusing, free bool) {
	word := atomic.LoadUint64(&c.line.word[c.i])
	if word == taken || c.Marks()&(Pinned|Kept) != 0 {
		return 0, false, false
	}
	worth, refusing = s.owner.Judge(c.Tag(), word^c.seal())
	return worth, refusing || c.Marks()&Refusing != 0, true
}

// besieged reports whether most cells are refusing. Then those that are not stay: they are
// what was there before, and the new ones are most likely to be refused as well.
func (r *reach) besieged() bool { return 2*r.refusing > r.judged }

func (r *reach) cell(h hop) Cell {
	return Cell{&r.lines[r.steps[h.step].line], int(h.cell) - 1}
}

// empty is which of a line's cells is empty, or -1.
func (h head) empty() int {
	for i := range cellsPerLine {
		if h.tag(i) == 0 {
			return i
		}
	}
	return -1
}

// Sweep empties the idle cells, if a tenth are, and reports whether it did, so that there may be
// memory.
func (s *Shard) Sweep() bool {
	if s.waits() {
		return false
	}
	if s.someIdle() && s.drop() > 0 {
		return true
	}
	s.patience = patience
	return false
}

// patience is how many new digests get no room for each that what can be dropped is looked
// for, where there is no memory: a flood of them is not to be dear.
const patience = 7

func (s *Shard) waits() bool {
	if s.patience == 0 {
		return false
	}
	s.patience--
	return true
}

// grow drops the idle cells and, unless that made ample room, moves the others to
// a larger array. It reports whether there may be room now; there is none to make when
// the shard is as large as it may be, or when there is no memory.
func (s *Shard) grow() bool {
	n := len(*s.lines.Load())
	if n >= s.maxLines || s.waits() {
		return false
	}
	dropped := 0
	if s.someIdle() {
		dropped = s.drop()
	}
	size := n
	// All in reach can be live in an array that is half empty: what nothing was dropped
	// from must grow, or the caller would come back for ever.
	if s.used > s.Cells()/2 || dropped == 0 {
		size = s.larger(n)
	}
	for {
		more := (size - n) * lineBytes
		if !s.budget.Reserve(more, false) {
			s.patience = patience
			return dropped > 0
		}
		if s.rehash(size) {
			return true
		}
		s.budget.Release(more)
		if size == s.maxLines {
			s.maxLines = n // its cells did not fit: stay as it is
			return dropped > 0
		}
		size = s.larger(size)
	}
}

// someIdle looks for an idle cell in a sample that shows one if a tenth are.
func (s *Shard) someIdle() bool {
	const sample = 16 // lines
	lines := *s.lines.Load()
	for at := 0; at < len(lines); at += 1 + len(lines)/sample {
		for c := range all(lines[at : at+1]) {
			if s.idle(c) {
				return true
			}
		}
	}
	return false
}

// drop empties the idle cells, and counts them.
func (s *Shard) drop() int {
	before := s.used
	for c := range all(*s.lines.Load()) {
		if s.idle(c) {
			s.vacate(c, false)
		}
	}
	return before - s.used
}

func (s *Shard) idle(c Cell) bool {
	worth, _, free := s.appraise(c)
	return free && worth == 0
}

// larger is a size that keeps what a cell takes within 36 bytes right after it.
func (s *Shard) larger(lines int) int { return min(max(minLines, lines+(9*lines+19)/20), s.maxLines) }

// rehash moves the cells to an array of size lines, unless they do not fit.
func (s *Shard) rehash(size int) bool {
	lines := make([]line, size)
	moved := Shard{maxLines: size}
	moved.lines.Store(&lines)
	for c := range all(*s.lines.Load()) {
		word := c.take()
		if moved.adopt(c, word) {
			continue
		}
		c.put(word)
		for back := range all(lines) {
			c, _ := s.Find(back.line.digest[back.i])
			c.put(back.line.word[back.i])
		}
		return false
	}
	s.lines.Store(&lines)
	return true
}

// adopt puts into a shard that no other goroutine sees what was in a cell of another.
func (s *Shard) adopt(c Cell, word uint64) bool {
	digest := c.line.digest[c.i]
	if to, ok := s.nearby(digest); ok {
		l := to.line
		l.head = l.head.withTag(to.i, c.Tag()).withMarks(to.i, c.Marks())
		l.digest[to.i], l.word[to.i] = digest, word
		s.used++
		return true
	}
	var r reach
	if r.explore(s, digest, false); r.free == nowhere {
		return false
	}
	to := s.occupy(&r, r.free, digest, c.Tag())
	to.SetMarks(c.Marks())
	to.put(word)
	return true
}

// all are the cells in lines that are not empty.
func all(lines []line) func(yield func(Cell) bool) {
	return func(yield func(Cell) bool) {
		for at := range lines {
			l := &lines[at]
			for i := range l.digest {
				if l.head.tag(i) != 0 && !yield(Cell{l, i}) {
					return
				}
			}
		}
	}
}
