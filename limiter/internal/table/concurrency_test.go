package table

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newShard(owner Owner) *Shard {
	s := &Shard{}
	s.Init(math.MaxInt32, NewBudget(math.MaxInt64), owner)
	return s
}

// put makes a cell for a digest in a shard where there is room.
func put(t *testing.T, s *Shard, digest uint64, tag Tag, state uint64) {
	t.Helper()
	cell, ok := s.Room(digest, tag)
	require.True(t, ok)
	cell.Put(tag, state)
}

// mustFind returns the cell of a digest that must be there.
func mustFind(t *testing.T, s *Shard, digest uint64) Snapshot {
	t.Helper()
	cell, result := s.Seek(digest)
	require.Equal(t, Found, result)
	return cell
}

// What may happen between Seek and Swap, or Take, while a goroutine sleeps.
func TestASwapThatComesLateChangesNothing(t *testing.T) {
	const mine, other, tag, state = 5, 6, 1, 77
	for name, meanwhile := range map[string]func(s *Shard){
		"its state changed": func(s *Shard) { c, _ := s.Find(mine); c.Take(); c.Put(tag, state+1) },
		"its tag changed":   func(s *Shard) { c, _ := s.Find(mine); c.Put(tag+1, c.Take()) },
		"it was emptied":    func(s *Shard) { c, _ := s.Find(mine); s.Clear(c) },
		"it was taken":      func(s *Shard) { c, _ := s.Find(mine); c.Take() },
		"another has its cell and state": func(s *Shard) {
			c, _ := s.Find(mine)
			s.Clear(c)
			put(t, s, other, tag, state)
		},
		"it moved to a larger array": func(s *Shard) {
			s.maxLines = 100
			for n := s.Cells(); n == s.Cells(); {
				put(t, s, rand.Uint64(), tag, state)
			}
		},
		"it moved to its other line": func(s *Shard) {
			c, _ := s.Find(mine)
			for {
				put(t, s, rand.Uint64(), tag, state)
				if now, ok := s.Find(mine); !ok || now != c {
					require.True(t, ok)
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShard(refusing{})
			if s.maxLines = 1; name == "it moved to its other line" {
				s.maxLines = 1000
			}
			put(t, s, mine, tag, state)
			cell := mustFind(t, s, mine)
			meanwhile(s)
			before := append([]line(nil), *s.lines.Load()...)
			assert.False(t, cell.Swap(1))
			assert.Equal(t, before, *s.lines.Load())
		})
	}
}

// byState judges by a state's low digits: the last is its worth, the one before it says if
// it is refusing.
type byState struct{ then func() }

func (*byState) Drop(Tag, uint64) {}

func (b *byState) Judge(_ Tag, state uint64) (int64, bool) {
	if then := b.then; then != nil {
		b.then = nil
		defer then()
	}
	return int64(state % 10), state%100 >= 10
}

func TestACellThatIsUsedAfterItWasJudgedIsNotLost(t *testing.T) {
	const idle, live, refusing = 100, 101, 111
	for name, states := range map[string]struct{ before, after uint64 }{
		"it was idle":         {idle, live},
		"it could be evicted": {live, refusing},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShard(nil)
			s.maxLines = 1
			put(t, s, 1, 1, states.before)
			put(t, s, 2, 1, refusing)
			put(t, s, 3, 1, 109) // live, and further from idle
			judge := &byState{then: func() { assert.True(t, mustFind(t, s, 1).Swap(states.after)) }}
			s.owner = judge
			_, ok := s.Room(4, 1)
			if states.after == refusing {
				assert.False(t, ok, "most are refusing")
				assert.Zero(t, s.Evicted)
				assert.Equal(t, states.after, mustFind(t, s, 1).State())
			} else {
				assert.True(t, ok, "what is live can be evicted")
				assert.EqualValues(t, 1, s.Evicted, "and is counted")
			}
		})
	}
	t.Run("while the shard grows", func(t *testing.T) {
		s := newShard(nil)
		put(t, s, 1, 1, idle)
		judge := &byState{then: func() { assert.True(t, mustFind(t, s, 1).Swap(live)) }}
		s.owner = judge
		assert.True(t, s.grow())
		assert.EqualValues(t, live, mustFind(t, s, 1).State())
	})
}

