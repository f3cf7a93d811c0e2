package table

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestASpanIsLargeEnoughZeroAndItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewShard()
		held := map[uint64]int64{} // reference to what is written in it
		var refs []uint64
		next := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"new": func(t *rapid.T) {
				n := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 600)).Draw(t, "words")
				ref := s.NewSpan(n)
				span := s.Span(ref)
				require.GreaterOrEqual(t, len(span), n)
				require.Equal(t, len(span), cap(span), "an append must not run into the next span")
				require.NotContains(t, held, ref)
				next++
				for i := range span {
					require.Zero(t, span[i], "a new span has something in it")
					span[i] = next
				}
				held[ref] = next
				refs = append(refs, ref)
			},
			"free": func(t *rapid.T) {
				if len(refs) == 0 {
					t.Skip("there is none")
				}
				i := rapid.IntRange(0, len(refs)-1).Draw(t, "which")
				s.FreeSpan(refs[i])
				delete(held, refs[i])
				refs = append(refs[:i], refs[i+1:]...)
			},
			"": func(t *rapid.T) {
				for ref, number := range held {
					for _, word := range s.Span(ref) {
						require.Equal(t, number, word, "two spans overlap")
					}
				}
			},
		})
	})
}

func TestFreedSpansAreUsedAgain(t *testing.T) {
	s := NewShard()
	var refs []uint64
	for range 100 {
		refs = append(refs, s.NewSpan(50))
	}
	before := s.Bytes()
	for range 10 {
		for i, ref := range refs {
			s.FreeSpan(ref)
			refs[i] = s.NewSpan(60)
		}
	}
	assert.Equal(t, before, s.Bytes())
}

func TestNoSpanIsEmptyAndCanBeFreed(t *testing.T) {
	s := NewShard()
	assert.Nil(t, s.Span(0))
	s.FreeSpan(0)
	assert.NotZero(t, s.NewSpan(1))
}
