package dashboard

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/weirgo/weir/keyfunc"
)

const sampleSize = 64

// A sample has the latest keys that were refused, as hashes: enough to tell one noisy client
// from many.
type sample struct {
	next atomic.Uint32
	keys [sampleSize]atomic.Uint64
	by   atomic.Pointer[series] // the rule that has these keys

	// shared has a bit for each key that is not a client's own: of a proxy that does not name its
	// clients.
	shared atomic.Uint64
}

var seed = maphash.MakeSeed()

// hash is what a sample has of a key. 0 is none.
func hash(key string) uint64 { return maphash.String(seed, key) | 1 }

func (s *sample) add(key string, class keyfunc.Class, by *series) {
	at := s.next.Add(1) % sampleSize
	s.keys[at].Store(hash(key))
	if shared, bit := class != keyfunc.Own, uint64(1)<<at; shared != (s.shared.Load()&bit != 0) {
		if shared {
			s.shared.Or(bit)
		} else {
			s.shared.And(^bit)
		}
	}
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
	shared   bool // it is not a client's own
}

func (s *sample) spread() (found spread) {
	counted, shared := make(map[uint64]int, sampleSize), map[uint64]bool{}
	for i := range s.keys {
		if key := s.keys[i].Load(); key != 0 {
			counted[key]++
			found.refusals++
			if s.shared.Load()&(1<<i) != 0 {
				shared[key] = true
			}
		}
	}
	for key, n := range counted {
		found.keys = append(found.keys, share{key, n, shared[key]})
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
