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
	// Prefix and Secret are as in redisstore.Options. Processes with the same Prefix and Secret
	// share one list.
	Prefix string
	Secret []byte

	// MaxBans bounds the list in Redis, as in [bans.Options]. Zero: 100,000. In Redis a ban takes some
	// 520 bytes plus its notes (By, Reason). A process may hold up to twice as many bans, because some
	// may not be in Redis yet.
	MaxBans int

	// Poll is the longest time between two reads of the changes: from 10ms to an hour. Zero: 1s.
	// Redis also publishes a message for each change, so a process learns of most changes at once.
	Poll time.Duration

	// Logger gets a warning when Redis does not answer (code weir-bans-stale), and an Info when
	// it does again (weir-bans-current). Nil: slog.Default.
	Logger *slog.Logger
}

const (
	defaultMaxBans = 100_000 // both as in package bans
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

// newCopy returns an empty copy of a list of at most max bans, which New has checked. The copy has
// more room, as Redis decides which bans give way.
func newCopy(max int) *bans.Memory {
	return bans.Must(bans.New(bans.Options{MaxBans: min(2*max, mostMaxBans)}))
}

// A List is a [bans.List] in Redis that processes share. Each process keeps a copy, so Find does not
// ask Redis. The process reads changes every Options.Poll, and when Redis publishes a message.
//
// While Redis does not answer, the bans of the copy hold. Ban and Escalate then ban in this process and
// return the error too. When Redis is back, the process writes those bans to Redis, if they are still
// in force. An Unban during the outage lifts the ban in this process only, until the process has read
// the list again.
//
// If Redis loses bans, they hold in the processes that have read them, until they end or Unban lifts
// them. The same is true of a ban that was lifted while a process could not read 10,000 changes or more.
// Nobody writes lost bans back: processes that start later do not know them.
//
// The list knows a key by its digest only: a Ban has a Digest, and no Key. A ban's data in Redis
// expires when the ban no longer matters. A permanent ban expires if no process reads the list for a
// year.
//
// An ACL user needs ~weir:* &weir:* +eval +evalsha +time +hget +hset +hdel +hlen +hexists
// +hscan +zadd +zrem +zrange +zrangebyscore +zcount +xadd +xrange +xrevrange +pexpire +pttl +publish
// +subscribe +unsubscribe +ping, and in a Cluster the commands by which go-redis finds the nodes.
type List struct {
	digests keyfunc.Digester
	redis   *remote
	poll    time.Duration
	log     *slog.Logger

	local *bans.Memory // the copy
	down  atomic.Bool  // Redis gave no answer the last time

	start   time.Time
	current atomic.Int64 // when local was last known to be the list, since start; 0: never

	ended    func() error  // the context's Err
	wake     chan struct{} // full after a message, or when there are unsent bans
	exchange chan struct{} // full while a goroutine runs catchUp

	mu     sync.Mutex         // guards what follows, and changes of local that must agree with it
	asked  []*change          // changes whose callers wait for the next exchange
	unsent map[string]*change // puts that no caller waits for, by tag
	scan   bool               // the whole list must be read
	missed uint64             // what gone returned after the last scan

	// Only the goroutine that runs catchUp uses these.
	at    position  // in the list, up to where the process has read it
	reads []*change // whose callers wait for the end of catchUp

	hasStrange bool // a warning about strange fields was logged
}

// New returns the list in Redis, through any client of go-redis. It does not wait for Redis,
// which may be down. The list is empty until its goroutine has read it; [List.All] waits for that.
// When ctx ends, the goroutines end, and the process learns nothing from others any more. New's
// caller closes the client.
func New(ctx context.Context, client redis.UniversalClient, o Options) (*List, error) {
	return open(ctx, client, o, wire.Patience)
}

// open is New with another patience. Tests have more of it, as a busy machine may take a second.
func open(ctx context.Context, client redis.UniversalClient, o Options, patience time.Duration) (*List, error) {
	if wire.IsNil(client) {
		return nil, errors.New("redisbans: New needs a client")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.MaxBans = cmp.Or(o.MaxBans, defaultMaxBans)
	l := &List{
		redis:    newRemote(client, under(cmp.Or(o.Prefix, wire.DefaultPrefix), format), o.MaxBans, patience),
		digests:  keyfunc.NewDigester(o.Secret),
		poll:     cmp.Or(o.Poll, defaultPoll),
		log:      cmp.Or(o.Logger, slog.Default()),
		wake:     make(chan struct{}, 1),
		exchange: make(chan struct{}, 1),
		ended:    ctx.Err,
		unsent:   map[string]*change{},
		local:    newCopy(o.MaxBans),
		scan:     true,
		start:    time.Now(),
	}
	go l.follow(ctx)
	go wire.Listen(ctx, client, l.redis.channel, l.nudge)
	return l, nil
}

// Find implements [bans.List].
func (l *List) Find(key string) (bans.Ban, bool) {
	local := l.local
	if local.Empty() {
		return bans.Ban{}, false
	}
	tag := l.digests.Digest(key)
	ban, ok := local.Find(string(tag[:])) // so short that it stays on the stack
	return digested(ban), ok
}

// digested is a ban of the copy, whose keys are digests, as callers get it.
func digested(b bans.Ban) bans.Ban {
	b.Key, b.Digest = "", b.Key
	return b
}

// Empty implements [bans.List].
func (l *List) Empty() bool { return l.local.Empty() }

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
	if full := l.local.Ban(ctx, tag, d, notes...); full != nil {
		return errors.Join(err, full)
	}
	l.keep(put(k, true))
	return err
}

// errDown is the error of a call that does not ask Redis, as Redis did not answer the last time.
var errDown = errors.New("redisbans: Redis gives no answer: the ban holds in this process until it does")

// Escalate implements [bans.List]. If this process's copy of the list has a ban of the key, Escalate
// returns that ban without asking Redis. In an outage only the first call waits for Redis.
func (l *List) Escalate(ctx context.Context, key, rule string, e bans.Escalation) (bans.Ban, error) {
	if err := bans.CheckEscalation(rule, e); err != nil {
		return bans.Ban{}, err
	}
	e = e.WithDefaults()
	tag := l.tag(key)
	// First in this process: other calls for this key then need not ask Redis.
	l.mu.Lock()
	local := l.local
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
		if found, _ := l.local.Find(tag); found == ban { // else there is another ban by now
			_, _ = l.local.Unban(ctx, tag) // which cannot fail
		}
		return bans.Ban{}, err
	}
	l.keep(put(known{ban: ban, remember: e.Max}, false))
	return digested(ban), err
}

