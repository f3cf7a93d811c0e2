package offenders

import (
	"cmp"
	"slices"
)

// An Offender is a key, and how its requests fared.
type Offender struct {
	// Digest stands for the key here as in logs, lists of bans and Redis.
	Digest string

	// Key is the digest too, or with Options.ShowKeys the key itself, as far as Whole says.
	// The counter of all requests, which has no key, is always shown as the empty Key.
	Key string

	// Whole says that Key is the key as rules have it, to peek at, reset or ban. Of a key
	// longer than 63 bytes there is the digest alone.
	Whole bool

	Refused, All Count
}

// A Count is how many requests there were: between AtLeast and N.
type Count struct {
	N     uint64
	Error uint64 // by how much N may be too high
}

// AtLeast is N without the Error.
func (c Count) AtLeast() uint64 { return c.N - c.Error }

// A Rule is one that requests met in the window, and how many of them.
type Rule struct {
	Name         string
	Refused, All uint64
}

// Rules are the rules followed, by name. Tiers of a rule count as one.
func (s *Sketch) Rules() []Rule {
	now := s.now()
	var all []Rule
	for name, r := range *s.rules.Load() {
		if refused, asked := r.totals(now); asked > 0 {
			all = append(all, Rule{name, refused, asked})
		}
	}
	slices.SortFunc(all, func(a, b Rule) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Top are the keys that the rule refused most, n at most, the first in front. Keys that were
// not refused are not among them.
func (s *Sketch) Top(rule string, n int) []Offender {
	known := s.read(rule)
	return s.describe(known, first(n, known.refused.keys, func(hash uint64) Count {
		refused, _ := known.counts(hash)
		return refused
	}))
}

// Busiest are the keys with the most requests that met the rule, n at most, the first in front.
func (s *Sketch) Busiest(rule string, n int) []Offender {
	known := s.read(rule)
	return s.describe(known, first(n, known.all.keys, func(hash uint64) Count {
		_, all := known.counts(hash)
		return all
	}))
}

// Digest is that of a key, to find it among offenders.
func (s *Sketch) Digest(key string) string { return s.digests.Digest(key).String() }

// KeyOf is the key that a digest stands for, if it is among those counted in the window and not
// longer than 63 bytes: for an operator that has read the digest in a log.
func (s *Sketch) KeyOf(digest string) (key string, ok bool) {
	now := s.now()
	for _, r := range *s.rules.Load() {
		k := r.read(now)
		for _, keys := range []map[uint64]excess{k.refused.keys, k.all.keys} {
			for _, e := range keys {
				if e.name.whole() && e.name.digest(s.digests).String() == digest {
					return e.name.String(), true
				}
			}
		}
	}
	return "", false
}

// read is what is known of a rule in the window.
func (s *Sketch) read(rule string) *known {
	r := (*s.rules.Load())[rule]
	if r == nil {
		return &known{}
	}
	return r.read(s.now())
}

// first are those keys, n at most, with the highest counts; of equal ones the surest.
func first(n int, keys map[uint64]excess, count func(hash uint64) Count) []uint64 {
	type rank struct {
		hash uint64
		Count
	}
	ranks := make([]rank, 0, len(keys))
	for hash := range keys {
		ranks = append(ranks, rank{hash, count(hash)})
	}
	slices.SortFunc(ranks, func(a, b rank) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Error, b.Error), cmp.Compare(a.hash, b.hash))
	})
	hashes := make([]uint64, max(0, min(n, len(ranks))))
	for i := range hashes {
		hashes[i] = ranks[i].hash
	}
	return hashes
}

func (s *Sketch) describe(k *known, hashes []uint64) []Offender {
	all := make([]Offender, len(hashes))
	for i, hash := range hashes {
		o := &all[i]
		o.Refused, o.All = k.counts(hash)
		name := cmp.Or(k.refused.keys[hash].name, k.all.keys[hash].name)
		o.Digest = name.digest(s.digests).String()
		o.Key = o.Digest
		if name.whole() && (s.showKeys || name.size == 0) {
			o.Key, o.Whole = name.String(), true
		}
	}
	return all
}
