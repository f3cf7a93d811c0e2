package offenders

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirgo/weir/keyfunc"
)

// An Offender is a key with its counts.
type Offender struct {
	// Digest is the digest of the key, as logs, lists of bans and Redis show it.
	Digest string

	// Key is the key itself if Whole is true, else the digest. The counter of a rule without keys
	// has the empty Key.
	Key string

	// Whole reports that Key is the key itself, which Peek, Reset and bans take. It needs
	// Options.ShowKeys and a key of at most 63 bytes, or the empty Key.
	Whole bool

	Refused, All Count
}

// A Count is an estimate of a number of requests. The true number is between AtLeast and N.
type Count struct {
	N     uint64
	Error uint64 // by how much N may be too high
}

// AtLeast returns N - Error.
func (c Count) AtLeast() uint64 { return c.N - c.Error }

// A Rule is the name of a rule, and how many requests it applied to in the window.
type Rule struct {
	Name         string
	Refused, All uint64
}

// Rules returns the rules, sorted by name. The requests of all tiers of a rule are counted together.
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

// Top returns up to n keys that the rule refused most, the most refused first. It leaves out keys
// that were never refused.
func (s *Sketch) Top(rule string, n int) []Offender {
	known := s.read(rule)
	return s.describe(known, first(n, known.refused.keys, func(hash uint64) Count {
		refused, _ := known.counts(hash)
		return refused
	}))
}

// Busiest returns up to n keys with the most requests that met the rule, the busiest first.
func (s *Sketch) Busiest(rule string, n int) []Offender {
	known := s.read(rule)
	return s.describe(known, first(n, known.all.keys, func(hash uint64) Count {
		_, all := known.counts(hash)
		return all
	}))
}

// Digest returns the digest of a key, to find it among offenders.
func (s *Sketch) Digest(key string) string { return s.digests.Digest(key).String() }

// KeyOf returns the key of a digest that an operator has read in a log, if the key was counted in the
// window and has at most 63 bytes.
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

// A Sighting is when a key was last seen under a rule.
type Sighting struct {
	Rule  string
	Class keyfunc.Class // of the key in its latest request

	// When a request of the key passed all rules, and when the rule refused one, to the second. Zero: not
	// known, as the key was not seen in the window, or is not among those that are counted.
	Passed, Refused time.Time
}

// Find returns when a key was last seen, by rule, in no order. Of a key of more than 63 bytes it also accepts the
// digest ([keyfunc.Digest.Key]). It needs Options.Latest, and does not see requests of [Sketch.Count].
func (s *Sketch) Find(key string) (found []Sighting) {
	if !s.latest {
		return nil
	}
	now, hash := s.now(), s.hash(key)
	digest, isDigest := keyfunc.DigestOf(key)
	for name, r := range *s.rules.Load() {
		if isDigest {
			hash = r.hashOf(digest)
		}
		if passed, refused, class, ok := r.find(now, hash); ok {
			found = append(found, Sighting{name, class, s.timeOf(passed), s.timeOf(refused)})
		}
	}
	return found
}

// timeOf returns the time of a sight's seconds.
func (s *Sketch) timeOf(seconds uint32) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return s.start.Add(time.Duration(seconds-1) * time.Second)
}

// read returns the counts of a rule in the window.
func (s *Sketch) read(rule string) *known {
	r := (*s.rules.Load())[rule]
	if r == nil {
		return &known{}
	}
	return r.read(s.now())
}

// first returns up to n keys with the highest counts. Of equal counts the one with the smaller error is first.
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
