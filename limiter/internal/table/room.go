package table

import "sync/atomic"

const (
	maxReach  = 32 // the most lines to search for a cell
	fullReach = 8  // the same in a full shard that cannot grow
	minLines  = 4
)

// Room makes a cell for a digest that Find did not find, with that tag. The caller must put the first
// state into it. Room uses an empty or idle cell within reach, or grows the shard, or evicts the cell
// nearest to idle. It fails if most cells in reach are refusing, or all are marked. It may move other
// cells, so the caller must own none.
func (s *Shard) Room(digest uint64, tag Tag) (Cell, bool) {
	if c, ok := s.nearby(digest); ok {
		c.assign(digest, tag, 0)
		s.used++
		return c, true
	}
	for {
		var r reach
		if s.used < s.Cells()*7/8 {
			r.explore(s, digest, false) // most likely there is an empty cell, so none need be judged
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
		case r.victim != nowhere && !s.mostRefuse(&r):
			if s.vacate(r.cell(r.victim), true) {
				return s.occupy(&r, r.victim, digest, tag), true
			}
		default:
			return Cell{}, false
		}
	}
}

// nearby returns an empty cell in one of the digest's lines.
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

// vacate empties a cell if it is idle, or evicts it if evict is set. It judges the cell again, because the
// state may have changed. It reports whether the cell is empty.
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

// occupy moves each cell on the path to the free cell at one step on, and gives the cell that becomes
// free to digest.
func (s *Shard) occupy(r *reach, at hop, digest uint64, tag Tag) Cell {
	to := r.cell(at)
	for {
		line := r.steps[at.step]
		if line.from == nowhere {
			to.assign(digest, tag, 0)
			s.used++
			r.spill(digest, to)
			return to
		}
		from := r.cell(line.from)
		word, moving := from.take(), from.line.digest[from.i]
		to.assign(moving, from.Tag(), from.Marks())
		to.put(word)
		r.spill(moving, to)
		to, at = from, line.from
	}
}

// spill sets the spill bit of a digest's first line, if its cell is in the second.
func (r *reach) spill(digest uint64, c Cell) {
	if home := &r.lines[first(digest, len(r.lines))]; home != c.line {
		home.noteSpill()
	}
}

// noteSpill sets the spill bit.
func (l *line) noteSpill() {
	if l.head&spill == 0 {
		l.setHead(l.head | spill)
	}
}

// A reach has the cells that can be freed for a digest by moving other cells to their second lines: the
// cells of the digest's two lines, of the lines that these cells could move to, and so on, nearest first.
type reach struct {
	lines  []line
	n      int
	free   hop // an empty or idle cell
	victim hop // if no cell is free: the cell of least worth
	least  int64

	judged, refusing int // cells
	steps            [maxReach]step
}

// A step is a line, and the cell that would move to it.
type step struct {
	line int32
	from hop
}

// A hop is a cell of a step's line. The first cell is 1.
type hop struct{ step, cell int8 }

var nowhere = hop{}

// explore searches for an empty cell or, if judges is set, an empty or idle cell.
func (r *reach) explore(s *Shard, digest uint64, judges bool) {
	r.lines, r.n, r.free, r.victim, r.judged, r.refusing = *s.lines.Load(), 0, nowhere, nowhere, 0, 0
	n := len(r.lines)
	if n == 0 {
		return
	}
	most := maxReach
	if (n >= s.maxLines || s.patience > 0) && s.used == n*cellsPerLine {
		most = fullReach // each further line is a cache miss, and finds only another victim
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

// visit reports whether a line has a free cell.
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

// appraise judges a cell, if it may be taken over.
func (s *Shard) appraise(c Cell) (worth int64, refusing, free bool) {
	word := atomic.LoadUint64(&c.line.word[c.i])
	if word == taken || c.Marks()&(Pinned|Kept) != 0 {
		return 0, false, false
	}
	worth, refusing = s.owner.Judge(c.Tag(), word^c.seal())
	return worth, refusing || c.Marks()&Refusing != 0, true
}

// mostRefuse reports whether most cells are refusing. Then no cell is evicted: the other cells are from
// before a flood, and new digests most likely belong to it. The cells of a few reaches say so: in one of so
// many reaches, fewer cells refuse by chance.
func (s *Shard) mostRefuse(r *reach) bool {
	if s.judged >= 16*fullReach*cellsPerLine {
		s.judged, s.refusing = s.judged/2, s.refusing/2
	}
	s.judged, s.refusing = s.judged+r.judged, s.refusing+r.refusing
	return 2*r.refusing > r.judged || 2*s.refusing > s.judged && r.n < len(r.lines)
}

func (r *reach) cell(h hop) Cell {
	return Cell{&r.lines[r.steps[h.step].line], int(h.cell) - 1}
}

// empty returns the index of an empty cell of the line, or -1.
func (h head) empty() int {
	for i := range cellsPerLine {
		if h.tag(i) == 0 {
			return i
		}
	}
	return -1
}

// Sweep empties the idle cells if about a tenth of all cells are idle. It reports whether it did, so
// that the caller may try again.
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

// patience is how many calls are skipped after a search for idle cells failed. So a flood of new digests
// costs little while there is no memory.
const patience = 7

func (s *Shard) waits() bool {
	if s.patience == 0 {
		return false
	}
	s.patience--
	return true
}

// grow drops the idle cells and, if more than half of the cells stay, moves them to a larger array. It
// reports whether there may be room now. There is none if the shard has its largest size, or if there is
// no memory.
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
	// All cells in reach can be live in an array that is half empty. If nothing was dropped, the
	// array must grow, or the caller would try again for ever.
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
			s.maxLines = n // the cells do not fit the largest size
			return dropped > 0
		}
		size = s.larger(size)
	}
}

// someIdle looks for an idle cell in a sample of lines. If a tenth of the cells are idle, it finds one.
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

// drop empties the idle cells, and returns their number.
func (s *Shard) drop() int {
	before := s.used
	for c := range all(*s.lines.Load()) {
		if s.idle(c) {
			s.vacate(c, false)
		}
	}
	return before - s.used
}

// Tags drops the idle cells, and yields the tags of the others.
func (s *Shard) Tags(yield func(Tag)) {
	s.drop()
	for c := range all(*s.lines.Load()) {
		yield(c.Tag())
	}
}

func (s *Shard) idle(c Cell) bool {
	worth, _, free := s.appraise(c)
	return free && worth == 0
}

// larger returns the next size. Just after growth, a used cell takes at most 36 bytes.
func (s *Shard) larger(lines int) int { return min(max(minLines, lines+(9*lines+19)/20), s.maxLines) }

// rehash moves the cells to an array of size lines. It reports false if they do not fit.
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

// adopt copies a cell of another shard into s, which no other goroutine uses yet.
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

// all yields the cells in lines that are not empty.
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
