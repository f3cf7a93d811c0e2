package redisbans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/internal/wire"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// Prefix and Secret are as in redisstore.Options. Lists of the same Prefix and Secret
	// in the same Redis are one.
	Prefix string
	Secret []byte

	// MaxBans bounds the list in Redis, as in [bans.Options]. Zero: 100,000. A ban
	// takes some 520 bytes and its notes in Redis. In a process there may be twice as many, of which some
	// are not yet in Redis.
	MaxBans int

	// Poll is how often Redis is asked for changes, at least: from 10ms to an hour. Zero: 1s.
	// A message says that there was one, so most are known sooner.
	Poll time.Duration

	// Logger hears when Redis cannot be asked, Warn with code weir-bans-stale, and when it
	// can again, Info with code weir-bans-current. Nil: slog.Default.
	Logger *slog.Logger
}

const (
	defaultMaxBans = 100_000 // as those of package bans
	mostMaxBans    = 10_000_000

	defaultPoll = time.Second
	minPoll     = 10 * time.Millisecond
	maxPoll     = time.Hour
)

// Validate returns everything that is wrong with o, joined, or nil.
func (o Options) Validate() error {
	errs := wire.Check("redisbans", o.Prefix, o.Secret)
	if _, err := bans.New(bans.Options{MaxBans: o.MaxBans}); err != nil {
		errs = append(errs, fmt.Errorf("redisbans: %w", err))
	}
	if o.Poll != 0 && (o.Poll < minPoll || o.Poll > maxPoll) {
		errs = append(errs, fmt.Errorf("redisbans: Poll is %v: it must be from %v to %v, or 0 for %v", o.Poll, minPoll, maxPoll, defaultPoll))
	}
	return errors.Join(errs...)
}

// newCopy returns an empty list for what is in Redis. It has more room, as it is for
// Redis to say what gives way.
func newCopy(max int) (*bans.Memory, error) {
	return bans.New(bans.Options{MaxBans: min(2*max, mostMaxBans)})
}

// A List is a [bans.List] in Redis, shared by all processes. Each has a copy of it, so that
// Find does not ask Redis. It reads what has changed every Options.Poll, and at once when a message
// says that something has.
//
// While Redis gives no answer the bans that are known hold. Ban and Escalate then take
// effect in this process, return the error as well, and are written to Redis when it is
// back, if still in force; Unban lifts in this process until the list has been read again.
// A Redis that has lost bans, if only its last ones, gets them back from the processes that have
// read them. Bans that were lifted just before may come back with them.
//
// A key is known by its digest only: every Ban has a Digest, and no Key. All that is
// in Redis expires when it is over; a ban without an end, a year after the last process
// stopped reading the list.
//
// An ACL user needs ~weir:* &weir:* +eval +evalsha +time +hget +hset +hsetnx +hdel +hlen +hexists
// +hscan +zadd +zrem +zrange +zrangebyscore +zcount +xadd +xrange +xrevrange +pexpire +pttl +publish
// +subscribe +unsubscribe +ping, and in a Cluster what the client asks about slots.
type List struct {
	digests keyfunc.Digester
	redis   *remote
	poll    time.Duration
	log     *slog.Logger

	local atomic.Pointer[bans.Memory]
	down  atomic.Bool // Redis gave no answer the last time

	start   time.Time
	current atomic.Int64 // when local was last known to be the list, since start; 0: never

	wake  chan chan error // to catch up with Redis; who sends nil does not wait for it
	ended <-chan struct{}

	anew       atomic.Bool // the whole list is to be read
	seen, born string      // the last change that was read, and of which list; follow's own

	// exchange is held while bans are read or brought to Redis, and shared by calls that change some
	// there: what they change is either read by now, or read later.
	exchange sync.RWMutex

	mu     sync.Mutex // guards unsent, and changes of local that must agree with it
	unsent map[string]unsent
}

// An unsent ban is not in Redis yet.
type unsent struct {
	known
	isNewer bool // than any that Redis has: by hand
}