// Unban implements [bans.List]. It takes a key, or the Digest of a ban.
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
	l.scan = true // Redis may still have the ban
	l.nudge()
	return l.forget(c.Tag, c.Other), err
}

// All implements [bans.List]. It first reads from Redis what has changed. If that fails, it returns
// the bans of the copy, and the error.
func (l *List) All(ctx context.Context) (list []bans.Ban, err error) {
	if err = errEnded; l.ended() == nil {
		_, err = l.ask(ctx, &change{Op: "read"})
	}
	list, _ = l.local.All(ctx) // which cannot fail
	for i := range list {
		list[i] = digested(list[i])
	}
	return list, err
}

var errEnded = errors.New("redisbans: the context of the List has ended")

// Stale is how old the copy of this process is. It is 0 while Redis answers; the copy then lacks
// changes of the last Options.Poll at most. Otherwise it is the time since the last answer or, if
// there was none, since New.
func (l *List) Stale() time.Duration {
	last := l.current.Load()
	if last != 0 && !l.down.Load() && l.ended() == nil {
		return 0
	}
	return time.Since(l.start) - time.Duration(last)
}

func (l *List) tag(key string) string { return l.digests.Digest(key).String() }

// apply writes to the copy what Redis has of a key. If the copy has no room, the ban holds in other
// processes only: the copy is full of permanent bans.
func (l *List) apply(k known) {
	if k.lifted {
		l.forget(k.ban.Key)
		return
	}
	err := l.local.Restore(k.ban, k.remember)
	if err != nil && !errors.Is(err, bans.ErrFull) {
		err = l.local.Restore(unreadable(k.ban.Key).ban, 0)
	}
	if err != nil {
		l.logFull("weir: this process has no room for a ban, so the ban applies in other processes only", err)
	}
}

// gone is how many bans and repetitions the copy has lost for want of room.
func (l *List) gone() uint64 {
	stats := l.local.Stats()
	return stats.Evicted + stats.Forgotten
}

// forget lifts bans in this process, and reports whether there was one.
func (l *List) forget(tags ...string) (lifted bool) {
	for _, tag := range tags {
		here, _ := l.local.Unban(context.Background(), tag) // which cannot fail
		lifted = lifted || here
		delete(l.unsent, tag)
	}
	return lifted
}

func (l *List) logFull(message string, err error) {
	l.log.Warn(message, "code", "weir-bans-full", "error", err)
}

// keep has a ban written to Redis later. If there are more than the copy can hold, it drops any.
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
	default: // it is full
	}
}
