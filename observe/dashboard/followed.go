package dashboard

import (
	"iter"
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
)

// A clientSet has the clients of one part of all hashes.
type clientSet struct {
	hashes  [followedWays]atomic.Uint64 // 0: free
	clients [followedWays]client
	crowded atomic.Int64 // one more than the second in which one gave way that had been seen lately
	mu      sync.Mutex   // guards which clients are followed; locked before a client
}

// A client is a key with the last that happened to its requests.
type client struct {
	seen atomic.Int64 // the last second

	mu    sync.Mutex // guards what follows
	hash  uint64
	key   clientKey
	class keyfunc.Class // of its last request; Own before that
	fate
}

// A fate is what happened to a client last. Seconds are those of the page; 0: not known.
type fate struct {
	by      *series // the rule that refused it; nil: none is known
	shadow  bool    // and refuses nothing
	refused int64   // when that was
	passed  int64   // when a request of its passed
}

// A clientKey is a key or, of one for which there is no room, its digest.
type clientKey struct {
	text   [64]byte
	size   int // -1: there is the digest alone
	digest keyfunc.Digest
}

func (f *followed) set(hash uint64) *clientSet { return &f.sets[hash>>32%followedSets] }

// find is the client of a hash, or nil.
func (f *followed) find(hash uint64) *client {
	s := f.set(hash)
	for i := range s.hashes {
		if s.hashes[i].Load() == hash {
			return &s.clients[i]
		}
	}
	return nil
}

// follow is the client of a key, from now on if it was not followed. It allocates nothing.
func (f *followed) follow(hash uint64, key string, now int64) *client {
	s := f.set(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := f.find(hash); c != nil {
		return c
	}
	at, lately := s.last(now)
	if lately {
		s.crowded.Store(now + 1)
	}
	s.clients[at].begin(hash, f.keyOf(key), now)
	s.hashes[at].Store(hash)
	return &s.clients[at]
}

// last is the place of a client that gives way: one that is free, else the one that has not been
// seen for longest. lately says that it has been seen lately.
func (s *clientSet) last(now int64) (last int, lately bool) {
	for i := range s.hashes {
		if s.hashes[i].Load() == 0 {
			return i, false
		}
		if s.clients[i].seen.Load() <= s.clients[last].seen.Load() {
			last = i
		}
	}
	return last, now-s.clients[last].seen.Load() < seenLately
}

func (f *followed) keyOf(key string) (k clientKey) {
	if len(key) > len(k.text) {
		return clientKey{size: -1, digest: f.digests.Digest(key)}
	}
	k.size = copy(k.text[:], key)
	return k
}

// whole is all of the key, if it is known.
func (k *clientKey) whole() (string, bool) {
	if k.size < 0 {
		return "", false
	}
	return string(k.text[:k.size]), true
}

func (f *followed) digestOf(k *clientKey) keyfunc.Digest {
	if text, ok := k.whole(); ok {
		return f.digests.Digest(text)
	}
	return k.digest
}

func (c *client) begin(hash uint64, key clientKey, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.Store(now)
	c.hash, c.key, c.class, c.fate = hash, key, keyfunc.Own, fate{}
}

// observe notes a request of the client with the key of rule i, which is the first with that
// key. It is in the path of every request, and allocates nothing.
func (f *followed) observe(c *counts, o *middleware.Observation, i int, hash uint64, now int64) {
	key := o.Rules[i].Key
	for j := range i {
		if o.Rules[j].Key == key {
			return // it has been
		}
	}
	known := f.find(hash)
	if known == nil {
		if o.Err != nil || f.set(hash).crowded.Load() == now+1 || !saysNo(o.Rules[i:], key) {
			return
		}
		known = f.follow(hash, key, now)
	}
	known.note(c, o, i, hash, now)
}

func saysNo(rules []middleware.RuleResult, key string) bool {
	for i := range rules {
		if !rules[i].Allowed && rules[i].Key == key {
			return true
		}
	}
	return false
}

func (k *client) note(c *counts, o *middleware.Observation, first int, hash uint64, now int64) {
	k.seen.Store(now)
	if !k.mu.TryLock() { // a request does not wait for that
		return
	}
	defer k.mu.Unlock()
	if k.hash != hash {
		return // it has given way
	}
	k.class = o.Rules[first].Class
	now = max(now, 1) // 0 is not known
	if passes(o.Outcome) {
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

// passes reports whether a request goes on to the handler.
func passes(o middleware.Outcome) bool {
	return o == middleware.OutcomeAllowed || o == middleware.OutcomeExempt
}

// banned notes that the client of a ban is still there.
func (f *followed) banned(key string, now int64) {
	key, _ = keyfunc.Classify(key)
	if k := f.find(hash(key)); k != nil {
		k.seen.Store(now)
	}
}

// of is what happened to the client with a key or, if the key is not known, with its digest.
func (f *followed) of(key string) (last fate) {
	h := hash(key)
	k := f.find(h)
	if digest, ok := keyfunc.DigestOf(key); ok {
		if k = f.byDigest(digest); k != nil {
			_, h = k.who()
		}
	}
	if k == nil {
		return fate{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hash != h {
		return fate{} // it has given way
	}
	return k.fate
}

// all are the clients that are followed.
func (f *followed) all() iter.Seq[*client] {
	return func(yield func(*client) bool) {
		for i := range f.sets {
			s := &f.sets[i]
			for j := range s.clients {
				if s.hashes[j].Load() != 0 && !yield(&s.clients[j]) {
					return
				}
			}
		}
	}
}

// byDigest is the client that a digest stands for, or nil.
func (f *followed) byDigest(digest keyfunc.Digest) *client {
	for k := range f.all() {
		if key, _ := k.who(); f.digestOf(&key) == digest {
			return k
		}
	}
	return nil
}

// shares reports whether a key is one that clients are known to share.
func (f *followed) shares(key string) bool {
	if key == "global" || key == "no-ip" {
		return true
	}
	h := hash(key)
	k := f.find(h)
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hash == h && k.class != keyfunc.Own
}

// who is the client's key, and its hash.
func (k *client) who() (clientKey, uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.key, k.hash
}
