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
	// Rules say how requests are paced, by host. The first rule that matches a request applies,
	// so put narrow rules before wide ones.
	Rules []Rule

	// Store counts the requests of all processes that share it, such as a redisstore.Store. While
	// its server does not answer, Rule.OnOutage applies. Nil: a [limiter.Memory], for this
	// process alone.
	Store limiter.Store

	// Cooldowns stores which keys a server has refused, and until when. A redisbans.List tells all
	// processes within milliseconds, and no request asks Redis. Do not use the list that bans your own
	// clients: those bans would slow down every lookup of a cooldown. The keys begin with "pace:". If
	// you ban such a key by hand, its requests wait for the end of the ban; if the ban is permanent,
	// they fail at once. An unban ends a cooldown. Nil: a list of this process alone.
	Cooldowns bans.List

	// MaxWait bounds the waits of a request in all its attempts together: for the end of a cooldown,
	// for its turn, and for a slot. A request that would wait for longer, or for longer than its
	// context lasts, fails at once with a [*WaitError]. Up to 24 hours. Zero: 30s.
	MaxWait time.Duration

	// Retry says which requests are sent again. The zero value: none.
	Retry Retry

	// RefuseUnmatched makes requests fail with [ErrNoRule] if no rule matches them. False: they are
	// sent unpaced. Each such host is logged once, because the Host of a rule may be misspelt.
	RefuseUnmatched bool

	// Observer is called with the result of each attempt. Nil: none.
	Observer Observer

	// Secret is the HMAC key of the digests that stand for keys in Observations and in Cooldowns: 16
	// bytes or more, and the same as in redisstore.Options. Empty: the digests are SHA-256, so anybody
	// who sees one can test guesses of the key; see [keyfunc.Digester].
	Secret []byte

	// Logger logs hosts that no rule matches, as Warn with code weir-unpaced, and cooldowns that
	// could not be shared, as Warn with code weir-cooldown-alone. Nil: slog.Default().
	Logger *slog.Logger
}

// A Rule paces all requests that use up one quota of a server: all requests to a host, or some of them.
type Rule struct {
	// Name is the rule's name in Store, in Cooldowns, and for observers. Rules of one name in
	// several processes count together if the processes share the Store.
	// Empty: Host.
	Name string

	// Host is required: "api.github.com", with a port if the rule is for this port alone,
	// "*.example.org" for all hosts below a domain, or "*" for any host. With "*" each host has its
	// own counts and cooldowns, so that no server can hold back requests to others.
	Host string

	// Match reports whether the rule applies to a request to Host. It is for servers with several
	// quotas, such as one for searches. It must not change the request. Nil: all requests to Host.
	Match func(*http.Request) bool

	// Key returns the key of a request. Each key has its own quota. Requests without a key
	// (keyfunc.ErrNoKey) share a quota. With any other error the request fails. Functions of package
	// keyfunc work here too. Nil: all requests of the rule share one quota. With the Host "*" and a
	// nil Key, each host has one quota.
	Key keyfunc.Func

	// Limit is what the server allows: a limit, limiter.AtOnce, or both in limiter.All. Requests leave
	// evenly: with PerHour(3600) one each second. After a pause PerSecond(10).WithBurst(20) lets 19
	// leave at once; one is kept back, because requests reach the server unevenly. Use the server's own
	// period, or pace cannot compare Limit with the remaining quota that the server reports. AtOnce
	// bounds requests in flight, until the response's body is read or closed or the context ends.
	Limit limiter.Allowance

	// OnOutage decides while the Store's server does not answer. FailLocal: each process paces by
	// its share of the limit (failover.Options.Replicas). FailClosed: requests fail. FailOpen:
	// requests are sent unpaced. Zero: FailLocal.
	OnOutage limiter.Outage
}

// Retry says which requests are sent again: requests with an idempotent method (GET, HEAD, OPTIONS,
// TRACE, QUERY, PUT, DELETE) or a header field Idempotency-Key, and others only if the server asks for
// it (X-Should-Retry: true). A request with a body needs Request.GetBody. A retry follows a refusal,
// a status 408, 500, 502, 503, 504 or 529, or a missing response, unless the server says
// X-Should-Retry: false.
//
// As in net/http, an Idempotency-Key without values (req.Header["Idempotency-Key"] = nil) marks a
// request as idempotent, and the field is not sent.
type Retry struct {
	// Attempts is how often a request is sent at most, counting the first time: from 1 to 10.
	// Zero: 1, no retries.
	Attempts int

	// Budget bounds the retries of a rule, in percent of its requests: from 1 to 100. Up to 10 unused
	// retries are kept for later. A rule starts with Attempts-1 retries. With a Budget of 10, a server
	// that is down gets 1.1 times its load, not Attempts times. Zero: 10.
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
		report("Rules are missing: without a rule, nothing is paced")
	}
	if o.MaxWait < 0 || o.MaxWait > mostMaxWait {
		report("MaxWait is %v: it must be more than 0 and at most %v, or 0 for %v", o.MaxWait, mostMaxWait, defaultMaxWait)
	}
	if o.Retry.Attempts < 0 || o.Retry.Attempts > mostAttempts {
		report("Retry.Attempts is %d: it must be from 1 to %d, or 0 for 1", o.Retry.Attempts, mostAttempts)
	}
	switch {
	case o.Retry.Budget < 0 || o.Retry.Budget > 100:
		report("Retry.Budget is %d: it must be from 1 to 100 percent, or 0 for %d", o.Retry.Budget, defaultBudget)
	case o.Retry.Budget > 0 && o.Retry.Attempts < 2:
		report("Retry.Budget is %d, but nothing is sent again, as Attempts is %d", o.Retry.Budget, o.Retry.Attempts)
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

// ofRule adds to an error which rule it is about.
func ofRule(i int, r *Rule, err error) error {
	if err == nil {
		return nil
	}
	if name := cmp.Or(r.Name, r.Host); name != "" {
		return fmt.Errorf("pace: rule %q: %w", name, err)
	}
	return fmt.Errorf("pace: rule %d: %w", i+1, err)
}