// Two digests take turns in one line while others look for one of them.
func TestASnapshotIsOfItsDigestOnly(t *testing.T) {
	s := newShard(refusing{})
	s.maxLines = 1
	digests := [...]uint64{rand.Uint64(), rand.Uint64()}
	var over atomic.Bool
	var wg sync.WaitGroup
	var found atomic.Int64
	for range 2 {
		wg.Go(func() {
			for !over.Load() {
				cell, result := s.Seek(digests[0])
				if result != Found {
					continue
				}
				found.Add(1)
				if cell.Tag() != 1 || cell.State() != 1000 {
					t.Errorf("tag %d, state %x are another's", cell.Tag(), cell.State())
					return
				}
			}
		})
	}
	for turn := 0; (turn < 50_000 || found.Load() < 1000) && !t.Failed(); turn++ {
		s.Lock()
		put(t, s, digests[turn%2], Tag(1+turn%2), uint64(1000+turn%2))
		s.Unlock()
		s.Lock()
		cell, _ := s.Find(digests[turn%2])
		s.Clear(cell)
		s.Unlock()
	}
	over.Store(true)
	wg.Wait()
}

// Counters are counted up while others come and go, and so make their cells move.
func TestEverySwapCountsWhereverItsCellMoves(t *testing.T) {
	const counters, callers = 60, 3
	s := newShard(refusing{})
	random := rand.New(rand.NewPCG(1, 2))
	digests := make([]uint64, counters)
	var counts [counters]atomic.Uint64
	const live, step = 11, 100 // see byState
	s.owner = &byState{}
	for i := range digests {
		digests[i] = random.Uint64()
		put(t, s, digests[i], 1, live)
	}
	s.maxLines = 40 // so that there is not always room for all

	var wg sync.WaitGroup
	var over atomic.Bool
	for id := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(id)))
			for !over.Load() {
				at := random.IntN(counters)
				cell, result := s.Seek(digests[at])
				if result != Found {
					continue
				}
				if cell.State()%step != live {
					t.Errorf("state %d: it is another's", cell.State())
					return
				}
				after := cell.State() + step
				switch random.IntN(2) {
				case 0:
					if cell.Swap(after) {
						counts[at].Add(1)
					}
				case 1:
					s.Lock()
					cell, ok := s.Find(digests[at])
					if assert.True(t, ok, "a counter is gone") {
						cell.Put(cell.Tag(), cell.Take()+step)
						counts[at].Add(1)
					}
					s.Unlock()
				}
			}
		})
	}
	for range 100_000 {
		s.Lock()
		if digest := random.Uint64(); random.IntN(3) > 0 {
			if cell, ok := s.Room(digest, 2); ok {
				cell.Put(2, uint64(random.IntN(2))) // idle or live
			}
		} else {
			lines := *s.lines.Load()
			cell := Cell{&lines[random.IntN(len(lines))], random.IntN(cellsPerLine)}
			switch cell.Tag() {
			case 0:
			case 2:
				s.Clear(cell)
			default: // another limit now says how to read it
				cell.Put(cell.Tag()^4, cell.Take())
			}
		}
		s.Unlock()
	}
	over.Store(true)
	wg.Wait()
	for i, digest := range digests {
		cell, ok := s.Find(digest)
		require.True(t, ok, "a counter is gone")
		require.Equal(t, live+step*counts[i].Load(), cell.Take())
	}
}

// A shard that cannot become as large as it should puts everything back.
func TestEverySwapCountsThoughAShardGivesUpGrowing(t *testing.T) {
	gaveUp := 0
	for round := range uint64(200) {
		s := newShard(refusing{})
		random := rand.New(rand.NewPCG(7, round))
		size := 5 + random.IntN(8)
		s.maxLines = size
		digests, counts := make([]uint64, size*cellsPerLine), make([]atomic.Uint64, size*cellsPerLine)
		var known atomic.Int64
		var over atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			random := rand.New(rand.NewPCG(8, round))
			for !over.Load() {
				if n := int(known.Load()); n > 0 {
					at := random.IntN(n)
					if cell, result := s.Seek(digests[at]); result == Found && cell.Swap(cell.State()+1) {
						counts[at].Add(1)
					}
				}
			}
		})
		for range 3 * len(digests) {
			s.Lock()
			if digest := random.Uint64(); int(known.Load()) < len(digests) {
				if cell, ok := s.Room(digest, 1); ok {
					cell.Put(1, 0)
					digests[known.Load()] = digest
					known.Add(1)
				}
			}
			s.Unlock()
		}
		over.Store(true)
		wg.Wait()
		if s.maxLines < size {
			gaveUp++
		}
		for i := range known.Load() {
			cell, ok := s.Find(digests[i])
			require.True(t, ok)
			require.Equal(t, counts[i].Load(), cell.Take())
		}
	}
	require.NotZero(t, gaveUp, "nothing was tested")
}

func TestNoSealedStateLooksTaken(t *testing.T) {
	s := newShard(refusing{})
	_, result := s.Seek(5)
	require.Equal(t, NotFound, result, "where there is nothing yet")
	put(t, s, 5, 1, seal(5, 1)) // which would be 0
	assert.Equal(t, seal(5, 1)^1, mustFind(t, s, 5).State(), "off by one")
}
