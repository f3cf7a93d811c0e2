package dashboard

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// followed holds some clients: recently refused ones, and those that an operator looked up. A client
// is a key. In a full set, a new client replaces the one that has not been seen for the longest time.
// In each second a set replaces only one client that was seen lately. So made-up keys that are refused
// once each cost little, and do not displace all others.
type followed struct {
	digests keyfunc.Digester
	sets    [64]clientSet
}

const (
	seenLately = 10 // seconds
	longestKey = 64 // bytes; of a longer one the digest is kept
)

// A clientSet holds the clients of one part of all hashes.
type clientSet struct {
	mu      sync.Mutex
	clients [8]client
	crowded int64 // the last second in which it replaced a client that was seen lately, plus 1
}

// A client is a key with the latest results of its requests. Seconds count from the page's start; 0:
// not known.
type client struct {
	hash    uint64        // 0: free
	key     string        // or keyfunc.Digest.Key of a long one
	class   keyfunc.Class // of its last request; as far as the key says before that
	seen    int64         // the last second
	by      *series       // the rule that refused it last; nil: none is known
	shadow  bool          // the rule is in shadow
	refused int64         // when that was
	passed  int64         // when a request passed

	senders [4]sender // of the latest refused requests with a key that any client can send; the most first
}

// A sender is an address that refused requests came from.
type sender struct {
	address string // empty: free
	refused int
}

var seed = maphash.MakeSeed()

// hash is a key's hash. It is never 0.
func hash(key string) uint64 { return maphash.String(seed, key) | 1 }

func (f *followed) set(hash uint64) *clientSet { return &f.sets[hash>>32%uint64(len(f.sets))] }

// find is the client of a hash, or nil. s is locked.
func (s *clientSet) find(hash uint64) *client {
	for i := range s.clients {
		if k := &s.clients[i]; k.hash == hash {
			return k
		}
	}
	return nil
}

// find is the client of a hash, if it is followed.
func (f *followed) find(hash uint64) (client, bool) {
	s := f.set(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.find(hash); k != nil {
		return *k, true
	}
	return client{}, false
}

// follow follows the client of a key from now on.
func (f *followed) follow(key string, now int64) {
	h := hash(key)
	s := f.set(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(h) == nil {
		*s.replaced(now) = f.newClient(h, key, now)
	}
}

func (f *followed) newClient(hash uint64, key string, now int64) client {
	if len(key) > longestKey {
		key = f.digests.Digest(key).Key()
	}
	_, class := keyfunc.Classify(key)
	return client{hash: hash, key: strings.Clone(key), class: class, seen: now}
}

// replaced returns where to put a new client. s is locked.
func (s *clientSet) replaced(now int64) *client {
	last := &s.clients[0]
	for i := range s.clients {
		k := &s.clients[i]
		if k.hash == 0 {
			return k
		}
		if k.seen <= last.seen {
			last = k
		}
	}
	if now-last.seen < seenLately {
		s.crowded = now + 1
	}
	return last
}

// observe records a request of the client with the key of rule i, if i is the first rule with that
// key. It follows a refused client from then on. Every request passes here, so it waits for no lock.
func (f *followed) observe(c *counts, o *middleware.Observation, i int, now int64) {
	key := o.Rules[i].Key
	for j := range i {
		if o.Rules[j].Key == key {
			return // it has been recorded
		}
	}
	h := hash(key) // takes some 8 ns
	s := f.set(h)
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	k := s.find(h)
	if k == nil {
		if o.Err != nil || s.crowded == now+1 || !saysNo(o.Rules[i:], key) {
			return
		}
		k = s.replaced(now)
		*k = f.newClient(h, key, now)
	}
	k.note(c, o, i, now)
}

func saysNo(rules []middleware.RuleResult, key string) bool {
	for i := range rules {
		if !rules[i].Allowed && rules[i].Key == key {
			return true
		}
	}
	return false
}

// note records a request; first is the first rule with the client's key.
func (k *client) note(c *counts, o *middleware.Observation, first int, now int64) {
	if now-k.seen > judged {
		k.senders = [len(k.senders)]sender{}
	}
	k.seen = now
	k.class = o.Rules[first].Class
	now = max(now, 1) // 0 is not known
	if k.class == keyfunc.Claimed && saysNo(o.Rules[first:], o.Rules[first].Key) {
		k.noteSender(o.Rules)
	}
	if o.Outcome == middleware.OutcomeAllowed || o.Outcome == middleware.OutcomeExempt {
		k.passed = now
	}
	shadow := true // all rules so far that refuse the request are in shadow
	for i := first; i < len(o.Rules); i++ {
		rule := &o.Rules[i]
		if rule.Key != o.Rules[first].Key || rule.Allowed || o.Err != nil || rule.Rule.Mode == middleware.Shadow && !shadow {
			continue
		}
		if shadow {
			k.by, k.shadow, k.refused = c.of(rule.Rule), rule.Rule.Mode == middleware.Shadow, now
		}
		shadow = shadow && rule.Rule.Mode == middleware.Shadow
	}
}

// noteSender counts a refused request of the address that another rule has found. An address that is not
// among the senders takes the place of the last of them.
func (k *client) noteSender(rules []middleware.RuleResult) {
	for i := range rules {
		if rules[i].Class != keyfunc.Own || !isAddress(rules[i].Key) {
			continue
		}
		address := rules[i].Key
		at := slices.IndexFunc(k.senders[:], func(s sender) bool { return s.address == address })
		if at < 0 {
			at = len(k.senders) - 1
			k.senders[at] = sender{address: address}
		}
		for k.senders[at].refused++; at > 0 && k.senders[at].refused > k.senders[at-1].refused; at-- {
			k.senders[at], k.senders[at-1] = k.senders[at-1], k.senders[at]
		}
		return
	}
}

// isAddress reports whether a key is a client's address, as keyfunc.IP returns it.
func isAddress(key string) bool {
	if strings.IndexByte(key, '/') < 0 {
		_, err := netip.ParseAddr(key)
		return err == nil
	}
	_, err := netip.ParsePrefix(key)
	return err == nil
}

// of finds the client of a key, or of keyfunc.Digest.Key.
func (f *followed) of(key string) (client, bool) {
	if digest, ok := keyfunc.DigestOf(key); ok {
		return f.byDigest(digest)
	}
	return f.find(hash(key))
}

// all returns all followed clients.
func (f *followed) all() (all []client) {
	for i := range f.sets {
		s := &f.sets[i]
		s.mu.Lock()
		for _, k := range s.clients {
			if k.hash != 0 {
				all = append(all, k)
			}
		}
		s.mu.Unlock()
	}
	return all
}

// byDigest finds the client of a digest.
func (f *followed) byDigest(digest keyfunc.Digest) (client, bool) {
	for _, k := range f.all() {
		if f.digests.Digest(k.key) == digest {
			return k, true
		}
		for _, s := range k.senders {
			if s.address != "" && f.digests.Digest(s.address) == digest {
				return client{key: s.address}, true
			}
		}
	}
	return client{}, false
}

// whole returns the key, and whether it is one rather than a digest.
func (k *client) whole() (string, bool) {
	_, isDigest := keyfunc.DigestOf(k.key)
	return k.key, !isDigest
}

// classOf returns the class of a key, as far as the key or its last request says.
func (f *followed) classOf(key string) keyfunc.Class {
	if key == "global" || key == "no-ip" {
		return keyfunc.Shared
	}
	if k, ok := f.of(key); ok {
		return k.class
	}
	_, class := keyfunc.Classify(key)
	return class
}
