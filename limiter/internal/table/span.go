package table

import (
	"math/bits"
	"unsafe"
)

// spans hands out runs of words, in sizes that are powers of two, from one array.
// A reference is the size's exponent and the offset; 0 is no span.
type spans struct {
	words []int64
	free  [64]int64 // by exponent: the first free span; its first word is the next
}

const (
	minSpan    = 3 // 8 words
	offsetBits = 56
)

// NewSpan returns a reference to at least n words, all zero.
func (s *Shard) NewSpan(n int) uint64 {
	exponent := max(minSpan, bits.Len(uint(n-1)))
	at := s.spans.free[exponent]
	if at != 0 {
		s.spans.free[exponent] = s.spans.words[at]
		clear(s.spans.words[at : at+1<<exponent])
	} else {
		if len(s.spans.words) == 0 {
			s.spans.words = make([]int64, 1, 1<<minSpan) // offset 0 stays unused
		}
		at = int64(len(s.spans.words))
		s.spans.words = append(s.spans.words, make([]int64, 1<<exponent)...)
	}
	return uint64(exponent)<<offsetBits | uint64(at)
}

// Span is the words behind a reference, good until the next NewSpan.
func (s *Shard) Span(ref uint64) []int64 {
	if ref == 0 {
		return nil
	}
	at, size := ref&(1<<offsetBits-1), uint64(1)<<(ref>>offsetBits)
	return s.spans.words[at : at+size : at+size]
}

// FreeSpan gives a span back. The words stay readable until the next NewSpan.
func (s *Shard) FreeSpan(ref uint64) {
	if ref == 0 {
		return
	}
	exponent, at := ref>>offsetBits, int64(ref&(1<<offsetBits-1))
	s.spans.words[at] = s.spans.free[exponent]
	s.spans.free[exponent] = at
}

func (s *spans) bytes() int { return cap(s.words) * int(unsafe.Sizeof(int64(0))) }
