package redisstore

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/wire"
)

// slots are the slots that this process holds ([limiter.NewConcurrency]), by key. Redis has a token for each, which
// expires after a lease, so the process renews all its tokens within a third of one. It chooses a token before it
// asks for it. So it can remove one whose reply was lost, and repeat that: what is lost may still arrive late.
type slots struct {
	s       *store
	script  *wire.Script
	process int64 // what Redis knows this one by
	lease   time.Duration

	mu      sync.Mutex
	token   int64               // the latest
	byName  map[string]*holding // of the key in Redis
	watched map[watchedKey]*watch
	renewal *time.Timer // runs tend, unless there is nothing to do
	poll    *time.Timer // runs ask, unless nobody waits
	closed  bool        // then nothing is renewed
	refused bool        // Redis refused the latest removal
}

// A holding is the slots of one key.
type holding struct {
	name  string
	tag   keyfunc.Digest
	quota *limiter.Quota

	tokens  []*tokens // of events in flight
	gone    []*tokens // to be removed
	renewed time.Time // when the latest renewal began that Redis confirmed
	asked   time.Time // when a renewal began that it has not confirmed yet; zero: there is none
}

// tokens are the tokens of one charge, numbered from first.
type tokens struct {
	first, n int64
	at       int64 // when the slots were acquired, by Redis's clock; 0: that is not known

	sent     time.Time // when their removal was sent
	until    time.Time // by then they have expired
	repeated bool      // what adds them may come late, so one removal is not enough
	heard    bool      // Redis has confirmed a removal
	failed   bool      // the latest removal got no answer, or an error
}

const (
	// slotLease is how long Redis counts the slots of a process that sends nothing.
	slotLease = 10 * time.Second

	// mostSlots is the most that a charge may ask for: Redis keeps a token for each.
	mostSlots = 1000

	// askEvery is how often a process asks for the keys that it was refused, while events wait for them: less
	// often for a key that it asked for in vain for longer, but at least every askRarely. awaited is how long after
	// a refusal from memory somebody is assumed to wait.
	askEvery  = 20 * time.Millisecond
	askRarely = 250 * time.Millisecond
	awaited   = 100 * time.Millisecond
)

func (h *slots) renewEvery() time.Duration { return h.lease / 4 }
func (h *slots) tendEvery() time.Duration  { return h.lease / 32 }

func newSlots(s *store) *slots {
	return &slots{
		s: s, script: slotsScript, process: rand.Int64N(1 << 53), lease: slotLease,
		byName: map[string]*holding{}, watched: map[watchedKey]*watch{},
	}
}

// holding returns the holding of an item's key, and makes it if there is none.
func (h *slots) holding(name string, tag keyfunc.Digest, q *limiter.Quota) *holding {
	found := h.byName[name]
	if found == nil {
		found = &holding{name: name, tag: tag, renewed: time.Now()}
		h.byName[name] = found
		h.tendIn(h.tendEvery())
	}
	found.quota = q // its limit may have changed
	return found
}

// held is how many slots a holding has.
func (of *holding) held() (n int64) {
	for _, t := range of.tokens {
		n += t.n
	}
	return n
}

// choose chooses the tokens that a call acquires.
func (h *slots) choose(c *call) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range c.items {
		it := &c.items[i]
		if it.cost > mostSlots && it.cost <= it.quota.Capacity() {
			return wire.Errorf("redisstore", "%w: %d slots of rule %q for one event: at most %d are possible", limiter.ErrCharges, it.cost, it.quota.Rule(), mostSlots)
		}
		it.first = h.token + 1
		h.token += it.cost
		if of := h.byName[it.name]; of != nil {
			it.held = of.held()
		}
	}
	return nil
}

// take acquires the slots of the charges at the indexes, which may be on several nodes. Those that it took are kept
// until keep or undo.
func (h *slots) take(ctx context.Context, charges []limiter.Charge, at []int) (parts []*call, err error) {
	var failed []error
	calls := h.s.calls(acquire, charges, at)
	left := make([]call, len(calls)) // a call that we leave is no longer ours
	for i, c := range calls {
		if err := h.choose(c); err != nil {
			return nil, err
		}
		c.late = h.forget
		left[i].tag, left[i].items = c.tag, slices.Clone(c.items)
	}
	for i, err := range h.s.ask(ctx, calls) {
		if err != nil {
			failed = append(failed, err)
			h.remove(left[i].tag, left[i].items, true)
			continue
		}
		part := calls[i]
		taken := h.s.conclude(part)
		for j := range part.charges {
			it, c := &part.items[j], &part.charges[j]
			if it.at = part.reply.now; !taken || !c.Decision.Allowed {
				it.cost = 0 // it has none
			}
			if c.Cost > 0 && !c.Decision.Allowed {
				h.watch(c)
			}
		}
		parts = append(parts, part)
	}
	return parts, errors.Join(failed...)
}

