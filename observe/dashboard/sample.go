package dashboard

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync/atomic"
)

const sampleSize = 64

// A sample has the latest keys that were refused, as hashes: enough to tell one noisy client
// from many.
type sample struct {
	next atomic.Uint32
	keys [sampleSize]atomic.Uint64
	by   atomic.Pointer[series] // the rule that has these keys
}

var seed = maphash.MakeSeed()

// hash is what a sample has of a key. 0 is none.
func hash(key string) uint64 { return maphash.String(seed, key) | 1 }

func (s *sample) add(key string, by *series) {
	s.keys[s.next.Add(1)%sampleSize].Store(hash(key))
	if s.by.Load() != by {
		s.by.Store(by)
	}
}

// A spread is how a sample is divided.
type spread struct {
	refusals int
	keys     []share // the one with most in front
	by       string  // the rule that the keys are of
}

// A share is one key's.
type share struct {
	key      uint64
	refusals int
}

func (s *sample) spread() (found spread) {
	counted := make(map[uint64]int, sampleSize)
	for i := range s.keys {
		if key := s.keys[i].Load(); key != 0 {
			counted[key]++
			found.refusals++
		}
	}
	for key, n := range counted {
		found.keys = append(found.keys, share{key, n})
	}
	slices.SortFunc(found.keys, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.refusals, a.refusals), cmp.Compare(a.key, b.key))
	})
	if by := s.by.Load(); by != nil {
		found.by = by.rule
	}
	return found
}

// noisy are the keys that come near the first, and how much of the sample is theirs.
func (s *spread) noisy() (keys []share, refusals int) {
	for i, k := range s.keys {
		if 4*k.refusals < s.keys[0].refusals {
			return s.keys[:i], refusals
		}
		refusals += k.refusals
	}
	return s.keys, refusals
}
