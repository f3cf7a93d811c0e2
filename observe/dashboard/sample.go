package dashboard

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/weirgo/weir/keyfunc"
)

const sampleSize = 64

// A sample has the keys of the latest refusals, as hashes: enough to tell one noisy client from many.
type sample struct {
	next atomic.Uint32
	keys [sampleSize]atomic.Uint64
	by   atomic.Pointer[series] // the rule that has these keys
}

var seed = maphash.MakeSeed()

// hash is a key's hash in a sample, without the bit shared. It is never 0.
func hash(key string) uint64 { return maphash.String(seed, key)&^shared | 1 }

// shared is set in a sample's hash if several clients have the key, as behind a proxy that does not name them.
const shared = 2

func (s *sample) add(key string, class keyfunc.Class, by *series) {
	h := hash(key)
	if class == keyfunc.InDoubt {
		h |= shared
	}
	s.keys[s.next.Add(1)%sampleSize].Store(h)
	if s.by.Load() != by {
		s.by.Store(by)
	}
}

// A spread is how the refusals of a sample are spread over keys.
type spread struct {
	refusals int
	keys     []share // the largest first
	by       string  // the rule that the keys are of
}

// A share is the part of one key.
type share struct {
	key      uint64
	refusals int
	shared   bool // several clients have the key
}

func (s *sample) spread() (found spread) {
	for i := range s.keys {
		h := s.keys[i].Load()
		if h == 0 {
			continue
		}
		found.refusals++
		at := slices.IndexFunc(found.keys, func(k share) bool { return k.key == h&^shared })
		if at < 0 {
			at, found.keys = len(found.keys), append(found.keys, share{key: h &^ shared})
		}
		k := &found.keys[at]
		k.refusals++
		k.shared = k.shared || h&shared != 0
	}
	slices.SortFunc(found.keys, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.refusals, a.refusals), cmp.Compare(a.key, b.key))
	})
	if by := s.by.Load(); by != nil {
		found.by = by.rule
	}
	return found
}

// noisy returns the keys that come near the first, and their refusals.
func (s *spread) noisy() (keys []share, refusals int) {
	for i, k := range s.keys {
		if 4*k.refusals < s.keys[0].refusals {
			return s.keys[:i], refusals
		}
		refusals += k.refusals
	}
	return s.keys, refusals
}
