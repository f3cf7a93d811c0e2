package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A keyed is the key of peek, reset, ban or unban, as JSON.
type keyed struct {
	Key    string `json:"key,omitempty"` // empty: only Digest is known
	Digest string `json:"digest"`
}

// shown returns the key, or else its digest.
func (k *keyed) shown() string { return cmp.Or(k.Key, k.Digest) }

// A keyCommand is a run of peek or reset on a key, under the rules of a file.
type keyCommand struct {
	*output
	limits *middleware.RateLimit
	rules  []string
	key    string // as package middleware takes it
	keyed  keyed
}

// onKey calls do with the rules of the file and the key in the arguments.
func onKey(flags *pflag.FlagSet, s *session, do func(ctx context.Context, c *keyCommand) error) action {
	server := serverFlags(flags)
	rule := flags.String("rule", "", "only the rule with this `name`; by default all rules")
	key := flags.String("key", "", "the `key`, as weir explain shows it, such as user:42, or its digest; empty: the counter for all clients")
	at := rulesKey(flags)
	file := namesFlag(flags)
	out := s.output(flags)
	tiers, keys := knowing(flags)
	return func(files []string) error {
		if !flags.Changed("key") {
			return usageError{errors.New("name the --key; an empty one for the counter that all clients share")}
		}
		counted, err := keyOf(*key, *keys)
		if err != nil {
			return err
		}
		known, err := s.readNames(*file, server, *keys)
		if err != nil {
			return err
		}
		loaded, err := s.loadFrom(files[0], server, *at, options(*tiers, *keys))
		if err != nil {
			return err
		}
		return server.with(time.Minute, func(ctx context.Context, client redis.UniversalClient) error {
			limits, err := server.limits(client, loaded)
			if err != nil {
				return err
			}
			c := &keyCommand{output: out, limits: limits, key: counted, keyed: known.keyed(counted)}
			for _, info := range limits.Rules() {
				counts := info.Limit != nil && !slices.Contains(c.rules, info.Name) // a rule with mode deny has no Limit
				if counts && (*rule == "" || *rule == info.Name) {
					c.rules = append(c.rules, info.Name)
				}
			}
			switch {
			case len(c.rules) == 0 && *rule == "":
				return usageError{errors.New("the file has no rule that counts requests")}
			case len(c.rules) == 0:
				return usageError{fmt.Errorf("the file has no rule named %q that counts requests", *rule)}
			}
			return do(ctx, c)
		})
	}
}

// A peeked is the result of peek as JSON.
type peeked struct {
	keyed
	Rules []peekedRule `json:"rules"`
}

type peekedRule struct {
	Rule       string  `json:"rule"`
	Tier       string  `json:"tier,omitempty"`
	InProgress bool    `json:"in_progress,omitempty"` // the limit is on requests in progress
	Used       int64   `json:"used"`
	Limit      int64   `json:"limit"`
	Left       int64   `json:"left"`
	FreeIn     seconds `json:"free_in_seconds,omitempty"` // until all of the limit is free; 0 if InProgress
}

func peek(s *session, flags *pflag.FlagSet) action {
	return onKey(flags, s, func(ctx context.Context, c *keyCommand) error {
		found := peeked{c.keyed, []peekedRule{}}
		add := func(r *middleware.RuleResult, d *limiter.Decision, atOnce bool) {
			p := peekedRule{r.Rule.Name, r.Rule.Tier, atOnce, d.Limit - d.Remaining, d.Limit, d.Remaining, 0}
			if !atOnce {
				p.FreeIn = inSeconds(d.ResetAfter)
			}
			found.Rules = append(found.Rules, p)
		}
		for _, name := range c.rules {
			results, err := c.limits.Peek(ctx, name, c.key)
			if err != nil {
				return err
			}
			for _, r := range results {
				d := &r.Decision
				if r.IsConcurrency() && r.Limits != nil {
					d = &r.Limits[0]
				}
				if !r.IsConcurrency() || r.Limits != nil {
					add(&r, d, false)
				}
				if r.Concurrent.Limit > 0 {
					add(&r, &r.Concurrent, true)
				}
			}
		}
		return c.write(found, func(table io.Writer) {
			if _, isDigest := keyfunc.DigestOf(c.key); isDigest && found.Key == "" {
				fmt.Fprintf(table, "the key with the digest %s\n", found.Digest)
			} else {
				fmt.Fprintf(table, "key %q, in Redis %s\n", found.Key, found.Digest)
			}
			fmt.Fprintln(table, "RULE\tUSED\tLIMIT\tLEFT\tFREE IN")
			for _, r := range found.Rules {
				name, freeIn := ruleName(r.Rule, r.Tier), r.FreeIn.String()
				if r.InProgress {
					name, freeIn = name+", at once", ""
				}
				fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\n", name, r.Used, r.Limit, r.Left, freeIn)
			}
		})
	})
}

// A resetKey is the result of reset as JSON.
type resetKey struct {
	keyed
	Rules []resetRule `json:"rules"`
}

type resetRule struct {
	Rule    string `json:"rule"`
	HadUsed bool   `json:"had_used"` // the key had used a part of the limit
}

func reset(s *session, flags *pflag.FlagSet) action {
	return onKey(flags, s, func(ctx context.Context, c *keyCommand) error {
		done := resetKey{c.keyed, []resetRule{}}
		for _, name := range c.rules {
			results, err := c.limits.Peek(ctx, name, c.key)
			if err != nil {
				return err
			}
			if err := c.limits.Reset(ctx, name, c.key); err != nil {
				return err
			}
			used := slices.ContainsFunc(results, func(r middleware.RuleResult) bool { return r.Remaining < r.Limit })
			done.Rules = append(done.Rules, resetRule{name, used})
		}
		return c.write(done, func(table io.Writer) {
			shown := done.Digest
			if done.Key != "" || c.key == "" {
				shown = strconv.Quote(done.Key)
			}
			for _, r := range done.Rules {
				had := ""
				if !r.HadUsed {
					had = ", which had used nothing"
				}
				fmt.Fprintf(table, "%q begins anew for %s%s\n", r.Rule, shown, had)
			}
		})
	})
}

// keyOf returns the key for an argument, which is a key or a digest. own are the kinds of --keys.
func keyOf(text, own string) (string, error) {
	if digest, ok := keyfunc.ParseDigest(text); ok {
		return digest.Key(), nil
	}
	key, err := operate.Key(text, list(own)...)
	if errors.Is(err, operate.ErrNoKey) {
		err = fmt.Errorf("%w, or of a kind that --keys names", err)
	}
	if err != nil {
		return "", usageError{err}
	}
	return key, nil
}
