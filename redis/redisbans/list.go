package redisbans

import (
	"cmp"
	"context"
	"errors"
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
	// 330 bytes plus its notes (By, Reason). A process may hold up to twice as many bans, because some
	// may not be in Redis yet.
	MaxBans int

	// Poll is how often a process asks Redis for the version of the list: from 10ms to an hour. Zero: a
	// minute. Redis publishes each change, so a process learns of it at once. Poll bounds how long it
	// misses a change whose message was lost.
	Poll time.Duration

	// Logger gets a warning when Redis does not answer (code weir-bans-stale), and an Info when
	// it does again (weir-bans-current). It also gets weir-bans-full and weir-bans-strange. Nil:
	// slog.Default.
	Logger *slog.Logger

	patience time.Duration // tests have more, as a busy machine may take a second
}

const defaultMaxBans, mostMaxBans = 100_000, 10_000_000 // as in package bans

// Validate returns everything that is wrong with o, joined, or nil.
func (o Options) Validate() error {
	errs := wire.Check("redisbans", o.Prefix, o.Secret)
	if _, err := bans.New(bans.Options{MaxBans: o.MaxBans}); err != nil {
		errs = append(errs, wire.Errorf("redisbans", "%w", err))
	}
	if o.Poll != 0 && (o.Poll < 10*time.Millisecond || o.Poll > time.Hour) {
		errs = append(errs, wire.Errorf("redisbans", "Poll is %v: it must be from 10ms to 1h0m0s, or 0 for 1m0s", o.Poll))
	}
	return errors.Join(errs...)
}

// A List is a [bans.List] in Redis that processes share. Each process keeps a copy, so Find does not
// ask Redis. Each change in Redis has a version, and is published with it. A process that misses a version
// reads the whole list again, as after a lost connection.
//
// While Redis does not answer, the bans of the copy hold. Ban and Escalate then ban in this process and
// return the error too. When Redis is back, the process writes those bans to Redis, unless they have ended
// or were lifted. An Unban during the outage lifts the ban in this process only, until the process has
// read the list again.
//
// If Redis loses bans, they hold in the processes that have read them, until they end or Unban lifts
// them. The same is true of a ban that was lifted over a day before a process could read Redis again.
// Nobody writes lost bans back: processes that start later do not know them.
//
// The list knows a key by its digest only: a Ban has a Digest, and no Key. A state in Redis that makes no
// sense is a permanent ban, which All lists and Unban lifts. A ban's data in Redis expires when the ban no
// longer matters. A permanent ban expires if no process reads the list for a year.
//
// An ACL user needs ~weir:* resetchannels &weir:* +eval +evalsha +time +get +set +hget +hset +hdel +hlen +hexists
// +hscan +zadd +zrem +zcard +zrangebyscore +zrevrangebyscore +pexpire +pttl +publish
// +subscribe +unsubscribe +ping, and in a Cluster the commands by which go-redis finds the nodes.
type List struct {
	digests  keyfunc.Digester
	max      int
	poll     time.Duration
	patience time.Duration // with Redis, for one call
	log      *slog.Logger
	redis    *wire.Transport
	names    []string
	channel  string
	start    time.Time

	local   *bans.Memory // the copy
	down    atomic.Bool  // Redis gave no answer the last time
	current atomic.Int64 // when local was last known to be the list, since start; 0: never

	ended    func() error    // the context's Err
	wake     chan struct{}   // full if follow must update the copy
	asked    chan chan error // calls that wait until follow has updated the copy
	messages chan string     // from Redis

	mu        sync.Mutex       // guards what follows, and changes of local that must agree with it
	isRead    bool             // the copy has all of version
	version   int64            // of the list
	ahead     map[string]int64 // by tag, the version of what the copy has, if it is later than version
	unsent    map[string]*put  // bans that Redis does not have yet, by tag
	hasWarned bool             // of strange fields or states
}

