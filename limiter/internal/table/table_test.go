package table

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A judged is what the model knows of a cell. Its number is the cell's state.
type judged struct {
	digest   uint64
	tag      Tag
	idleIn   int64
	refusing bool
	pinned   bool
}

// A modelled shard is one beside a map that says what must be in it.
type modelled struct {
	*Shard
	by      map[uint64]*judged // by number
	numbers map[uint64]uint64  // by digest
	dropped []uint64           // since that was looked at
	next    uint64
}

func newModelled(maxCells int) *modelled {
	m := &modelled{by: map[uint64]*judged{}, numbers: map[uint64]uint64{}}
	m.Shard = &newTable(maxCells, m)[0]
	return m
}

func newTable(maxCells int, owner Owner) []Shard {
	n, lines := Sizes(maxCells)
	shards := make([]Shard, n)
	for i := range shards {
		shards[i].Init(lines, NewBudget(math.MaxInt64), owner)
	}
	return shards
}

func (m *modelled) Judge(_ Tag, state uint64) (int64, bool) {
	j := m.by[state]
	return j.idleIn, j.refusing
}

func (m *modelled) Drop(_ Tag, state uint64) { m.dropped = append(m.dropped, state) }

// put makes a cell for a new digest, and returns what it evicted.
func (m *modelled) put(t *rapid.T, j *judged) {
	evicted := m.Evicted
	before := m.within(j.digest)
	grown := len(*m.lines.Load()) == m.maxLines // and so before is what Room finds
	cell, ok := m.Room(j.digest, j.tag)
	if !ok {
		if grown {
			require.Equal(t, before, m.within(j.digest))
		}
		mostRefuse := m.mostRefuse(m.within(j.digest)) || 2*m.refusing > m.judged // here, or in the last reaches
		for _, number := range m.within(j.digest) {
			require.NotZero(t, number, "there was no room where a cell was empty")
			in := m.by[number]
			require.True(t, in.idleIn > 0 || in.pinned, "there was no room where %+v was idle", in)
			require.True(t, in.refusing || in.pinned || mostRefuse, "there was no room where %+v could be evicted", in)
		}
		require.Zero(t, m.forget(t, before, grown), "something was evicted for nothing")
		return
	}
	require.Equal(t, j.tag, cell.Tag())
	require.Zero(t, cell.line.word[cell.i], "a new cell has a state")
	lost := m.forget(t, before, grown)
	require.Equal(t, uint64(lost), m.Evicted-evicted, "Evicted counts live cells only, and all")
	require.LessOrEqual(t, lost, 1)

	m.next++
	cell.Put(j.tag, m.next)
	m.by[m.next], m.numbers[j.digest] = j, m.next
}

// forget drops what is not in the shard any more, and counts what of it was live.
func (m *modelled) forget(t *rapid.T, before []uint64, grown bool) (lost int) {
	dropped := 0
	for digest, number := range m.numbers {
		if _, found := m.Find(digest); found {
			continue
		}
		gone := m.by[number]
		require.Contains(t, m.dropped, number)
		require.False(t, gone.pinned, "a pinned cell was taken over")
		if gone.idleIn > 0 {
			lost++
			require.False(t, gone.refusing, "a refusing cell was evicted")
			require.False(t, grown && m.mostRefuse(before), "a cell was evicted where most are refusing")
			for _, other := range before {
				if !grown {
					break
				}
				in := m.by[other]
				require.NotZero(t, other, "a live cell was evicted where one was empty")
				require.True(t, in.pinned || in.idleIn > 0, "a live cell was evicted where one was idle")
				require.True(t, in.pinned || in.refusing || in.idleIn >= gone.idleIn, "%+v was evicted, and %+v was nearer to idle", gone, in)
			}
		}
		delete(m.by, number)
		delete(m.numbers, digest)
		dropped++
	}
	require.Len(t, m.dropped, dropped, "what was dropped is there still")
	m.dropped = nil
	return lost
}

