package middleware

import (
	"log/slog"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// Config is what [New] takes.
type Config struct {
	// Rules limit every request that they match. All rules that a request meets, those of ByTier,
	// ByRoute and Default included, are decided together: all are charged, or none is.
	Rules []Rule

	// ByTier has rules for the requests of a tier, by the name given to [WithTier]. Requests in no tier, or in one
	// that no rule has, need Default or Rules: without these they are not limited, and New logs a warning.
	ByTier map[string][]Rule

	// ByRoute has rules by pattern, written as for [Route]. One pattern applies to a request, with all
	// its rules: a pattern with a host wins over one without, as in http.ServeMux, then the longest
	// path wins, then a pattern with a method. There may be thousands of patterns. A client can make up
	// a host that matches no pattern with a host. Such requests are limited only by patterns without a
	// host, by Default and by Rules.
	ByRoute map[string][]Rule

	// Default has the rules for requests that no pattern of ByRoute matches and whose tier has no rules
	// in ByTier. So a tier's rules replace Default, also to allow more. If none of a tier's or a route's rules
	// limits every request, New logs a warning: the others are not limited. Nil: none.
	Default []Rule

	// Allow says which requests no rule limits. Bans still apply to them. It must not depend on what a
	// client can write, such as a host. [IsPreflight] depends on fields that the client writes; its
	// comment says when that is safe. A request whose method is not in capitals is never exempt. Nil: none.
	Allow Match

	// Bans says which clients are locked out. Zero: none.
	Bans Bans

	// Refusal is the answer to requests that exceed a limit. The Refusal of a rule replaces
	// Config.Refusal field by field. Config.Refusal.Answer also writes the refusals for bans and
	// outages. Zero: status 429, with a sentence of Weir's.
	Refusal Refusal

	// Shadow puts all rules and bans in the Mode [Shadow].
	Shadow bool

	// Overload bounds the requests in flight by the capacity of the service; package shed implements
	// it. A request that the rules admit waits for a slot, and holds it until its handler returns. If
	// it gets no slot, it is answered 503 with Retry-After, and charged nothing. Requests that Allow
	// matches need no slot. Shadow has no effect on Overload. Nil: no bound.
	Overload Overload

	// Store holds the counters. Nil: a [limiter.Memory] of this limiter's own.
	Store limiter.Store

	// Headers says which header fields responses carry. Zero: those of both dialects.
	Headers Headers

	// Results puts the decisions into the request's context, where [FromContext] finds the Result. The request
	// is then copied, which costs more than a decision in memory. False: handlers find no Result.
	Results bool

	// Observer is called with the outcomes of requests; see [Observer]. Nil: none.
	Observer Observer

	// Logger receives warnings about misconfiguration, and the number of requests that rules in Shadow
	// would have refused. Warnings of package keyfunc and of [Route] always go to slog.Default(). Nil:
	// slog.Default().
	Logger *slog.Logger
}

// Bans says which clients are locked out. Bans are checked before rules.
type Bans struct {
	// List has the banned keys. Rules with Escalate add to it. Nil: none.
	List bans.List

	// Keys read the keys of a request that are looked up in List. While List has bans, a request whose
	// key cannot be read is refused: with 400 if the key is ambiguous, and with 503 if its function
	// fails. Nil: the Key functions of all rules with Escalate. They then read the key of every request,
	// even of a request that the rule does not match. If the OnOutage of such a rule is FailOpen, an
	// error of its function is ignored.
	Keys []keyfunc.Func

	// Deny bans the requests that it matches, such as those from a network. It comes before Config.Allow,
	// which the Mode Deny of a rule does not, and reads no keys. Nil: none.
	Deny Match

	// Status is the status for banned clients: 403 or 429. Zero: 403.
	Status int
}

// A Rule is one limit on some requests, with a counter for each key.
type Rule struct {
	// Name is required, and unique in a Config: 1 to 128 characters of printable ASCII. Clients see
	// it in the RateLimit fields. Counters are stored under the name, so a rule whose limit changes
	// keeps its counters if it keeps its name.
	Name string

	// Key returns the key of a request, which says which client it comes from. It is required, except in
	// Mode Deny: [keyfunc.Global] counts all requests together.
	Key keyfunc.Func

	// Limit is required, except in Mode Deny: a [limiter.Limit], [limiter.AtOnce], or [limiter.All] of
	// several. Requests in one of Tiers have the tier's limit instead. Clients see the first limit of a
	// rule "api" as "api", each other limit with its period in seconds, such as "api.3600", and an
	// AtOnce beside limits as "api.concurrent". AtOnce needs a Config.Store that counts
	// slots; see docs/costs.md.
	Limit limiter.Allowance

	// Tiers has limits that replace Limit for some clients, by the name given to [WithTier].
	Tiers Tiers

	// Overrides has the limits of single keys, by the text that [keyfunc.Classify] returns. They replace
	// Limit and Tiers for these keys. What a key has used stays used when its limit changes. A rule can
	// have 4,096 different ones. [WithLimit] gives a client a limit of its own while requests arrive. Nil:
	// none.
	Overrides map[string]Override

	// Match says which requests the rule applies to; see [Route]. If a rule of ByTier, ByRoute or
	// Default does not match, no other rule replaces it. Nil: all requests.
	Match Match

	// Distinct counts different values instead of requests, such as the user names that an address
	// tries: a request costs one unit if its key had no request with that value within the limit's
	// period, and nothing otherwise. NoKey decides about a request without a value. If NoKey counts
	// such a request, it costs one unit each time. Requests with one new value that are in progress at
	// once may all be charged; with Counts, they are. Distinct needs a single Limit, not a LeakyBucket, and no
	// Cost but [Reserve], whose estimate is ignored: [Settle] with 0 units refunds a new value, which then counts as
	// new again. Nil: every request is charged.
	Distinct keyfunc.Func

	// Cost is how many units a request takes: [Units], [CostOf], or [Reserve] for a cost that is
	// known only when the request ends. Zero: one unit.
	Cost Cost

	// Counts says which answers use up the limit: [Statuses], [StatusClass], or [Not] of these. If the
	// answer does not count, its units are refunded; with [Counts.Afterwards] a request is charged
	// only when its answer counts. docs/costs.md says which status counts if a client leaves or a
	// handler panics. A LeakyBucket cannot have Counts. Zero: all answers count.
	Counts Counts

	// NoKey says what happens to a request without a key. If the key function returns
	// keyfunc.ErrAmbiguous, the answer is always 400. If a CORS preflight has no key, it counts under
	// the client's address, apart from other requests; NoKeySkip skips it. Zero: NoKeyShare.
	NoKey NoKey

	// OnOutage says what happens while the store's server does not answer: FailLocal counts in this
	// process, FailOpen admits uncounted, FailClosed answers 503. If rules differ, FailClosed wins. The
	// store must support it, as redisstore does; package failover wraps other stores. OnOutage also
	// applies when the key function fails: FailLocal then counts all such requests together, or answers
	// 503 if NoKey refuses requests without a key. Zero: FailLocal.
	OnOutage limiter.Outage

	// SoftAt is a percentage of the limit, from 1 to 99. From that use on, responses carry
	// X-RateLimit-Warning, and [Result.NearLimit] is set. Zero: no warning.
	SoftAt int

	// Escalate bans a key that is refused again and again, if the key is a client's own
	// ([keyfunc.Own]). It needs Config.Bans.List. Zero: no bans.
	Escalate bans.Escalation

	// Mode says whether the rule refuses: [Enforce], [Shadow] or [Deny]. Zero: Enforce.
	Mode Mode

	// Refusal is the answer to requests that the rule refuses. It replaces Config.Refusal field by
	// field; a rule with Deny ignores Config.Refusal, except for its Answer and Body. Zero: Config.Refusal.
	Refusal Refusal
}

// Tiers are allowances by the name of a tier. A request that [WithTier] puts in a tier counts
// against that allowance instead of Rule.Limit, in a counter of its own.
type Tiers map[string]limiter.Allowance

// An Override is the limit of a single key, in Rule.Overrides.
type Override struct {
	// Limit is required.
	Limit limiter.Allowance

	// Until is when the override ends, by the clock of each process. From then on the key has the limit of
	// the rule again. If that limit allows more, a refusal's Retry-After and the resets are not later than Until.
	// If it allows less, a request can be refused again after such a Retry-After. Zero: it does not end.
	Until time.Time

	// Because says for operators why there is the override. Empty: no reason is given.
	Because string
}

// Mode says whether a rule refuses requests.
type Mode uint8

const (
	// Enforce refuses requests that exceed the limit.
	Enforce Mode = iota

	// Shadow decides and counts, but refuses nothing. It logs how many requests the rule would have
	// refused, at most once a minute, with code weir-shadow. Clients do not see the rule.
	Shadow

	// Deny refuses every request that the rule matches, for example during maintenance. Requests that
	// Config.Allow matches still pass. The answer is Rule.Refusal, with status 403 by default. Only
	// Name, Match and Refusal have an effect: no key is read, and nothing is counted.
	Deny
)

// NoKey says what a rule does with a request that has no key. If all rules that a request meets skip
// it, the request is not limited, and a warning is logged.
type NoKey uint8

const (
	// NoKeyShare counts all requests without a key on one counter.
	NoKeyShare NoKey = iota

	// NoKeySkip ignores requests without a key. Other rules may still limit them.
	NoKeySkip

	// NoKeyBadRequest answers 400. No rule is charged.
	NoKeyBadRequest

	// NoKeyUnauthorized answers 401. No rule is charged. If WWW-Authenticate is not set already, it is
	// Bearer for the Key [keyfunc.Bearer], and else Key, which is no registered scheme.
	NoKeyUnauthorized
)
