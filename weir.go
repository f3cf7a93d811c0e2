package weir

import (
	"context"
	"net/http"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Aliases and one-line functions, and no logic: what a name means is said where it is.

// What limits and rules are made of.
type (
	// Limit is a number of events in a period. See [limiter.Limit].
	Limit = limiter.Limit

	// Algorithm is how events are counted. See [limiter.Algorithm].
	Algorithm = limiter.Algorithm

	// Allowance says how much is allowed: a Limit, an AtOnce, or All of several. See
	// [limiter.Allowance].
	Allowance = limiter.Allowance

	// Concurrency is a limit on events in flight at once. [AtOnce] makes one. See
	// [limiter.Concurrency].
	Concurrency = limiter.Concurrency

	// Outage is what a rule does while the store's server is away. See [limiter.Outage].
	Outage = limiter.Outage

	// Config is what [New] takes. The package's comment lists its fields, [middleware.Config] describes them.
	Config = middleware.Config

	// Bans says which clients are locked out. See [middleware.Bans].
	Bans = middleware.Bans

	// Headers says which header fields responses carry. See [middleware.Headers].
	Headers = middleware.Headers

	// Refusal is the answer that refused clients get. See [middleware.Refusal].
	Refusal = middleware.Refusal

	// Rule is one limit on some requests. The package's comment lists its fields, [middleware.Rule] describes them.
	Rule = middleware.Rule

	// Tiers are a rule's limits by tier. See [middleware.Tiers].
	Tiers = middleware.Tiers

	// Override is the limit of a single key, in Rule.Overrides. See [middleware.Override].
	Override = middleware.Override

	// RateLimit decides about requests. See [middleware.RateLimit].
	RateLimit = middleware.RateLimit

	// Counts says which answers use up a rule's limit. See [middleware.Counts].
	Counts = middleware.Counts

	// Cost says how many units a request takes. See [middleware.Cost].
	Cost = middleware.Cost

	// Mode says whether a rule refuses. See [middleware.Mode].
	Mode = middleware.Mode

	// Match picks the requests that a rule or another setting applies to. See [middleware.Match].
	Match = middleware.Match

	// MatchFunc is a Match of your own. See [middleware.MatchFunc].
	MatchFunc = middleware.MatchFunc

	// Result is what was decided about a request. See [middleware.Result].
	Result = middleware.Result
)

// The algorithms. See [limiter.Algorithm].
const (
	SlidingWindow  = limiter.SlidingWindow
	TokenBucket    = limiter.TokenBucket
	LeakyBucket    = limiter.LeakyBucket
	FixedWindow    = limiter.FixedWindow
	SlidingLog     = limiter.SlidingLog
	SlidingCounter = limiter.SlidingCounter
)

// The modes of a rule. See [middleware.Mode].
const (
	Enforce = middleware.Enforce
	Shadow  = middleware.Shadow
	Deny    = middleware.Deny
)

// What a rule does with requests without a key. See [middleware.NoKey].
const (
	NoKeyShare        = middleware.NoKeyShare
	NoKeySkip         = middleware.NoKeySkip
	NoKeyBadRequest   = middleware.NoKeyBadRequest
	NoKeyUnauthorized = middleware.NoKeyUnauthorized
)

// The outage policies. See [limiter.Outage].
const (
	FailLocal  = limiter.FailLocal
	FailOpen   = limiter.FailOpen
	FailClosed = limiter.FailClosed
)

// PerSecond is a limit of so many events a second.
func PerSecond(events int64) Limit { return limiter.PerSecond(events) }

// PerMinute is a limit of so many events a minute.
func PerMinute(events int64) Limit { return limiter.PerMinute(events) }

// PerHour is a limit of so many events an hour.
func PerHour(events int64) Limit { return limiter.PerHour(events) }

// PerDay is a limit of so many events in 24 hours.
func PerDay(events int64) Limit { return limiter.PerDay(events) }

// Daily is a limit of so many events from midnight to midnight. See [limiter.Daily].
func Daily(events int64) Limit { return limiter.Daily(events) }

// Monthly is a limit of so many events in a month of the calendar. See [limiter.Monthly].
func Monthly(events int64) Limit { return limiter.Monthly(events) }

// AtOnce allows up to most events in flight at once. See [limiter.AtOnce].
func AtOnce(most int64) Concurrency { return limiter.AtOnce(most) }

// All combines several allowances: an event passes if all of them have room. See [limiter.All].
func All(parts ...Allowance) Allowance { return limiter.All(parts...) }

// Parse reads a limit as text, such as "10/s burst 20". See [limiter.Parse].
func Parse(text string) (Limit, error) { return limiter.Parse(text) }

// PerIP limits requests for each client address. It panics on an invalid limit. See
// [middleware.PerIP].
func PerIP(limit Limit, options ...keyfunc.IPOption) func(http.Handler) http.Handler {
	return middleware.PerIP(limit, options...)
}

// New returns a limiter for these rules, or everything that is wrong with c. See
// [middleware.New].
func New(c Config) (*RateLimit, error) { return middleware.New(c) }

// Must returns l, and panics if [New] returned an error. Use it for rules that are written in code.
func Must(l *RateLimit, err error) *RateLimit { return middleware.Must(l, err) }

// Route matches requests by the pattern they were routed by. A pattern that cannot match
// anything is an error of [New]. See [middleware.Route].
func Route(patterns ...string) Match { return middleware.Route(patterns...) }

// IsPreflight matches CORS preflights, for Config.Allow. See [middleware.IsPreflight] for when
// that is safe.
var IsPreflight = middleware.IsPreflight

// Statuses counts answers with one of these statuses. See [middleware.Statuses].
func Statuses(statuses ...int) Counts { return middleware.Statuses(statuses...) }

// StatusClass counts answers with a status of one of these classes: 2 is for 200 to 299. See
// [middleware.StatusClass].
func StatusClass(classes ...int) Counts { return middleware.StatusClass(classes...) }

// Not counts every answer that c does not count. See [middleware.Not].
func Not(c Counts) Counts { return middleware.Not(c) }

// Units is a cost that is the same for every request. See [middleware.Units].
func Units(n int64) Cost { return middleware.Units(n) }

// CostOf is what f returns for a request. See [middleware.CostOf].
func CostOf(f func(*http.Request) int64) Cost { return middleware.CostOf(f) }

// Reserve reserves an estimate, until Settle says what a request really cost. See
// [middleware.Reserve].
func Reserve(estimate func(*http.Request) int64) Cost { return middleware.Reserve(estimate) }

// Settle says what the request with this context really cost. See [middleware.Settle].
func Settle(ctx context.Context, rule string, n int64) error {
	return middleware.Settle(ctx, rule, n)
}

// CountAs says which status the answer to the request with this context counts as. See [middleware.CountAs].
func CountAs(ctx context.Context, status int) error { return middleware.CountAs(ctx, status) }

// WithTier puts requests with this context in a tier. See [middleware.WithTier].
func WithTier(ctx context.Context, tier string) context.Context {
	return middleware.WithTier(ctx, tier)
}

// WithLimit gives requests with the returned context a limit of their own for a rule. See
// [middleware.WithLimit].
func WithLimit(ctx context.Context, rule string, limit Allowance) (context.Context, error) {
	return middleware.WithLimit(ctx, rule, limit)
}

// WithUser says who the user of requests with this context is. See [keyfunc.WithUser].
func WithUser(ctx context.Context, id string) context.Context { return keyfunc.WithUser(ctx, id) }

// FromContext returns the decision about the request with this context, or false if no limiter ran. See
// [middleware.FromContext].
func FromContext(ctx context.Context) (Result, bool) { return middleware.FromContext(ctx) }