// within is the numbers in the cells within a digest's reach, 0 for an empty cell.
func (m *modelled) within(digest uint64) (numbers []uint64) {
	var r reach
	r.explore(m.Shard, digest, true)
	for _, step := range r.steps[:r.n] {
		l := &r.lines[step.line]
		for i := range l.digest {
			number := uint64(0)
			if c := (Cell{l, i}); c.Tag() != 0 {
				number = c.Look()
			}
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// mostRefuse reports whether most of those that are not pinned are refusing.
func (m *modelled) mostRefuse(numbers []uint64) bool {
	refusing, all := 0, 0
	for _, number := range numbers {
		if in := m.by[number]; in != nil && !in.pinned {
			all++
			if in.refusing {
				refusing++
			}
		}
	}
	return 2*refusing > all
}

// check holds the shard to the map.
func (m *modelled) check(t *rapid.T) {
	live := 0
	for range all(*m.lines.Load()) {
		live++
	}
	require.Equal(t, len(m.numbers), live, "a digest is in two cells, or a cell was lost or made")
	require.Equal(t, live, m.used, "cells in use are miscounted")
	for digest, number := range m.numbers {
		cell, found := m.Find(digest)
		require.True(t, found, "a digest is not found")
		tag, state := cell.Tag(), cell.Look()
		j := m.by[number]
		require.Equal(t, j.tag, tag)
		seen, result := m.Seek(digest)
		require.Equal(t, Found, result, "a digest is not found without the lock")
		require.Equal(t, tag, seen.Tag())
		require.Equal(t, state, seen.State())
		require.Equal(t, j.pinned, seen.Marks()&Pinned != 0)
		require.Equal(t, number, state)
	}
}

func TestAShardHoldsWhatAMapHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModelled(rapid.SampledFrom([]int{1, 3, 10, 24, 30, 100, 1000}).Draw(t, "maxCells"))
		crowded := rapid.Bool().Draw(t, "crowded") // digests that compete for few lines
		digest := func() uint64 {
			d := rapid.Uint64().Draw(t, "digest")
			if crowded {
				d = d<<62 | d>>58<<20 | d&0xff
			}
			return d
		}
		known := func() (uint64, *judged, Cell) {
			digests := make([]uint64, 0, len(m.numbers))
			for number := uint64(1); number <= m.next; number++ { // in one order, for rapid
				if j := m.by[number]; j != nil {
					digests = append(digests, j.digest)
				}
			}
			if len(digests) == 0 {
				t.Skip("nothing is known")
			}
			d := rapid.SampledFrom(digests).Draw(t, "known")
			cell, found := m.Find(d)
			require.True(t, found)
			return m.numbers[d], m.by[m.numbers[d]], cell
		}
		putOne := func(t *rapid.T) {
			j := &judged{
				digest:   digest(),
				tag:      Tag(rapid.SampledFrom([]int{1, 7}).Draw(t, "tag")),
				idleIn:   rapid.Int64Range(0, 5).Draw(t, "idleIn"),
				refusing: rapid.Bool().Draw(t, "refusing"),
			}
			if _, found := m.Find(j.digest); found {
				require.Contains(t, m.numbers, j.digest)
				return
			}
			require.NotContains(t, m.numbers, j.digest, "a digest is not found")
			m.put(t, j)
		}
		put := func(t *rapid.T) {
			for range rapid.IntRange(1, 15).Draw(t, "digests") {
				putOne(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": put, "put more": put,
			"set": func(t *rapid.T) {
				number, j, cell := known()
				m.next++
				delete(m.by, number)
				m.by[m.next], m.numbers[j.digest] = j, m.next
				if rapid.Bool().Draw(t, "without the lock") {
					cell, _ := m.Seek(j.digest)
					require.True(t, cell.Swap(m.next))
					require.False(t, cell.Swap(m.next+1), "its word is another")
					return
				}
				cell.Take()
				_, result := m.Seek(j.digest)
				require.Equal(t, Busy, result, "a cell that is taken is found without the lock")
				j.tag = Tag(rapid.SampledFrom([]int{1, 7}).Draw(t, "tag"))
				cell.Put(j.tag, m.next)
			},
			"clear": func(t *rapid.T) {
				number, j, cell := known()
				if j.pinned {
					t.Skip("pinned")
				}
				m.Clear(cell)
				require.Equal(t, []uint64{number}, m.dropped)
				m.dropped = nil
				delete(m.by, number)
				delete(m.numbers, j.digest)
				_, found := m.Find(j.digest)
				require.False(t, found)
			},
			"pin": func(t *rapid.T) {
				_, j, cell := known()
				cell.SetMarks(cell.Marks() | Pinned)
				j.pinned = true
			},
			"unpin": func(t *rapid.T) {
				_, j, cell := known()
				cell.SetMarks(cell.Marks() &^ Pinned)
				j.pinned = false
			},
			"time passes": func(t *rapid.T) {
				by := rapid.Int64Range(1, 5).Draw(t, "by")
				for _, j := range m.by {
					j.idleIn = max(0, j.idleIn-by)
				}
			},
			"": m.check,
		})
	})
}

// refusing judges all cells to be refusing.
type refusing struct{}

func (refusing) Judge(Tag, uint64) (int64, bool) { return 1, true }
func (refusing) Drop(Tag, uint64)                {}

// fill puts a digest into a table and reports whether there was room.
func fill(t []Shard, digest uint64) bool {
	cell, ok := shardOf(t, digest).Room(digest, 1)
	if ok {
		cell.Put(1, digest)
	}
	return ok
}

func shardOf(t []Shard, digest uint64) *Shard { return &t[digest&uint64(len(t)-1)] }

func cells(t []Shard) (n int) {
	for i := range t {
		n += t[i].Cells()
	}
	return n
}

func size(t []Shard) (n int) {
	for i := range t {
		n += t[i].Bytes()
	}
	return n
}

// Beyond some load, a new digest finds all in reach full although the table is not. What
// Memory says of MaxKeys is what is measured here.
func TestATableIsNearlyFullBeforeMuchIsEvicted(t *testing.T) {
	for _, maxCells := range []int{1000, 10_000, 300_000} {
		table, random := newTable(maxCells, refusing{}), rand.New(rand.NewPCG(8, uint64(maxCells)))
		held, lost, first := 0, 0, 0
		var lostAt [101]float64 // in hundredths of maxCells that were put in
		most := 0.0             // bytes for each cell in use
		for i := range maxCells {
			if fill(table, random.Uint64()) {
				held++
			} else if lost++; first == 0 {
				first = held
			}
			if hundredth := maxCells / 100; (i+1)%hundredth == 0 {
				lostAt[(i+1)/hundredth] = float64(lost) / float64(i+1)
				if i > maxCells/10 {
					most = max(most, float64(size(table))/float64(held))
				}
			}
		}
		share := float64(held) / float64(maxCells)
		t.Logf("%9d cells: first without room at %.0f%%; without room %.2f%% of the first 60%%, %.2f%% of 70%%, %.2f%% of 80%%, %.2f%% of 90%%, %.2f%% of all; at most %.1f bytes a key",
			maxCells, 100*float64(first)/float64(maxCells), 100*lostAt[60], 100*lostAt[70], 100*lostAt[80], 100*lostAt[90], 100*lostAt[100], most)
		assert.Greater(t, share, 0.94, "of as many digests as there are cells")
		assert.Less(t, lostAt[70], 0.0001)
		assert.Less(t, lostAt[80], 0.001)
		assert.Less(t, lostAt[90], 0.01)
		assert.Less(t, most, 36.0)
	}
}

// This once went on for ever: the array was not more than half full, so it kept its size.
func TestAShardGrowsWhereNoChainHelps(t *testing.T) {
	table, random := newTable(1000, refusing{}), rand.New(rand.NewPCG(1, 1))
	for put := 0; put <= 2*cellsPerLine; {
		digest := random.Uint64()
		if first(digest, minLines) == 0 && second(digest, minLines) == 1 {
			require.True(t, fill(table, digest), "there was no room in a table that could grow")
			put++
		}
	}
	require.Greater(t, cells(table), minLines*cellsPerLine)
}

func TestATableTakesNoMoreBytesThanItMay(t *testing.T) {
	budget := NewBudget(1 << 16)
	s := &Shard{}
	s.Init(math.MaxInt32, budget, refusing{})
	held := 0
	for range 5000 {
		if cell, ok := s.Room(rand.Uint64(), 1); ok {
			cell.Put(1, 1)
			held++
		}
	}
	assert.LessOrEqual(t, s.Bytes(), 1<<16)
	assert.Greater(t, held, 1<<16/lineBytes)
	assert.False(t, budget.Reserve(1<<16-s.Bytes()+1, false), "what the shard takes is counted")
	assert.True(t, budget.Reserve(1<<16-s.Bytes(), false))
}
