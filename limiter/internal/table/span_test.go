package table

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A box is what the model knows of a span or a run.
type box struct {
	ref    uint64
	words  int
	number uint64 // what is in each word
}

func (b box) word(s *Shard, i int) uint64 {
	if b.ref&runBit != 0 {
		return uint64(s.Run(b.ref)[i])
	}
	return s.Span(b.ref, b.words)[i]
}

func (b box) write(s *Shard) {
	for i := range b.words {
		if b.ref&runBit != 0 {
			s.Run(b.ref)[i] = int64(b.number)
		} else {
			s.Span(b.ref, b.words)[i] = b.number
		}
	}
}

func TestABoxIsZeroAndItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewShard()
		var held []box
		next := uint64(0)
		add := func(words int, ref uint64, ok bool) {
			require.True(t, ok)
			next++
			b := box{ref, words, next}
			for i := range words {
				if b.word(s, i) != 0 {
					t.Fatalf("word %d of %d is %d in a new one", i, words, b.word(s, i))
				}
			}
			b.write(s)
			held = append(held, b)
		}
		which := func(t *rapid.T) int {
			if len(held) == 0 {
				t.Skip("there is none")
			}
			return rapid.IntRange(0, len(held)-1).Draw(t, "which")
		}
		t.Repeat(map[string]func(*rapid.T){
			"new span": func(t *rapid.T) {
				n := rapid.OneOf(rapid.IntRange(1, MostWords), rapid.SampledFrom([]int{1, 10, MostWords})).Draw(t, "words")
				for range rapid.IntRange(1, 60).Draw(t, "spans") {
					ref, ok := s.NewSpan(n, false)
					add(n, ref, ok)
				}
			},
			"new run": func(t *rapid.T) {
				n := rapid.IntRange(1, 600).Draw(t, "words")
				ref, ok := s.NewRun(n, false)
				add(n, ref, ok)
			},
			"change": func(t *rapid.T) {
				if b := &held[which(t)]; b.ref&runBit == 0 {
					b.ref = Changed(b.ref)
				}
			},
			"free": func(t *rapid.T) {
				i := which(t)
				s.Free(held[i].ref)
				held = append(held[:i], held[i+1:]...)
			},
			"free most": func(t *rapid.T) {
				for len(held) > 3 {
					s.Free(held[0].ref)
					held = held[1:]
				}
			},
			"": func(t *rapid.T) {
				for _, b := range held {
					for i := range b.words {
						if b.word(s, i) != b.number { // require.Equal takes most of the test's time here
							t.Fatalf("word %d of %d is %d, not %d: two overlap", i, b.words, b.word(s, i), b.number)
						}
					}
				}
			},
		})
	})
}

func TestFreedSpansAreUsedAgainWhateverTheirSize(t *testing.T) {
	s := NewShard()
	take := func(n int) (refs []uint64) {
		for range 20 * pageWords / n {
			ref, ok := s.NewSpan(n, false)
			require.True(t, ok)
			refs = append(refs, ref)
		}
		return refs
	}
	before := 0
	for _, n := range []int{7, 64, 1, 7, 10, 64, MostWords, 3} {
		refs := take(n)
		if before == 0 {
			before = s.Bytes()
		}
		assert.InDelta(t, before, s.Bytes(), float64(before)/10)
		for _, ref := range refs {
			s.Free(ref)
		}
	}
}

func TestAFreedRunTakesNoMemory(t *testing.T) {
	s := NewShard()
	for range 10 {
		ref, _ := s.NewRun(1000, false)
		assert.Equal(t, 8024, s.Bytes())
		s.Free(ref)
		assert.Zero(t, s.Bytes())
	}
}

func TestATableTakesNoMoreBytesThanItMay(t *testing.T) {
	const most = 1 << 20
	table := New(1_000_000, most)
	full := 0
	for digest := uint64(1); full < 10_000; digest++ {
		shard := table.Shard(table.Index(digest * golden))
		ref, ok := shard.NewSpan(20, false)
		if !ok {
			full++
			_, ok = shard.NewRun(5000, false)
			require.False(t, ok)
			continue
		}
		if cell, ok := shard.Room(digest*golden, 1|Boxed, refusing{}); ok {
			cell.Put(1|Boxed, ref)
		} else {
			shard.Free(ref)
		}
	}
	assert.LessOrEqual(t, size(table), most)
	assert.Greater(t, size(table), most*9/10)

	_, ok := table.Shard(0).NewSpan(21, true)
	assert.True(t, ok, "what must be is")
	for range patience + 1 {
		for i := range table.Shards() {
			table.Shard(i).Sweep(idle{})
		}
	}
	_, ok = table.Shard(1).NewSpan(20, false)
	assert.True(t, ok, "there is memory again")
}

// idle judges all cells to be idle.
type idle struct{}

func (idle) Judge(*Shard, Tag, uint64) (int64, bool) { return 0, false }
