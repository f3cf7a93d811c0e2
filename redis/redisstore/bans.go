package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/internal/wire"
)

// BansOptions is what [NewBans] takes. The zero BansOptions are the defaults.
type BansOptions struct {
	// Prefix and Secret are as in [Options]. Lists of the same Prefix and Secret in the
	// same Redis are one.
	Prefix string
	Secret []byte

	// MaxBans bounds the list in Redis, as in [bans.MemoryConfig]. Zero: 100,000. A ban
	// takes some 500 bytes in Redis. In a process there may be twice as many, of which some
	// are not yet in Redis.
	MaxBans int

	// Poll is how often Redis is asked whether there was a change that this process was
	// not told of: from 10ms to an hour. Zero: 10s.
	Poll time.Duration

	// Logger hears when Redis cannot be asked, Warn with code weir-bans-stale, and when it
	// can again, Info with code weir-bans-current. Nil: slog.Default.
	Logger *slog.Logger
}

const (
	defaultMaxBans = 100_000 // as those of package bans
	mostMaxBans    = 10_000_000

	defaultPoll = 10 * time.Second
	minPoll     = 10 * time.Millisecond
	maxPoll     = time.Hour

	// bansTimeout is how long Redis has for an answer, if the context does not say.
	bansTimeout = time.Second
)

// Validate returns everything that is wrong with o, joined, or nil.
func (o BansOptions) Validate() error {
	_, err := bans.NewMemory(bans.MemoryConfig{MaxBans: o.MaxBans})
	errs := []error{Options{Prefix: o.Prefix, Secret: o.Secret}.Validate()}
	if err != nil {
		errs = append(errs, fmt.Errorf("redisstore: %w", err))
	}
	if o.Poll != 0 && (o.Poll < minPoll || o.Poll > maxPoll) {
		errs = append(errs, fmt.Errorf("redisstore: Poll is %v: it must be from %v to %v, or 0 for %v", o.Poll, minPoll, maxPoll, defaultPoll))
	}
	return errors.Join(errs...)
}

// newBansCopy returns an empty list for what is in Redis. It has more room, as it is for
// Redis to say what gives way.
func newBansCopy(max int) (*bans.Memory, error) {
	return bans.NewMemory(bans.MemoryConfig{MaxBans: min(2*max, mostMaxBans)})
}

// Bans is a [bans.List] in Redis, shared by all processes. Each has a copy of it, so that
// Find asks nobody. Changes travel by pub/sub: a process that missed one learns of it from
// the next, from a new connection, or after BansOptions.Poll.
//
// While Redis gives no answer the bans that are known hold. Ban and Escalate then take
// effect in this process, return the error as well, and are written to Redis when it is
// back, if still in force; Unban lifts in this process until the list has been read again.
// A Redis that has lost its data gets the bans back from the processes.
//
// A key is known by its digest only, which is Ban.Key wherever a Bans gives one. All that is
// in Redis expires when it is over; a ban without an end, a year after the last process
// stopped reading the list.
//
// An ACL user needs ~weir:* &weir:* +eval +evalsha +time +hget +hset +hdel +hlen +hexists
// +hscan +zadd +zrem +zrange +zrangebyscore +zcard +pexpire +pttl +publish +subscribe
// +unsubscribe +ping, and in a Cluster what the client asks about slots.
type Bans struct {
	keys  keys
	redis *bansInRedis
	poll  time.Duration
	log   *slog.Logger

	local atomic.Pointer[bans.Memory]
	down  atomic.Bool // Redis gave no answer the last time

	nudges chan struct{}   // something is to be brought to Redis, or read
	asked  chan chan error // by who waits for it
	ended  <-chan struct{}

	mu      sync.Mutex // guards changes of local, and what follows
	seen    int64      // the version of the list that local is
	told    map[string]bansChange
	toldMax int64
	flights map[string]*bansFlight
	pending map[string]bansPending
}

// A bansChange is what is known of a digest since a version. What Redis answered is newer
// than messages that were on their way.
type bansChange struct {
	version  int64
	ban      bans.Ban
	remember time.Duration
	lifted   bool
}

// A bansFlight is a digest about which Redis is being asked. A message that came meanwhile,
// or the answer to somebody else, may be newer than the answer.
type bansFlight struct {
	callers int
	version int64 // of the newest; 0: none came
}

// A bansPending is a ban that Redis does not know of.
type bansPending struct {
	ban      bans.Ban
	remember time.Duration
	newer    bool // than any that Redis has: by hand
}

