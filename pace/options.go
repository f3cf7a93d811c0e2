package pace

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// Options is what [NewTransport] takes. Only Rules is required.
type Options struct {
	// Rules say how requests are paced, by host. The first one that is for a request applies,
	// so a narrow rule stands before a wide one.
	Rules []Rule

	// Store counts the requests of all processes that share it, such as a redisstore. While its
	// server is away, Rule.OnOutage says what happens. Nil: a [limiter.Memory], for this process
	// alone.
	Store limiter.Store

	// Cooldowns is where it is kept which of a rule's keys a server has refused, and until when.
	// With a redisbans.List all processes know within milliseconds, and no request asks Redis.
	// Give it a list of its own, as one that is in use for clients makes each request look
	// further. Keys in it begin with "pace:"; a ban by hand holds requests back, and one without
	// an end has them fail at once; to unban lifts a cooldown. Nil: a list of this process alone.
	Cooldowns bans.List

	// MaxWait is how long a request waits at most, in all of its attempts together: for the end
	// of a cooldown, for its turn, and for a place. One that would wait for longer, or for longer
	// than its context lasts, fails at once with a [*WaitError]. Up to 24 hours. Zero: 30s.
	MaxWait time.Duration

	// Retry says which requests are sent again. The zero value: none.
	Retry Retry

	// RefuseUnmatched has requests that no rule is for fail with [ErrNoRule]. False: they are sent
	// unpaced, and each such host is logged once, as the name in a rule may be misspelt.
	RefuseUnmatched bool

	// Observer hears what became of each attempt. Nil: none.
	Observer Observer

	// Secret keys the digests that stand for keys in Observations and in Cooldowns: 16 bytes or
	// more, and the same as in redisstore.Options. Empty: they are SHA-256, which can be
	// guessed where a key can; see [keyfunc.Digester].
	Secret []byte

	// Logger hears of requests that no rule is for, Warn with code weir-unpaced, and of a
	// cooldown that could not be shared, Warn with code weir-cooldown-alone. Nil: slog.Default().
	Logger *slog.Logger
}

// A Rule paces the requests to one host, or some of them: those that use up one quota there.
type Rule struct {
	// Name is what the rule is called in Store, in Cooldowns, and by observers. Rules of
	// different processes that have the same name, in the same Store, count together.
	// Empty: Host.
	Name string

	// Host is required: "api.github.com", with a port if the rule is for this port alone,
	// "*.example.org" for all hosts below a domain, or "*" for any. With "*" each host has counts
	// and cooldowns of its own, so that no server can hold back requests to others.
	Host string

	// Match narrows the rule to requests that it returns true for, where a server has several
	// quotas, such as one for searches. It does not change the request. Nil: all of Host.
	Match func(*http.Request) bool

	// Key names the quota that a request uses up: there is one for each key. Requests without a
	// key (keyfunc.ErrNoKey) share a count, and with any other error a request fails. Functions
	// of package keyfunc serve here too. Nil: all requests of the rule share one, but with the
	// Host "*", where all to one host do.
	Key keyfunc.Func

	// Limit is how many requests the server allows, preferably in its own period: only then
	// can what it says to remain be compared. Requests leave evenly, PerHour(3600) one a second,
	// unless the limit has a burst: PerSecond(10).WithBurst(20) lets 19 leave at once after a
	// pause, and then one every tenth of a second. One of a burst is kept back, so that requests
	// which arrive less evenly than they left are not refused. The algorithm is TokenBucket then, and else
	// the zero one or LeakyBucket.
	//
	// AtOnce is how many requests may be in progress, alone or beside a limit (limiter.All), from
	// when they are sent until the response's body is read to its end or closed, or the request's
	// context ends. Others wait for a slot, in FIFO order. Without a Queue as many wait as there
	// may be, for MaxWait of the Options.
	Limit limiter.Allowance

	// OnOutage says what happens while Store's server gives no answer. Zero: FailLocal, so that
	// each process paces by its share of the limit (failover.Options.Replicas). With FailClosed
	// requests fail.
	OnOutage limiter.Outage
}

// Retry says which requests are sent again: those with an idempotent method (GET, HEAD, OPTIONS,
// TRACE, PUT, DELETE) or a header field Idempotency-Key, and others only if the server asks for
// it (X-Should-Retry: true). A body has to come from Request.GetBody. They are sent again after
// a refusal, after 408, 500, 502, 503, 504 and 529, and when no response came; not if the server says
// X-Should-Retry: false.
//
// As in net/http, an Idempotency-Key of no values (req.Header["Idempotency-Key"] = nil) says that
// a request is idempotent, and is not sent.
type Retry struct {
	// Attempts is how often a request is sent at most, the first time included: from 1 to 10.
	// Zero: 1.
	Attempts int

	// Budget is how many requests are sent again, at most, in percent of all requests of a rule:
	// from 1 to 100. What is not used is saved for 10 of them, and there are Attempts-1 at the
	// start. So a server that is down is not asked Attempts times as often. Zero: 10.
	Budget int
}

const (
	defaultMaxWait = 30 * time.Second
	mostMaxWait    = 24 * time.Hour
	mostAttempts   = 10
	defaultBudget  = 10
)

// complete is o with defaults in place of zeros, or everything that is wrong with it, apart from
// Rules.
func (o Options) complete() (Options, error) {
	var errs []error
	report := func(format string, args ...any) { errs = append(errs, invalid.New("pace", format, args...)) }
	if len(o.Rules) == 0 {
		report("%s are missing: without one, nothing is paced", invalid.Name("Rules"))
	}
	if o.MaxWait < 0 || o.MaxWait > mostMaxWait {
		report("%s is %v: it must be more than 0 and at most %v, or 0 for %v", invalid.Name("MaxWait"), o.MaxWait, mostMaxWait, defaultMaxWait)
	}
	if o.Retry.Attempts < 0 || o.Retry.Attempts > mostAttempts {
		report("Retry.%s is %d: it must be from 1 to %d, or 0 for 1", invalid.Name("Attempts"), o.Retry.Attempts, mostAttempts)
	}
	switch {
	case o.Retry.Budget < 0 || o.Retry.Budget > 100:
		report("Retry.%s is %d: it must be from 1 to 100 percent, or 0 for %d", invalid.Name("Budget"), o.Retry.Budget, defaultBudget)
	case o.Retry.Budget > 0 && o.Retry.Attempts < 2:
		report("Retry.%s is %d, and there is nothing to spend it on, as %s is %d", invalid.Name("Budget"), o.Retry.Budget, invalid.Name("Attempts"), o.Retry.Attempts)
	}
	if err := keyfunc.CheckSecret("pace", o.Secret); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return o, errors.Join(errs...)
	}
	o.MaxWait = cmp.Or(o.MaxWait, defaultMaxWait)
	o.Retry.Attempts = cmp.Or(o.Retry.Attempts, 1)
	o.Retry.Budget = cmp.Or(o.Retry.Budget, defaultBudget)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	var err error
	if o.Store == nil {
		if o.Store, err = limiter.NewMemory(limiter.MemoryOptions{}); err != nil {
			return o, err
		}
	}
	if o.Cooldowns == nil {
		o.Cooldowns, err = bans.New(bans.Options{})
	}
	return o, err
}

// ofRule says which rule an error is about.
func ofRule(i int, r *Rule, err error) error {
	if err == nil {
		return nil
	}
	if name := cmp.Or(r.Name, r.Host); name != "" {
		return fmt.Errorf("pace: rule %q: %w", name, err)
	}
	return fmt.Errorf("pace: rule %d: %w", i+1, err)
}
