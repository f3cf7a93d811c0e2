package dashboard

import (
	"hash/maphash"
	"sync/atomic"
)

const sampleSize = 64

// A sample is who was refused of late, as hashes of keys: enough to tell one who is noisy
// from many.
type sample struct {
	next atomic.Uint32
	keys [sampleSize]atomic.Uint64
	by   atomic.Pointer[series] // whose keys they are
}

var seed = maphash.MakeSeed()

func (s *sample) add(key string, by *series) {
	s.keys[s.next.Add(1)%sampleSize].Store(maphash.String(seed, key) | 1) // 0 is none
	if s.by.Load() != by {
		s.by.Store(by)
	}
}

// A spread is how a sample is divided.
type spread struct {
	refusals, keys int
	most           int    // refusals of one key
	by             string // the rule whose keys they are
}

func (s *sample) spread() (found spread) {
	counted := make(map[uint64]int, sampleSize)
	for i := range s.keys {
		if key := s.keys[i].Load(); key != 0 {
			counted[key]++
			found.refusals++
			found.most = max(found.most, counted[key])
		}
	}
	found.keys = len(counted)
	if by := s.by.Load(); by != nil {
		found.by = by.rule
	}
	return found
}