// NewBans returns the list that is in Redis, through any client of go-redis. It asks
// nothing of Redis, which may be down: the list is empty until it has been read, in the
// background; [Bans.All] waits for that. When ctx ends, so do its goroutines, and nothing is
// learnt from others any more. The client stays the caller's to close.
func NewBans(ctx context.Context, client redis.UniversalClient, options ...BansOptions) (*Bans, error) {
	var o BansOptions
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		return nil, errors.New("redisstore: NewBans takes one BansOptions")
	}
	if wire.IsNil(client) {
		return nil, errors.New("redisstore: NewBans needs a client")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.MaxBans = cmp.Or(o.MaxBans, defaultMaxBans)
	local, err := newBansCopy(o.MaxBans)
	if err != nil {
		return nil, err
	}
	b := &Bans{
		redis:   newBansInRedis(client, current.bansUnder(cmp.Or(o.Prefix, defaultPrefix)), o.MaxBans),
		keys:    newKeys(cmp.Or(o.Prefix, defaultPrefix), o.Secret),
		poll:    cmp.Or(o.Poll, defaultPoll),
		log:     cmp.Or(o.Logger, slog.Default()),
		nudges:  make(chan struct{}, 1),
		asked:   make(chan chan error),
		ended:   ctx.Done(),
		told:    map[string]bansChange{},
		flights: map[string]*bansFlight{},
		pending: map[string]bansPending{},
	}
	b.local.Store(local)
	go b.follow(ctx)
	return b, nil
}

// Find implements [bans.List].
func (b *Bans) Find(key string) (bans.Ban, bool) {
	local := b.local.Load()
	if local.Empty() {
		return bans.Ban{}, false
	}
	tag := b.keys.tag(key)
	return local.Find(string(tag[:])) // which is on the stack: it is short
}

// Empty implements [bans.List].
func (b *Bans) Empty() bool { return b.local.Load().Empty() }

// Ban implements [bans.List].
func (b *Bans) Ban(ctx context.Context, key string, d time.Duration) error {
	if err := bans.CheckDuration(d); err != nil {
		return err
	}
	tag := b.tag(key)
	b.depart(tag)
	answer, err := b.redis.ban(ctx, tag, d)
	b.mu.Lock()
	defer b.mu.Unlock()
	flight := b.land(tag)
	if err == nil {
		b.accept(tag, answer.change(tag), flight)
		return nil
	}
	if errors.Is(err, bans.ErrFull) {
		return err
	}
	b.failed(ctx, err)
	if local := b.local.Load().Ban(ctx, tag, d); local != nil {
		return errors.Join(err, local)
	}
	if ban, ok := b.local.Load().Find(tag); ok {
		b.suspend(tag, bansPending{ban: ban, newer: true})
	}
	return err
}

// errDown is for what does not wait for Redis in an outage.
var errDown = errors.New("redisstore: Redis gives no answer: the ban holds in this process until it does")

// Escalate implements [bans.List]. A ban that this process knows of is returned without
// asking Redis. In an outage one call waits for Redis, and others do not.
func (b *Bans) Escalate(ctx context.Context, key, rule string, e bans.Escalation) (bans.Ban, error) {
	if err := bans.CheckEscalation(rule, e); err != nil {
		return bans.Ban{}, err
	}
	tag := b.tag(key)
	ban, isNew, err := b.escalateHere(ctx, tag, rule, e)
	if err != nil || !isNew {
		return ban, err
	}
	var answer bansAnswer
	if err = errDown; !b.down.Load() {
		answer, err = b.redis.escalate(ctx, tag, rule, e)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	flight := b.land(tag)
	switch {
	case err == nil:
		c := answer.change(tag)
		b.accept(tag, c, flight)
		return c.ban, nil
	case errors.Is(err, bans.ErrFull):
		if flight.version == 0 { // else it is banned otherwise by now
			_, _ = b.local.Load().Unban(ctx, tag) // which cannot fail
		}
		return bans.Ban{}, err
	case !errors.Is(err, errDown):
		b.failed(ctx, err)
	}
	b.suspend(tag, bansPending{ban: ban, remember: e.Max})
	return ban, err
}

// escalateHere bans in this process, so that nobody has to wait for Redis, nor asks it as
// well. A ban that is new is in flight.
func (b *Bans) escalateHere(ctx context.Context, tag, rule string, e bans.Escalation) (ban bans.Ban, isNew bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	local := b.local.Load()
	if ban, ok := local.Find(tag); ok {
		return ban, false, nil
	}
	if ban, err = local.Escalate(ctx, tag, rule, e); err != nil {
		return bans.Ban{}, false, err
	}
	b.departLocked(tag)
	return ban, true, nil
}

// Unban implements [bans.List]. It takes a key, or the digest that All has of it.
func (b *Bans) Unban(ctx context.Context, key string) (lifted bool, err error) {
	tags := []string{b.tag(key)}
	if isTag(key) {
		tags = append(tags, key)
	}
	for _, tag := range tags {
		b.depart(tag)
	}
	answer, err := b.redis.unban(ctx, tags)
	b.mu.Lock()
	defer b.mu.Unlock()
	lifted = err == nil && answer.lifted
	for _, tag := range tags {
		flight := b.land(tag)
		_, here := b.local.Load().Find(tag)
		_, isPending := b.pending[tag]
		lifted = lifted || here && (err != nil || isPending) // of which Redis does not know
		switch {
		case err != nil:
			delete(b.pending, tag)
			_, _ = b.local.Load().Unban(ctx, tag) // which cannot fail
		case answer.tag == "" || answer.tag == tag:
			b.accept(tag, bansChange{version: answer.version, lifted: true}, flight)
		}
	}
	if err != nil {
		b.failed(ctx, err)
		b.seen = unread // as Redis may know of the ban still
		b.nudge()
	}
	return lifted, err
}

// All implements [bans.List]. It asks Redis whether this process knows everything. If that
// fails, it returns what is known, and the error.
func (b *Bans) All(ctx context.Context) ([]bans.Ban, error) {
	waiting := ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, bansTimeout)
		defer cancel()
	}
	answer := make(chan error, 1)
	var err error
	select {
	case b.asked <- answer:
		select {
		case err = <-answer:
		case <-b.ended:
			err = errEnded
		case <-waiting.Done():
			err = noAnswer(waiting)
		}
	case <-b.ended:
		err = errEnded
	case <-waiting.Done():
		err = noAnswer(waiting)
	}
	list, _ := b.local.Load().All(ctx) // which cannot fail
	return list, err
}

