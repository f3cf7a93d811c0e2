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

// newCopy returns an empty list for what is in Redis, with a max that was checked. It has more
// room, as it is for Redis to say what gives way.
func newCopy(max int) *bans.Memory {
	return bans.Must(bans.New(bans.Options{MaxBans: min(2*max, mostMaxBans)}))
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

	ended    func() error  // is not nil when the context of New has ended
	wake     chan struct{} // a message came, or there are unsent bans
	exchange chan struct{} // full while somebody exchanges what is new with Redis

	anew atomic.Bool // the whole list is to be read

	mu     sync.Mutex         // guards what follows, and changes of local that must agree with it
	asked  []*change          // whose callers wait for the next exchange
	unsent map[string]*change // puts that no caller waits for, by tag
	fresh  *bans.Memory       // the whole list as far as it is read; nil: what has changed is read

	// Of who has filled exchange:
	at    position // how far local is read, or fresh
	reads []*change
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
	l := &List{
		redis:    newRemote(client, under(cmp.Or(o.Prefix, wire.DefaultPrefix), format), o.MaxBans),
		digests:  keyfunc.NewDigester(o.Secret),
		poll:     cmp.Or(o.Poll, defaultPoll),
		log:      cmp.Or(o.Logger, slog.Default()),
		wake:     make(chan struct{}, 1),
		exchange: make(chan struct{}, 1),
		ended:    ctx.Err,
		unsent:   map[string]*change{},
		start:    time.Now(),
	}
	l.local.Store(newCopy(o.MaxBans))
	l.anew.Store(true)
	go l.follow(ctx)
	go wire.Listen(ctx, client, l.redis.channel, l.nudge)
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
	k := known{ban: noted}
	_, err = l.ask(ctx, put(k, true))
	if err == nil || errors.Is(err, bans.ErrFull) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if full := l.local.Load().Ban(ctx, tag, d, notes...); full != nil {
		return errors.Join(err, full)
	}
	l.keep(put(k, true))
	return err
}

// errDown is for a call that does not wait for Redis in an outage.
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
		k, err = l.ask(ctx, &change{
			Op: "escalate", Tag: tag, state: state{Rule: rule},
			First: e.Ban.Milliseconds(), Factor: e.Factor, Max: e.Max.Milliseconds(),
		})
	}
	if err == nil {
		return digested(k.ban), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, bans.ErrFull) {
		if found, _ := l.local.Load().Find(tag); found == ban { // else it is banned otherwise by now
			_, _ = l.local.Load().Unban(ctx, tag) // which cannot fail
		}
		return bans.Ban{}, err
	}
	l.keep(put(known{ban: ban, remember: e.Max}, false))
	return digested(ban), err
}

// Unban implements [bans.List]. It takes a key, or the digest that All has of it.
func (l *List) Unban(ctx context.Context, key string) (lifted bool, err error) {
	c := &change{Op: "unban", Tag: l.tag(key)}
	if _, ok := keyfunc.ParseDigest(key); ok {
		c.Other = key
	}
	k, err := l.ask(ctx, c)
	if err == nil {
		return k.lifted, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.anew.Store(true) // as Redis may know of the ban still
	l.nudge()
	return l.forget(c.Tag, c.Other), err
}

// All implements [bans.List]. It asks Redis whether this process knows everything. If that
// fails, it returns what is known, and the error.
func (l *List) All(ctx context.Context) (list []bans.Ban, err error) {
	if err = errEnded; l.ended() == nil {
		_, err = l.ask(ctx, &change{Op: "read"})
	}
	list, _ = l.local.Load().All(ctx) // which cannot fail
	for i := range list {
		list[i] = digested(list[i])
	}
	return list, err
}

var errEnded = errors.New("redisbans: the context of the List has ended")

// Stale is for how long the bans that hold in this process may not have been those in Redis:
// since Redis last answered, if it gives no answer now, or since New until it has answered
// once. 0: they are those in Redis, but for what the last Options.Poll may bring.
func (l *List) Stale() time.Duration {
	last := l.current.Load()
	if last != 0 && !l.down.Load() && l.ended() == nil {
		return 0
	}
	return time.Since(l.start) - time.Duration(last)
}

func (l *List) tag(key string) string { return l.digests.Digest(key).String() }

// apply makes known here what Redis says. A ban that finds no room is in Redis still, and the copy
// is as full of bans without an end as that.
func (l *List) apply(k known) {
	if k.lifted {
		l.forget(k.ban.Key)
		return
	}
	err := l.local.Load().Restore(k.ban, k.remember)
	if l.fresh != nil {
		err = l.fresh.Restore(k.ban, k.remember)
	}
	if err != nil {
		l.logFull(err)
	}
}

// forget lifts bans in this process.
func (l *List) forget(tags ...string) (lifted bool) {
	for _, tag := range tags {
		here, _ := l.local.Load().Unban(context.Background(), tag) // which cannot fail
		lifted = lifted || here
		if l.fresh != nil {
			_, _ = l.fresh.Unban(context.Background(), tag)
		}
		delete(l.unsent, tag)
	}
	return lifted
}

func (l *List) logFull(err error) {
	l.log.Warn("weir: a ban is not known in this process, or in this process alone", "code", "weir-bans-full", "error", err)
}

// keep has a ban brought to Redis later. Of more than there can be bans here any gives way.
func (l *List) keep(c *change) {
	l.unsent[c.Tag] = c
	for tag := range l.unsent {
		if len(l.unsent) > 2*l.redis.max {
			delete(l.unsent, tag)
		}
		break
	}
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
	case l.wake <- struct{}{}:
	default: // it is woken already
	}
}