// keep records the acquired slots, so that they are renewed until their events end.
func (h *slots) keep(parts []*call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range parts {
		for i := range c.items {
			if it := &c.items[i]; it.cost > 0 {
				of := h.holding(it.name, c.tag, it.quota)
				of.tokens = append(of.tokens, &tokens{first: it.first, n: it.cost, at: it.at})
			}
		}
	}
}

// undo releases the slots that were taken, as if they had not been, and describes them as looks.
func (h *slots) undo(parts []*call) {
	for _, c := range parts {
		for i := range c.items {
			it, charge := &c.items[i], &c.charges[i]
			if it.cost == 0 {
				continue
			}
			s := c.reply.state(i, it.quota)
			s.Level -= it.cost
			charge.Decision = it.quota.Describe(s, c.reply.now, 0, true)
			it.at = 0 // no event was in flight
			h.s.denied.invalidate(c.charges[i : i+1])
		}
		h.remove(c.tag, c.items, false)
	}
}

// forget removes the tokens of a call whose caller has left before the reply.
func (h *slots) forget(c *call) { h.remove(c.tag, c.items, false) }

// remove removes the tokens of items. It repeats that if it is not known whether Redis has them yet.
func (h *slots) remove(tag keyfunc.Digest, items []item, repeated bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range items {
		if it := &items[i]; it.cost > 0 {
			of := h.holding(it.name, tag, it.quota)
			h.removeOf(of, &tokens{first: it.first, n: it.cost, at: it.at, repeated: repeated})
		}
	}
}

func (h *slots) removeOf(of *holding, t *tokens) {
	t.until = time.Now().Add(h.lease)
	t.repeated = t.repeated || !of.asked.IsZero()
	of.gone = append(of.gone, t)
	h.sendRemoval(of, t)
}

// sendRemoval sends a removal with the next batch, or alone after a moment. h is locked.
func (h *slots) sendRemoval(of *holding, t *tokens) {
	t.sent, t.failed = time.Now(), false
	h.send(of, release, []*tokens{t}, func(err error) {
		heard := err == nil
		t.heard, t.failed = t.heard || heard, !heard
		h.report(err)
		if heard && !t.repeated {
			of.gone = slices.DeleteFunc(of.gone, func(other *tokens) bool { return other == t })
		}
	})
}

// report logs the first of a row of removals that Redis refuses. h is locked.
func (h *slots) report(err error) {
	refused := err != nil && wire.IsAnswer(err)
	if refused && !h.refused {
		cmp.Or(h.s.log, slog.Default()).Warn("weir: Redis refuses to release slots; it is asked again, until they expire",
			"code", "weir-not-returned", "error", h.s.transport.Failed("redisstore", err, h.s.timeout))
	}
	h.refused = refused || h.refused && err != nil
}

// send sends a call about tokens for which no caller waits. h is locked, also when ended is called.
func (h *slots) send(of *holding, op op, all []*tokens, ended func(err error)) {
	c := newCall(op)
	c.tag = of.tag
	for _, t := range all {
		c.items = append(c.items, item{name: of.name, quota: of.quota, cost: t.n, at: t.at, first: t.first})
	}
	c.ended = func(c *call) {
		h.mu.Lock()
		defer h.mu.Unlock()
		ended(c.err)
	}
	h.s.pipe(c.tag).linger(c)
}

// correct changes which slots events of this process hold, by those that a charge owes, or returns below 0.
func (h *slots) correct(c *limiter.Charge) {
	tag := h.s.names.Digest(c.Key)
	name := h.s.names.Name(tag, c.Quota)
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Cost > 0 {
		h.token++
		t := &tokens{first: h.token, n: min(c.Cost, mostSlots)} // Redis adds them one by one
		h.token += t.n
		of := h.holding(name, tag, c.Quota)
		of.tokens = append(of.tokens, t)
		h.send(of, renew, []*tokens{t}, func(error) {})
		return
	}
	of := h.byName[name]
	for n := -c.Cost; n > 0 && of != nil && len(of.tokens) > 0; {
		at := c.Decision.Receipt.At
		i := slices.IndexFunc(of.tokens, func(t *tokens) bool { return t.at == at })
		i = max(i, 0)
		t := of.tokens[i]
		removed := &tokens{first: t.first, n: min(n, t.n), at: at}
		if t.first, t.n = t.first+removed.n, t.n-removed.n; t.n == 0 {
			of.tokens = slices.Delete(of.tokens, i, i+1)
		}
		n -= removed.n
		h.removeOf(of, removed)
	}
}

