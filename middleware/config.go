package middleware

import (
	"context"
	"log/slog"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// Config is what [New] takes.
type Config struct {
	// Rules are checked on every request that they match. All rules of a request, of these
	// and of the next three fields, are checked together: all are charged, or none is.
	Rules []Rule

	// ByTier are rules for the requests that [WithTier] put in a tier, by its name.
	ByTier map[string][]Rule

	// ByRoute are rules by pattern, as [Route] has them. Only one pattern applies to a request,
	// with all its rules: hosts go before none, as in http.ServeMux, then the longest path, then a
	// method. There can be thousands of patterns. A client that makes up a host meets the rules
	// for any host, or Default, so have one of them, or a rule in Rules.
	ByRoute map[string][]Rule

	// Default are the rules for requests that no pattern of ByRoute is for. Nil: there are none.
	Default []Rule

	// Allow says which requests are not limited, unless they are refused as banned. It must
	// not go by what a client can write, such as a host; see [IsPreflight]. Nil: none.
	Allow Match

	// Bans says which clients are locked out. Zero: none.
	Bans Bans

	// Refusal is what clients are answered that exceed the limit of a rule, where the rule's own
	// Refusal does not say it. Its Answer writes all refusals, those of bans and outages too. Zero:
	// 429, with a sentence of Weir's.
	Refusal Refusal

	// Shadow puts all rules in the Mode [Shadow], and bans too.
	Shadow bool

	// Overload bounds how many requests are in flight, by what the service can do: package
	// shed has one. A request that the rules let pass holds a place, for which it may wait, until
	// its handler has returned. A request without a place is answered 503 with Retry-After, and
	// charged nothing. Exempt requests need no place. Shadow has no effect on it. Nil: no bound.
	Overload Overload

	// Store holds the counters. Nil: a [limiter.Memory] of this limiter's own.
	Store limiter.Store

	// Headers says which header fields responses carry. Zero: those of both dialects.
	Headers Headers

	// NoResult leaves the context of requests as it is: [FromContext] finds no Result, and a request
	// that passes with HeadersNone costs no allocation. It is for the only limiter that a request
	// meets, or one with HeadersNone: limiters further in do not know of this one, so they replace
	// or repeat its header fields, and the same limiter met again charges the request twice. False:
	// handlers find the Result.
	NoResult bool

	// Observer hears what becomes of every request. Nil: none.
	Observer Observer

	// Logger receives this limiter's warnings about misconfiguration, and what rules in
	// Shadow would have refused. Nil: slog.Default(), where keyfunc and Route log theirs
	// in any case.
	Logger *slog.Logger
}

// Bans says which clients are locked out, before any rule is looked at.
type Bans struct {
	// List has the banned keys; rules with Escalate add to it. Nil: there is none.
	List bans.List

	// Keys are looked up in List and passed to DenyKey. A request whose key cannot be read is
	// refused while anything is banned: 400 if the key is ambiguous, 503 if the key function fails,
	// unless its rule is Open in an outage. Nil: the keys of the rules with Escalate, one after the
	// other, whatever requests they match.
	Keys []keyfunc.Func

	// DenyKey reports whether a key is banned, as by a fixed list. It gets the text of the key, as
	// keyfunc.Classify returns it. Nil: no key but those in List.
	DenyKey func(key string) bool

	// Deny says which requests are banned, as by the network of its address. No key of the
	// request is read for it. Nil: none.
	Deny Match

	// Status is what banned clients are answered: 403 or 429. Zero: 403.
	Status int
}

// A Rule is one limit on some requests, counted for each key apart.
type Rule struct {
	// Name is required and unique in a Config. Clients see it in the RateLimit
	// fields: 1 to 128 characters of printable ASCII. Counters go by it: a rule that
	// keeps its name keeps them when its limit changes.
	Name string

	// Key says which client is asking. Nil: one counter for all requests that match.
	Key keyfunc.Func

	// Limit is required, but in Mode Deny: a [limiter.Limit], [limiter.AtOnce], or [limiter.All] of
	// several. With Tiers, it is for requests in none of them. Clients see the first limit under
	// the rule's name, "api", others with their period in seconds, "api.3600", and AtOnce beside a
	// limit as "api.concurrent". AtOnce needs a Config.Store that is a [limiter.Checker]; see
	// docs/concurrency.md.
	Limit limiter.Allowance

	// Tiers are for some callers, by the name given to [WithTier], in place of Limit.
	Tiers Tiers

	// LimitFor has the limits of single keys, in place of all that the rule has for others, in
	// every tier: a [LimitMap] or a [LimitFunc]. They count under the rule's name, so what a key
	// has used stays used when its limit changes. Nil: keys have no limits of their own.
	LimitFor LimitFor

	// Match says which requests the rule is for; see [Route]. Nil: all. A rule of ByTier,
	// of ByRoute or Default matches more narrowly with it, not another rule instead.
	Match Match

	// Distinct counts different values instead of requests, such as the user names that an address
	// tries: a request costs one unit if its value was not counted for the key within the limit's
	// period, and nothing otherwise. NoKey says what happens without a value; if such a request counts,
	// it costs a unit each time. Distinct needs a single Limit, not a LeakyBucket, and no Cost. Two
	// requests that bring one new value at once may both be charged. Nil: all requests cost.
	Distinct keyfunc.Func

	// Cost is how many units a request takes: [Units], [CostOf], or [Reserve] for what is known
	// only when it ends. Zero: one.
	Cost Cost

	// Counts says which answers use up the limit: [Statuses], [StatusClass], or [Not] one of
	// these. What a request took is returned once the answer is known and does not count; with
	// [Counts.Afterwards] it is charged only then. See docs/costs.md for which status counts where
	// a client leaves or a handler panics. A LeakyBucket counts all. Zero: all count.
	Counts Counts

	// NoKey says what happens to a request that has no key. One that is ambiguous, as its
	// key function says with keyfunc.ErrAmbiguous, is answered 400 whatever this is. A CORS preflight
	// has no credentials: it counts on the client's address, apart from other keys, unless this is
	// NoKeySkip. Zero: NoKeyShare.
	NoKey NoKey

	// OnOutage says what happens while the store's server gives no answer: count in this process
	// (Local), let pass uncounted (Open), or answer 503 (Closed). Closed goes before the others. The
	// store must be one that does this, as redisstore's does; package failover wraps any other. The
	// same holds if the key function fails: Local then counts all such requests together, or
	// answers 503 if NoKey refuses requests without a key. Zero: Local.
	OnOutage limiter.Outage

	// SoftAt is a percentage of what the limit allows at once, from 1 to 99. From there on
	// responses carry X-RateLimit-Warning and [Result.NearLimit] is set. Zero: no warning.
	SoftAt int

	// Escalate bans a key that is refused again and again. It needs Bans.List and a Key.
	// Zero: it does not.
	Escalate bans.Escalation

	// Mode says whether the rule refuses: [Enforce], [Shadow] or [Deny]. Zero: Enforce.
	Mode Mode

	// Refusal is what a client is answered that the rule refuses, field by field in place of what
	// Config.Refusal says; a rule with Deny goes by this alone. Zero: it says nothing.
	Refusal Refusal
}

// Tiers are allowances by tier name. A request that [WithTier] puts in one of them is
// counted against that one instead of the rule's own, in a counter apart.
type Tiers map[string]limiter.Allowance

// LimitFor has limits of single keys: a [LimitMap] or a [LimitFunc].
type LimitFor interface{ limitFor() }

// A LimitMap has limits of single keys, by the text of the key ([keyfunc.Classify]). [New] checks
// them.
type LimitMap map[string]limiter.Allowance

// A LimitFunc looks up the limit of a key, such as one that a customer pays for. Nil: the key has
// none of its own. It may have four parts, or as many as the rule.
//
// Its answer is kept for a minute, for the 50,000 keys at least that were asked for last. For each
// key there is one call at a time: requests of a key that is not known wait for it, for up to a
// second; those of one that is known go on with what is known. The context ends after a second,
// and not with the request. A client that makes up keys has it called for each.
//
// If it fails, or the limit is not valid, what was known goes on. Where nothing is known the
// rule's OnOutage says what becomes of the request: it meets the rule's limit for all (Local),
// passes (Open), or is answered 503 (Closed). So it is where the rules' keys would have more than
// 4,096 different limits.
type LimitFunc func(ctx context.Context, key string) (limiter.Allowance, error)

func (LimitMap) limitFor()  {}
func (LimitFunc) limitFor() {}

// Mode says whether a rule refuses requests.
type Mode uint8

const (
	// Enforce refuses what exceeds the limit.
	Enforce Mode = iota

	// Shadow decides, counts and logs what the rule would refuse (code weir-shadow, at most once a
	// minute, with how many), and refuses nothing. Clients see nothing of it.
	Shadow

	// Deny refuses every request that the rule is for, after Config.Allow: a switch for what is
	// closed for now. Rule.Refusal has what is answered, 403 unless it says otherwise. No key is
	// read and nothing is counted, so of the other fields only Name and Match have an effect, and
	// Limit may be left out.
	Deny
)

// NoKey says what a rule does with a request for which its key function has no key.
// A request is not limited where all rules that it meets are NoKeySkip, which is warned of.
type NoKey uint8

const (
	// NoKeyShare counts all requests without a key on one shared counter.
	NoKeyShare NoKey = iota

	// NoKeySkip leaves requests that have no key to the other rules.
	NoKeySkip

	// NoKeyBadRequest answers 400. No rule is charged for such a request.
	NoKeyBadRequest

	// NoKeyUnauthorized answers 401, with a WWW-Authenticate field that names the
	// Bearer scheme unless one is set already. No rule is charged for it either.
	NoKeyUnauthorized
)