var errEnded = errors.New("redisstore: the context of the Bans has ended")

func (b *Bans) tag(key string) string {
	tag := b.keys.tag(key)
	return string(tag[:])
}

func (b *Bans) depart(tag string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.departLocked(tag)
}

func (b *Bans) departLocked(tag string) {
	f := b.flights[tag]
	if f == nil {
		f = &bansFlight{}
		b.flights[tag] = f
	}
	f.callers++
}

func (b *Bans) land(tag string) *bansFlight {
	f := b.flights[tag]
	if f.callers--; f.callers == 0 {
		delete(b.flights, tag)
	}
	return f
}

// accept makes what Redis answered known here, unless a message was newer.
func (b *Bans) accept(tag string, c bansChange, f *bansFlight) {
	delete(b.pending, tag)
	if f.version <= c.version {
		f.version = c.version
		b.tell(tag, c)
		b.apply(b.local.Load(), tag, c)
	}
}

// tell notes that messages older than c say nothing about tag.
func (b *Bans) tell(tag string, c bansChange) {
	if c.version > b.seen && c.version >= b.told[tag].version {
		b.told[tag] = c
		b.toldMax = max(b.toldMax, c.version)
	}
}

// apply makes a change known in a copy of the list. One that finds no room is in Redis
// still, and the copy is as full of bans without an end as that.
func (b *Bans) apply(m *bans.Memory, tag string, c bansChange) {
	if c.lifted {
		_, _ = m.Unban(context.Background(), tag)
		return
	}
	if err := m.Restore(c.ban, c.remember); err != nil {
		b.log.Warn("weir: a ban is not known here", "code", "weir-bans-full", "error", err)
	}
}

// suspend notes that a ban is to be brought to Redis. Those that are over are forgotten as
// others come, so that there are at most twice as many as there can be bans here.
func (b *Bans) suspend(tag string, p bansPending) {
	b.pending[tag] = p
	if len(b.pending) > 2*b.redis.max {
		local := b.local.Load()
		for tag := range b.pending {
			if _, ok := local.Find(tag); !ok {
				delete(b.pending, tag)
			}
		}
	}
	b.nudge()
}

// failed is for when Redis did not answer a call with that context.
func (b *Bans) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // which may be why
	}
	b.goDown(err)
	b.nudge()
}

func (b *Bans) goDown(err error) {
	if !b.down.Swap(true) {
		b.log.Warn("weir: the list of bans cannot be shared through Redis, so the bans that are known here hold",
			"code", "weir-bans-stale", "error", err)
	}
}

func (b *Bans) goUp() {
	if b.down.Swap(false) {
		b.log.Info("weir: the list of bans is shared through Redis again", "code", "weir-bans-current")
	}
}

func (b *Bans) nudge() {
	select {
	case b.nudges <- struct{}{}:
	default: // there is one already
	}
}

// isTag tells that a text can be a digest.
func isTag(s string) bool {
	if len(s) != tagSize {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// milliseconds is d for Redis, rounded up.
func milliseconds(d time.Duration) string {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}