// New returns the list that is in Redis, through any client of go-redis. It asks
// nothing of Redis, which may be down: the list is empty until it has been read, in the
// background; [List.All] waits for that. When ctx ends, so do its goroutines, and nothing is
// learnt from others any more. The client stays the caller's to close.
func New(ctx context.Context, client redis.UniversalClient, o Options) (*List, error) {
	if wire.IsNil(client) {
		return nil, errors.New("redisbans: New needs a client")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.MaxBans = cmp.Or(o.MaxBans, defaultMaxBans)
	local, err := newCopy(o.MaxBans)
	if err != nil {
		return nil, err
	}
	l := &List{
		redis:   newRemote(client, under(cmp.Or(o.Prefix, wire.DefaultPrefix), format), o.MaxBans),
		digests: keyfunc.NewDigester(o.Secret),
		poll:    cmp.Or(o.Poll, defaultPoll),
		log:     cmp.Or(o.Logger, slog.Default()),
		wake:    make(chan chan error, 1),
		ended:   ctx.Done(),
		unsent:  map[string]unsent{},
		start:   time.Now(),
	}
	l.local.Store(local)
	l.anew.Store(true)
	go l.follow(ctx)
	return l, nil
}

// Find implements [bans.List].
func (l *List) Find(key string) (bans.Ban, bool) {
	local := l.local.Load()
	if local.Empty() {
		return bans.Ban{}, false
	}
	tag := l.digests.Digest(key)
	ban, ok := local.Find(string(tag[:])) // which is on the stack: it is short
	return digested(ban), ok
}

// digested is a ban as callers have it: the local list has digests for its keys.
func digested(b bans.Ban) bans.Ban {
	b.Key, b.Digest = "", b.Key
	return b
}

// Empty implements [bans.List].
func (l *List) Empty() bool { return l.local.Load().Empty() }

// Ban implements [bans.List].
func (l *List) Ban(ctx context.Context, key string, d time.Duration, notes ...bans.Note) error {
	noted, err := bans.Noted(notes...)
	if err = errors.Join(bans.CheckDuration(d), err); err != nil {
		return err
	}
	tag := l.tag(key)
	noted.Key, noted.Since = tag, time.Now()
	if d > 0 {
		noted.Until = noted.Since.Add(d)
	}
	l.exchange.RLock()
	defer l.exchange.RUnlock()
	request := l.redis.put(known{ban: noted}, true)
	k, err := l.ask(ctx, tag, request)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.accept(k)
		return nil
	}
	if errors.Is(err, bans.ErrFull) {
		return err
	}
	l.failed(ctx, err)
	if full := l.local.Load().Ban(ctx, tag, d, notes...); full != nil {
		return errors.Join(err, full)
	}
	l.keep(unsent{known{ban: noted}, true})
	return err
}

// ask has Redis run the script, and returns what holds of a digest then.
func (l *List) ask(ctx context.Context, tag string, request *wire.Request) (known, error) {
	if err := l.redis.send(ctx, request); err != nil {
		return known{}, err
	}
	return l.redis.held(tag, request)
}

// errDown is for what does not wait for Redis in an outage.
var errDown = errors.New("redisbans: Redis gives no answer: the ban holds in this process until it does")

