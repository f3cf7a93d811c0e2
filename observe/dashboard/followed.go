package dashboard

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// followed has some clients: those that were refused of late, and those that an operator looked
// at. A client is a key. How many are followed is bounded; one more takes the place of the one that
// has not been seen for longest. Where many keys are refused once, as an attacker makes them up, a
// few of them in each second take the place of one that was seen lately: so to refuse them costs
// little, and others are not lost among them.
type followed struct {
	digests keyfunc.Digester
	sets    [followedSets]clientSet
}

const (
	followedSets = 64
	followedWays = 8

	seenLately = 10 // seconds
	longestKey = 64 // bytes; of a longer one the digest is kept
)

// A clientSet has the clients of one part of all hashes.
type clientSet struct {
	hashes  [followedWays]atomic.Uint64 // 0: free
	crowded atomic.Int64                // one more than the second in which one gave way that had been seen lately

	mu      sync.Mutex // guards clients, and changes of hashes
	clients [followedWays]client
}

// A client is a key with the last that happened to its requests. Seconds are those of the page;
// 0: not known.
type client struct {
	key     string        // or keyfunc.Digest.Key of a long one
	class   keyfunc.Class // of its last request; Own before that
	seen    int64         // the last second
	by      *series       // the rule that refused it; nil: none is known
	shadow  bool          // and refuses nothing
	refused int64         // when that was
	passed  int64         // when a request of its passed
}

func (f *followed) set(hash uint64) *clientSet { return &f.sets[hash>>32%followedSets] }

// at is where the client of a hash is, or -1.
func (s *clientSet) at(hash uint64) int {
	for i := range s.hashes {
		if s.hashes[i].Load() == hash {
			return i
		}
	}
	return -1
}

// find is the client of a hash, if it is followed.
func (f *followed) find(hash uint64) (c client, ok bool) {
	s := f.set(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.at(hash)
	if i < 0 {
		return c, false
	}
	return s.clients[i], true
}

// follow has the client of a key followed from now on, if it was not.
func (f *followed) follow(key string, now int64) {
	h := hash(key)
	s := f.set(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed(f, h, key, now)
}

// followed is the client of a key, which takes the place of another if it is new. s is locked.
func (s *clientSet) followed(f *followed, hash uint64, key string, now int64) *client {
	if i := s.at(hash); i >= 0 {
		return &s.clients[i]
	}
	last := 0
	for i := range s.hashes {
		if s.hashes[i].Load() == 0 {
			last = i
			break
		}
		if s.clients[i].seen <= s.clients[last].seen {
			last = i
		}
	}
	if s.hashes[last].Load() != 0 && now-s.clients[last].seen < seenLately {
		s.crowded.Store(now + 1)
	}
	if len(key) > longestKey {
		key = f.digests.Digest(key).Key()
	}
	s.clients[last] = client{key: strings.Clone(key), class: keyfunc.Own, seen: now}
	s.hashes[last].Store(hash)
	return &s.clients[last]
}

// observe notes a request of the client with the key of rule i, which is the first with that
// key. It is in the path of every request, and waits for nothing.
func (f *followed) observe(c *counts, o *middleware.Observation, i int, hash uint64, now int64) {
	key := o.Rules[i].Key
	for j := range i {
		if o.Rules[j].Key == key {
			return // it has been
		}
	}
	s := f.set(hash)
	if s.at(hash) < 0 && (o.Err != nil || s.crowded.Load() == now+1 || !saysNo(o.Rules[i:], key)) {
		return
	}
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.followed(f, hash, key, now).note(c, o, i, now)
}

func saysNo(rules []middleware.RuleResult, key string) bool {
	for i := range rules {
		if !rules[i].Allowed && rules[i].Key == key {
			return true
		}
	}
	return false
}

// note notes a request, of which rule first has the client's key.
func (k *client) note(c *counts, o *middleware.Observation, first int, now int64) {
	k.seen = now
	k.class = o.Rules[first].Class
	now = max(now, 1) // 0 is not known
	if o.Outcome == middleware.OutcomeAllowed || o.Outcome == middleware.OutcomeExempt {
		k.passed = now
	}
	shadow := true // of those that refuse this request
	for i := first; i < len(o.Rules); i++ {
		rule := &o.Rules[i]
		if rule.Key != o.Rules[first].Key || rule.Allowed || o.Err != nil || rule.Rule.Shadow && !shadow {
			continue
		}
		if shadow {
			k.by, k.shadow, k.refused = c.of(rule.Rule), rule.Rule.Shadow, now
		}
		shadow = shadow && rule.Rule.Shadow
	}
}

// banned notes that the client of a ban is still there.
func (f *followed) banned(key string, now int64) {
	key, _ = keyfunc.Classify(key)
	s := f.set(hash(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.at(hash(key)); i >= 0 {
		s.clients[i].seen = now
	}
}

// of is the client with a key or, if the key is not known, with its digest.
func (f *followed) of(key string) (client, bool) {
	if digest, ok := keyfunc.DigestOf(key); ok {
		return f.byDigest(digest)
	}
	return f.find(hash(key))
}

// all are the clients that are followed.
func (f *followed) all() (all []client) {
	for i := range f.sets {
		s := &f.sets[i]
		s.mu.Lock()
		for j := range s.clients {
			if s.hashes[j].Load() != 0 {
				all = append(all, s.clients[j])
			}
		}
		s.mu.Unlock()
	}
	return all
}

// byDigest is the client that a digest stands for.
func (f *followed) byDigest(digest keyfunc.Digest) (client, bool) {
	for _, k := range f.all() {
		if f.digests.Digest(k.key) == digest {
			return k, true
		}
	}
	return client{}, false
}

// whole is all of the key, if it is known.
func (k *client) whole() (string, bool) {
	_, isDigest := keyfunc.DigestOf(k.key)
	return k.key, !isDigest
}

// shares reports whether clients are known to share the key.
func (f *followed) shares(key string) bool {
	k, _ := f.find(hash(key))
	return key == "global" || key == "no-ip" || k.class != keyfunc.Own
}
