package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisrules"
)

// A ruleset is the rules in force, as JSON.
type ruleset struct {
	Source  string        `json:"source"` // redis
	Key     string        `json:"key,omitempty"`
	Version string        `json:"version,omitempty"`
	Rules   []ruleInForce `json:"rules"`
}

type ruleInForce struct {
	Rule     string `json:"rule"`
	Tier     string `json:"tier,omitempty"`
	Limit    string `json:"limit"`
	For      string `json:"for,omitempty"` // a route, or a tier
	OnOutage string `json:"on_outage,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"`
	Deny     bool   `json:"deny,omitempty"`
}

func inForce(s *session, flags *pflag.FlagSet) action {
	server := connectionFlags(flags)
	at := rulesKey(flags)
	asText := flags.Bool("text", false, "write the text in Redis as it stands")
	asJSON := flags.Bool("json", false, "write JSON")
	tiers, keys := knowing(flags)
	return func([]string) error {
		return server.with(patience, func(ctx context.Context, client redis.UniversalClient) error {
			text, err := redisrules.Read(ctx, client, *at)
			if err != nil {
				return err
			}
			if *asText {
				_, err := s.out.Write(text)
				return err
			}
			found, err := rulesOf(*at, text, options(*tiers, *keys))
			switch {
			case err != nil:
				return err
			case *asJSON:
				return writeJSON(s.out, found)
			}
			return found.write(s)
		})
	}
}

// rulesOf are those of a text in Redis.
func rulesOf(key string, text []byte, o rules.Options) (ruleset, error) {
	found := ruleset{Source: "redis", Key: key, Version: rules.VersionOf(text), Rules: []ruleInForce{}}
	loaded, err := rules.Parse(text, o)
	if err != nil {
		return found, fmt.Errorf("the rules in Redis, version %s, have problems, so that services keep the ones that they had:\n%w", found.Version, err)
	}
	config := loaded.Config()
	if config.Store, err = limiter.NewMemory(limiter.MemoryOptions{}); err != nil { // which is not asked
		return found, err
	}
	config.Logger = slog.New(slog.DiscardHandler) // check warns
	limits, err := middleware.New(config)
	if err != nil {
		return found, err
	}
	for _, info := range limits.Rules() {
		r := ruleInForce{Rule: info.Name, Tier: info.Tier, Limit: info.LimitText(), For: info.Route, OnOutage: info.OnOutage.String(), Shadow: info.Shadow, Deny: info.Deny}
		if info.ForTier != "" {
			r.For = "tier " + info.ForTier
		}
		found.Rules = append(found.Rules, r)
	}
	return found, nil
}

func (r *ruleset) write(s *session) error {
	fmt.Fprintf(s.out, "%s, version %s\n", r.Key, r.Version)
	table := newTable(s)
	fmt.Fprintln(table, "RULE\tLIMIT\tFOR\tIN AN OUTAGE\tMODE")
	for _, rule := range r.Rules {
		mode := "enforce"
		switch {
		case rule.Deny:
			mode = "deny"
		case rule.Shadow:
			mode = "shadow"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", ruleName(rule.Rule, rule.Tier), rule.Limit, cmp.Or(rule.For, "all"), rule.OnOutage, mode)
	}
	return table.Flush()
}