// tendIn makes tend run after that time. h is locked.
func (h *slots) tendIn(pause time.Duration) {
	if h.renewal == nil {
		h.renewal = time.AfterFunc(pause, h.tend)
	} else {
		h.renewal.Reset(pause)
	}
}

// tend renews tokens, and repeats removals.
func (h *slots) tend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	room := maxBatch // keys at once
	for name, of := range h.byName {
		of.gone = slices.DeleteFunc(of.gone, func(t *tokens) bool {
			if now.After(t.until) {
				return true
			}
			if t.failed && !t.heard || now.Sub(t.sent) >= h.renewEvery() {
				h.sendRemoval(of, t)
			}
			return false
		})
		if len(of.tokens) == 0 && len(of.gone) == 0 {
			delete(h.byName, name)
			continue
		}
		isDue := now.Sub(of.renewed) >= h.renewEvery() && (of.asked.IsZero() || now.Sub(of.asked) >= slow)
		if h.closed || len(of.tokens) == 0 || !isDue || room == 0 {
			continue
		}
		room--
		of.asked = now
		for part := range slices.Chunk(of.tokens, maxBatch) {
			h.send(of, renew, part, func(err error) {
				if err == nil && of.asked == now {
					of.renewed, of.asked = now, time.Time{}
				}
			})
		}
	}
	switch {
	case len(h.byName) == 0:
		h.renewal = nil
		clear(h.byName)
	case room == 0:
		h.tendIn(time.Millisecond)
	default:
		h.tendIn(h.tendEvery())
	}
}

// close ends renewals, and reports whether Redis has confirmed all removals.
func (h *slots) close() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, of := range h.byName {
		if slices.ContainsFunc(of.gone, func(t *tokens) bool { return !t.heard }) {
			return false
		}
	}
	return true
}

// A watch is a key without a free slot in Redis, for which events may wait. The process remembers the refusal, and asks
// for all watched keys in one script.
type watch struct {
	limiter.Charge
	began time.Time
	last  time.Time // when somebody was refused from memory
	asked time.Time
}

type watchedKey struct{ rule, tier, key string }

func keyOf(c *limiter.Charge) watchedKey { return watchedKey{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

// every is how often to ask for a key.
func (w *watch) every(now time.Time) time.Duration {
	return max(askEvery, min(now.Sub(w.began)/8, askRarely))
}

// watch has the process ask for a key that was refused.
func (h *slots) watch(c *limiter.Charge) {
	if h.s.denied == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	w := h.watched[keyOf(c)]
	if w == nil {
		w = &watch{began: now}
		h.watched[keyOf(c)] = w
	}
	w.Charge = limiter.Charge{Quota: c.Quota, Key: c.Key}
	w.last, w.asked = now, now
	if h.poll == nil {
		h.poll = time.AfterFunc(askEvery, h.ask)
	}
}

// waited notes that charges were refused from memory.
func (h *slots) waited(charges []limiter.Charge) {
	for i := range charges {
		if c := &charges[i]; c.Quota.InFlight() && !c.Decision.Allowed {
			h.mu.Lock()
			if w := h.watched[keyOf(c)]; w != nil {
				w.last = time.Now()
			}
			h.mu.Unlock()
		}
	}
}

// ask asks for the keys that are watched.
func (h *slots) ask() {
	h.mu.Lock()
	now := time.Now()
	var due []limiter.Charge
	for key, w := range h.watched {
		switch {
		case now.Sub(w.last) >= awaited:
			delete(h.watched, key)
			h.s.denied.invalidate([]limiter.Charge{w.Charge})
		case now.Sub(w.asked) >= w.every(now):
			w.asked = now
			due = append(due, w.Charge)
		}
	}
	if h.poll.Reset(askEvery); len(h.watched) == 0 {
		h.poll.Stop()
		h.poll = nil
	}
	h.mu.Unlock()
	for part := range slices.Chunk(due, maxBatch) {
		for _, c := range h.s.calls(acquire, part, all(part)) {
			c.ended = h.heard
			h.s.pipe(c.tag).linger(c)
		}
	}
}

// heard takes in what Redis says of keys that are watched.
func (h *slots) heard(c *call) {
	if c.err != nil || c.foreign() != nil {
		return // what is remembered of them ends, if this goes on
	}
	c.reply.decide(c.charges, false)
	for i := range c.charges {
		if c := &c.charges[i]; c.Decision.Remaining > 0 {
			h.mu.Lock()
			delete(h.watched, keyOf(c))
			h.mu.Unlock()
			h.s.denied.invalidate([]limiter.Charge{*c})
		}
	}
	h.s.denied.learn(c, true) // it replaces what is remembered
}
