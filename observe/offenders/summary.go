package offenders

import (
	"time"

	"github.com/weirgo/weir/keyfunc"
)

// A summary is the Space-Saving algorithm: k counters, for the most frequent keys. A key without a
// counter takes over the counter with the lowest count, and counts on from there. So its count
// is too high by that much at most, and the lowest count is never above total/k.
//
// add allocates nothing, except for keys longer than 256 bytes.
type summary struct {
	total    uint64
	lowest   uint64
	next     int // no counter before it has the lowest count, if all k are used
	k        int
	counters []counter
	names    []name         // of the counters
	seen     []sight        // of the counters: the latest; empty without Options.Latest
	places   map[uint64]int // of the counters, by hash
	digests  keyfunc.Digester
}

type counter struct {
	hash  uint64
	count uint64
	error uint64 // by how much count may be too high
}

// A sight is when a key was seen, in seconds since the sketch's start, plus 1; 0: unknown. The low bits are the key's
// class.
type sight uint32

const classBits = 3

func newSight(since time.Duration, class keyfunc.Class) sight {
	return sight(since/time.Second+1)<<classBits | sight(class)
}

// seconds is the time, and class the class.
func (s sight) seconds() uint32      { return uint32(s >> classBits) }
func (s sight) class() keyfunc.Class { return keyfunc.Class(s & (1<<classBits - 1)) }

func newSummary(k int, digests keyfunc.Digester) summary {
	return summary{k: k, counters: make([]counter, 0, k), names: make([]name, k), places: make(map[uint64]int, k), digests: digests}
}

func (s *summary) clear() {
	clear(s.places)
	s.total, s.lowest, s.next, s.counters = 0, 0, 0, s.counters[:0]
}

// add counts a key once, and returns the index of its counter.
func (s *summary) add(hash uint64, key string) int {
	s.total++
	if place, ok := s.places[hash]; ok {
		s.counters[place].count++
		return place
	}
	place, c := len(s.counters), counter{hash: hash, count: 1}
	if place < s.k {
		s.counters = append(s.counters, c)
	} else {
		place = s.last()
		last := &s.counters[place]
		delete(s.places, last.hash)
		c.error = last.count
		c.count += c.error
		*last = c
	}
	s.places[hash] = place
	s.names[place].set(key, s.digests)
	if len(s.seen) > 0 {
		s.seen[place] = 0
	}
	return place
}

// see records the class of a counter's key and, if it counts, the time.
func (s *summary) see(place int, at sight, counts bool) {
	if len(s.seen) == 0 {
		return
	}
	if !counts {
		at = sight(s.seen[place].seconds())<<classBits | sight(at.class())
	}
	s.seen[place] = at
}

// last returns the index of a counter with the lowest count; all k are used. Counts only grow, so
// one pass finds all counters with one lowest count. To cause many passes that find few counters,
// an attacker needs more requests than the passes have steps.
func (s *summary) last() int {
	for {
		for ; s.next < len(s.counters); s.next++ {
			if s.counters[s.next].count == s.lowest {
				s.next++
				return s.next - 1
			}
		}
		s.lowest, s.next = s.floor(), 0
	}
}

// floor is the lowest count: a key without a counter may have come as often.
func (s *summary) floor() uint64 {
	if len(s.counters) < s.k {
		return 0
	}
	lowest := s.counters[0].count
	for i := range s.counters {
		lowest = min(lowest, s.counters[i].count)
	}
	return lowest
}

// LongestKey is the number of bytes up to which a Sketch keeps a key. Of a longer one it keeps the digest.
const LongestKey = 63

// A name is a key, or the digest of a key that is too long.
type name struct {
	size  uint8 // isLong: it is a digest
	bytes [LongestKey]byte
}

const isLong = 255

func (n *name) set(key string, digests keyfunc.Digester) {
	if len(key) <= len(n.bytes) {
		n.size = uint8(copy(n.bytes[:], key))
		return
	}
	n.size = isLong
	digest := digests.Digest(key)
	copy(n.bytes[:], digest[:])
}

// whole reports whether the name is the key.
func (n *name) whole() bool { return n.size != isLong }

// String is the key. The name is whole.
func (n *name) String() string { return string(n.bytes[:n.size]) }

func (n *name) digest(digests keyfunc.Digester) keyfunc.Digest {
	if !n.whole() {
		return keyfunc.Digest(n.bytes[:keyfunc.DigestSize])
	}
	return digests.Digest(n.String())
}
