// Package sloglimit logs refusals through log/slog: one record when a rule first refuses a key, and
// then one record in each interval, with the number of refusals.
//
//	refusals := sloglimit.Must(sloglimit.New(sloglimit.Options{}))
//	limits, err := middleware.New(middleware.Config{Observer: refusals, Rules: ...})
//
// A record has code weir-refused, weir-banned, weir-no-key or weir-shed. A Logger is a
// [pace.Observer] too: weir-cooldown means that another server refuses our requests, and
// weir-gave-up that requests are not sent, as they would wait for too long. The other attributes are
//
//	rule, tier    the rule that refused; the rule that led to a ban, if any; the rule
//	              that paces outgoing requests
//	limit         such as 100/1m
//	key           a digest of the client's key; see Options.Secret
//	route         the pattern of the first request, if it has one
//	requests      how many requests were refused since the previous record
//	retry_after   in seconds, of the first request, if it is known; of weir-cooldown, the cooldown's length
//
// A record contains nothing else that a client sent. The same digest stands for the client in Redis,
// in lists of bans and on the dashboard: see [Options.Secret].
//
// An allowed request costs a few nanoseconds. There is no goroutine: one timer runs while
// refusals are counted.
package sloglimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/pace"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// Logger writes the records. Nil: slog.Default().
	Logger *slog.Logger

	// Level is the level of the records. Zero: slog.LevelInfo.
	Level slog.Level

	// Interval is the time between two records of a rule and a key, from a second to a day.
	// Zero: a minute.
	Interval time.Duration

	// MaxKeys bounds how many pairs of rule and key have records of their own in an interval, up to
	// a million, at some 200 bytes each. Further refusals are logged by rule, without a key.
	// Zero: 1000, which also bounds the records per interval.
	MaxKeys int

	// ShowKeys logs the keys themselves, cut off after 128 bytes: addresses, user names, and also
	// API keys, which are secrets. False: digests stand for them.
	ShowKeys bool

	// Secret is the HMAC key of the digests: 16 bytes or more, and the same as in redisstore.Options,
	// so that a client has one digest everywhere. Empty: the digests are SHA-256, so whoever tries all
	// addresses finds the address; see [keyfunc.Digester].
	Secret []byte
}

const (
	shortestInterval = time.Second
	longestInterval  = 24 * time.Hour
	mostMaxKeys      = 1_000_000
)

// New returns a Logger, or an error with everything that is wrong with o.
func New(o Options) (*Logger, error) {
	var errs []error
	if o.Interval != 0 && (o.Interval < shortestInterval || o.Interval > longestInterval) {
		errs = append(errs, fmt.Errorf("sloglimit: Interval is %v: it must be from %v to %v, or 0 for 1m",
			o.Interval, shortestInterval, longestInterval))
	}
	if o.MaxKeys < 0 || o.MaxKeys > mostMaxKeys {
		errs = append(errs, fmt.Errorf("sloglimit: MaxKeys is %d: it must be from 1 to %d, or 0 for 1000", o.MaxKeys, mostMaxKeys))
	}
	if err := errors.Join(append(errs, keyfunc.CheckSecret("sloglimit", o.Secret))...); err != nil {
		return nil, err
	}
	o.Interval, o.MaxKeys = cmp.Or(o.Interval, time.Minute), cmp.Or(o.MaxKeys, 1000)
	return &Logger{options: o, digests: keyfunc.NewDigester(o.Secret), bursts: map[id]*burst{}}, nil
}

// Must returns l, or panics on an error of [New].
func Must(l *Logger, err error) *Logger {
	if err != nil {
		panic(err)
	}
	return l
}

// Observe implements [middleware.Observer].
func (l *Logger) Observe(o *middleware.Observation) {
	switch o.Outcome {
	case middleware.OutcomeRefused:
		for i := range o.Rules {
			if r := &o.Rules[i]; !r.Allowed && r.Rule.Mode != middleware.Shadow {
				l.note(o.Request, refusal{code: "weir-refused", rule: r.Rule.Name, tier: r.Rule.Tier, key: r.Key, result: r, retryAfter: r.RetryAfter})
			}
		}
	case middleware.OutcomeBanned:
		f := refusal{code: "weir-banned", rule: o.Ban.Rule, key: o.Ban.Key}
		if !o.Ban.Until.IsZero() {
			f.retryAfter = time.Until(o.Ban.Until)
		}
		l.note(o.Request, f)
	case middleware.OutcomeShed:
		l.note(o.Request, refusal{code: "weir-shed"})
	case middleware.OutcomeNoKey:
		l.note(o.Request, refusal{code: "weir-no-key"})
	}
}

// ObserveAttempt implements [pace.Observer].
func (l *Logger) ObserveAttempt(o *pace.Observation) {
	// The keys are digests already, under the Secret of pace.Options.
	if o.Cooldown > 0 {
		l.note(o.Request, refusal{code: "weir-cooldown", rule: o.Rule, key: o.Key, retryAfter: o.Cooldown, digested: true})
	}
	if o.Outcome == pace.OutcomeTooLong {
		l.note(o.Request, refusal{code: "weir-gave-up", rule: o.Rule, key: o.Key, retryAfter: o.Wait, digested: true})
	}
}

// write logs a burst.
func (l *Logger) write(b burst) {
	ctx := context.Background()
	logger := cmp.Or(l.options.Logger, slog.Default()) // the default now, as it may change
	if !logger.Enabled(ctx, l.options.Level) {
		return
	}
	attrs := make([]slog.Attr, 0, 9)
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	text("code", b.code)
	text("rule", b.rule)
	text("tier", b.tier)
	text("limit", b.limit)
	text("key", b.key)
	text("route", b.route)
	attrs = append(attrs, slog.Uint64("requests", b.requests))
	if b.retryAfter > 0 {
		attrs = append(attrs, slog.Float64("retry_after", b.retryAfter.Seconds()))
	}
	message := messages[b.code]
	if b.crowd {
		message += ", for more keys than MaxKeys"
	}
	logger.LogAttrs(ctx, l.options.Level, message, attrs...)
}

var messages = map[string]string{
	"weir-refused":  "weir: requests are refused",
	"weir-banned":   "weir: requests of a banned client are refused",
	"weir-no-key":   "weir: requests without a key are refused",
	"weir-shed":     "weir: requests are refused, as the service is overloaded",
	"weir-cooldown": "weir: a server refuses our requests, so none are sent for a while",
	"weir-gave-up":  "weir: requests are not sent, as they would wait for too long",
}