// Escalate implements [bans.List]. A ban that this process knows of is returned without
// asking Redis. In an outage one call waits for Redis, and others do not.
func (l *List) Escalate(ctx context.Context, key, rule string, e bans.Escalation) (bans.Ban, error) {
	if err := bans.CheckEscalation(rule, e); err != nil {
		return bans.Ban{}, err
	}
	e = e.WithDefaults()
	tag := l.tag(key)
	// First in this process, so that other calls need not wait for Redis, nor ask it as well.
	l.mu.Lock()
	local := l.local.Load()
	ban, isKnown := local.Find(tag)
	var err error
	if !isKnown {
		ban, err = local.Escalate(ctx, tag, rule, e)
	}
	l.mu.Unlock()
	if err != nil || isKnown {
		return digested(ban), err
	}
	var k known
	if err = errDown; !l.down.Load() {
		l.exchange.RLock()
		defer l.exchange.RUnlock()
		if !l.down.Load() {
			k, err = l.ask(ctx, tag, l.redis.escalate(tag, rule, e))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.accept(k)
		return digested(k.ban), nil
	case errors.Is(err, bans.ErrFull):
		if found, _ := l.local.Load().Find(tag); found == ban { // else it is banned otherwise by now
			_, _ = l.local.Load().Unban(ctx, tag) // which cannot fail
		}
		return bans.Ban{}, err
	case !errors.Is(err, errDown):
		l.failed(ctx, err)
	}
	l.keep(unsent{known: known{ban: ban, remember: e.Max}})
	return digested(ban), err
}

// Unban implements [bans.List]. It takes a key, or the digest that All has of it.
func (l *List) Unban(ctx context.Context, key string) (lifted bool, err error) {
	tags := []string{l.tag(key)}
	if _, ok := keyfunc.ParseDigest(key); ok {
		tags = append(tags, key)
	}
	l.exchange.RLock()
	defer l.exchange.RUnlock()
	request := l.redis.request("unban", tags[0], tags[len(tags)-1])
	err = l.redis.send(ctx, request)
	var said []string
	if err == nil {
		said, err = l.redis.answer(request)
	}
	if len(said) == 2 { // which Redis knew of
		tags, lifted = said[:1], said[1] == "1"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, tag := range tags {
		here, _ := l.local.Load().Unban(ctx, tag) // which cannot fail
		lifted = lifted || here && len(said) == 0
		delete(l.unsent, tag)
	}
	if err != nil {
		l.failed(ctx, err)
		l.anew.Store(true) // as Redis may know of the ban still
		l.nudge()
	}
	return lifted, err
}

// All implements [bans.List]. It asks Redis whether this process knows everything. If that
// fails, it returns what is known, and the error.
func (l *List) All(ctx context.Context) ([]bans.Ban, error) {
	err := l.isCurrent(ctx)
	list, _ := l.local.Load().All(ctx) // which cannot fail
	for i := range list {
		list[i] = digested(list[i])
	}
	return list, err
}

// isCurrent returns nil when the copy is as the list in Redis.
func (l *List) isCurrent(ctx context.Context) error {
	answer := make(chan error, 1)
	_, err := wire.Call(ctx, func(ctx context.Context) (_ struct{}, err error) {
		for wake := l.wake; ; wake = nil {
			select {
			case wake <- answer:
			case err = <-answer:
				return
			case <-l.ended:
				return struct{}{}, errEnded
			case <-ctx.Done():
				return struct{}{}, context.Cause(ctx)
			}
		}
	})
	return l.redis.failed(err)
}

var errEnded = errors.New("the context of the List has ended")

// Stale is for how long the bans that hold in this process may not have been those in Redis:
// since Redis last answered, if it gives no answer now, or since New until it has answered
// once. 0: they are those in Redis, but for what the last Options.Poll may bring.
func (l *List) Stale() time.Duration {
	last := l.current.Load()
	select {
	case <-l.ended: // then it is not asked any more
	default:
		if last != 0 && !l.down.Load() {
			return 0
		}
	}
	return time.Since(l.start) - time.Duration(last)
}

func (l *List) tag(key string) string { return l.digests.Digest(key).String() }

// accept makes what Redis answered known here.
func (l *List) accept(k known) {
	delete(l.unsent, k.ban.Key)
	l.apply(l.local.Load(), k)
}

// apply makes known in a copy of the list what Redis says. A ban that finds no room is in Redis
// still, and the copy is as full of bans without an end as that.
func (l *List) apply(m *bans.Memory, k known) {
	if k.lifted {
		_, _ = m.Unban(context.Background(), k.ban.Key)
	} else if err := m.Restore(k.ban, k.remember); err != nil {
		l.logFull(err)
	}
}

func (l *List) logFull(err error) {
	l.log.Warn("weir: a ban is not known in this process, or in this process alone", "code", "weir-bans-full", "error", err)
}

// keep has a ban brought to Redis later. Of more than there can be bans here any gives way.
func (l *List) keep(u unsent) {
	l.unsent[u.ban.Key] = u
	for tag := range l.unsent {
		if len(l.unsent) > 2*l.redis.max {
			delete(l.unsent, tag)
		}
		break
	}
	l.nudge()
}

// failed is for when Redis did not answer a call with that context.
func (l *List) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // which may be why
	}
	l.goDown(err)
	l.nudge()
}

func (l *List) goDown(err error) {
	if !l.down.Swap(true) {
		l.log.Warn("weir: the list of bans cannot be shared through Redis, so the bans that are known here hold",
			"code", "weir-bans-stale", "error", err)
	}
}

func (l *List) goUp() {
	l.current.Store(int64(max(1, time.Since(l.start))))
	if l.down.Swap(false) {
		l.log.Info("weir: the list of bans is shared through Redis again", "code", "weir-bans-current")
	}
}

func (l *List) nudge() {
	select {
	case l.wake <- nil:
	default: // it is woken already
	}
}
