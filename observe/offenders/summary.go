package offenders

import (
	"math/bits"

	"github.com/weirgo/weir/keyfunc"
)

// A summary is the Space-Saving algorithm: k counters, for the keys that came most. A key
// without a counter takes the one with the lowest count, and goes on from there: so its count
// is too high by that much at most, and the lowest is never above total/k.
//
// To add allocates nothing, but for keys longer than 256 bytes.
type summary struct {
	total    uint64
	used     int // counters
	lowest   uint64
	next     int // no counter before it has the lowest count, if they are all used
	counters []counter
	names    []name   // of the counters
	index    []uint16 // by hash, with linear probing: a counter's place + 1, or 0
	digests  keyfunc.Digester
}

type counter struct {
	hash  uint64
	count uint64
	error uint64 // by how much count may be too high
}

// indexSize leaves at least half of the index empty.
func indexSize(k int) int { return 1 << bits.Len(uint(2*k-1)) }

func (s *summary) clear() {
	clear(s.index)
	s.total, s.used, s.lowest, s.next = 0, 0, 0, 0
}

func (s *summary) mask() uint64 { return uint64(len(s.index) - 1) }

// add counts a key once.
func (s *summary) add(hash uint64, key string) {
	s.total++
	at := hash & s.mask()
	for s.index[at] != 0 {
		if c := &s.counters[s.index[at]-1]; c.hash == hash {
			c.count++
			return
		}
		at = (at + 1) & s.mask()
	}
	place, c := s.used, counter{hash: hash, count: 1}
	if s.used < len(s.counters) {
		s.used++
	} else {
		place = s.last()
		c.error = s.counters[place].count
		c.count += c.error
		s.unlink(place)
		at = hash & s.mask()
		for s.index[at] != 0 {
			at = (at + 1) & s.mask()
		}
	}
	s.counters[place] = c
	s.index[at] = uint16(place + 1)
	s.names[place].set(key, s.digests)
}

// last is the place of a counter with the lowest count, of k that are used. As counts only
// grow, those found with one lowest count are found in one pass; to bring about many passes
// that find few each, more requests are needed than the passes have steps.
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

// floor is the lowest count: by how much that of a key without a counter may be too low.
func (s *summary) floor() uint64 {
	if s.used < len(s.counters) {
		return 0
	}
	lowest := s.counters[0].count
	for i := range s.counters {
		lowest = min(lowest, s.counters[i].count)
	}
	return lowest
}

// unlink takes a counter from the index, and closes the gap for those that were put off by it.
func (s *summary) unlink(place int) {
	mask := s.mask()
	gap := s.counters[place].hash & mask
	for s.index[gap] != uint16(place+1) {
		gap = (gap + 1) & mask
	}
	for at := (gap + 1) & mask; s.index[at] != 0; at = (at + 1) & mask {
		home := s.counters[s.index[at]-1].hash & mask
		if (at-home)&mask >= (at-gap)&mask {
			s.index[gap] = s.index[at]
			gap = at
		}
	}
	s.index[gap] = 0
}

// A name is a key or, of one that is longer than there is room for, its digest.
type name struct {
	size  uint8 // isLong: it is a digest
	bytes [63]byte
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