// New returns the list in Redis, through a client of go-redis for one server or a Cluster. It does not wait for Redis,
// which may be down. The list is empty until its goroutine has read it; [List.All] waits for that.
// When ctx ends, the goroutines end, and the process learns nothing from others any more. New's
// caller closes the client.
func New(ctx context.Context, client redis.UniversalClient, o Options) (*List, error) {
	if err := wire.CheckClient("redisbans", client); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.MaxBans = cmp.Or(o.MaxBans, defaultMaxBans)
	prefix := cmp.Or(o.Prefix, wire.DefaultPrefix) + ":" + format + ":{bans}:" // in one slot of a Cluster
	l := &List{
		digests:  keyfunc.NewDigester(o.Secret),
		max:      o.MaxBans,
		poll:     cmp.Or(o.Poll, time.Minute),
		patience: cmp.Or(o.patience, wire.Patience),
		log:      cmp.Or(o.Logger, slog.Default()),
		redis:    wire.NewTransport(client, false),
		names:    []string{prefix + "list", prefix + "version", prefix + "ends"},
		channel:  prefix + "changes",
		start:    time.Now(),
		// The copy has more room, as Redis decides which bans give way.
		local:    bans.Must(bans.New(bans.Options{MaxBans: min(2*o.MaxBans, mostMaxBans)})),
		ended:    ctx.Err,
		wake:     make(chan struct{}, 1),
		asked:    make(chan chan error),
		messages: make(chan string),
		ahead:    map[string]int64{},
		unsent:   map[string]*put{},
	}
	go l.follow(ctx)
	go wire.Listen(ctx, client, l.channel, l.mustRead, func(message string) {
		select {
		case l.messages <- message:
		case <-ctx.Done():
		}
	})
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

// Count implements [bans.List], by the copy.
func (l *List) Count() int { return l.local.Count() }

// Ban implements [bans.List].
func (l *List) Ban(ctx context.Context, key string, d time.Duration, notes ...bans.Note) error {
	noted, err := bans.Noted(notes...)
	if err = errors.Join(bans.CheckDuration(d), err); err != nil {
		return err
	}
	noted.Key, noted.Since = l.tag(key), time.Now()
	if d > 0 {
		noted.Until = noted.Since.Add(d)
	}
	p := &put{ban: noted}
	if _, _, err = l.change(ctx, "put", noted.Key, p.values()); err == nil || errors.Is(err, bans.ErrFull) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.local.Ban(ctx, noted.Key, d, notes...)
	if full == nil {
		l.keep(p)
	}
	return errors.Join(err, full)
}

// errDown is the error of a call that does not ask Redis, as Redis did not answer the last time.
var errDown = wire.Errorf("redisbans", "Redis gives no answer: the ban holds in this process until it does")

// Escalate implements [bans.List]. If this process's copy of the list has a ban of the key, Escalate
// returns that ban without asking Redis. In an outage only the first call waits for Redis.
func (l *List) Escalate(ctx context.Context, key, rule string, e bans.Escalation) (bans.Ban, error) {
	if err := bans.CheckEscalation(rule, e); err != nil {
		return bans.Ban{}, err
	}
	e = e.WithDefaults()
	tag, err := l.tag(key), errDown
	if ban, ok := l.local.Find(tag); ok {
		return digested(ban), nil
	}
	if !l.down.Load() {
		var n news
		n, _, err = l.change(ctx, "escalate", tag, map[string]any{
			"rule": rule, "first": e.Ban.Milliseconds(), "factor": e.Factor, "max": e.Max.Milliseconds(),
		})
		if err == nil {
			ban, _, _ := n.read()
			return digested(ban), nil
		}
		if errors.Is(err, bans.ErrFull) {
			return bans.Ban{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ban, full := l.local.Escalate(ctx, tag, rule, e)
	if full == nil && l.unsent[tag] == nil {
		l.keep(&put{ban: ban, remember: e.Max})
	}
	return digested(ban), errors.Join(err, full)
}

// Unban implements [bans.List]. It takes a key, or the Digest of a ban.
func (l *List) Unban(ctx context.Context, key string) (lifted bool, err error) {
	tags := []string{l.tag(key)}
	if _, ok := keyfunc.ParseDigest(key); ok {
		tags = append(tags, key) // unless the key itself is banned
	}
	for _, tag := range tags {
		_, isKnown := l.local.Find(tag) // Redis may have lost it
		if _, lifted, err = l.change(ctx, "unban", tag, nil); err != nil {
			l.mu.Lock()
			_, _ = l.local.Unban(ctx, tag) // which cannot fail
			delete(l.unsent, tag)
			l.mu.Unlock()
			l.mustRead() // Redis may still have the ban
		}
		if lifted = lifted || isKnown; lifted {
			break
		}
	}
	return lifted, err
}

// All implements [bans.List]. It first reads from Redis what has changed. If that fails, it returns
// the bans of the copy, and the error.
func (l *List) All(ctx context.Context) (list []bans.Ban, err error) {
	limited, cancel := context.WithTimeout(ctx, 2*l.patience)
	defer cancel()
	answer := make(chan error, 1)
	if err = l.ended(); err == nil {
		select {
		case l.asked <- answer:
			select {
			case err = <-answer:
			case <-limited.Done():
				err = context.Cause(limited)
			}
		case <-limited.Done():
			err = context.Cause(limited)
		}
	}
	list, _ = l.local.All(ctx) // which cannot fail
	for i := range list {
		list[i] = digested(list[i])
	}
	return list, l.failed(err)
}

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
