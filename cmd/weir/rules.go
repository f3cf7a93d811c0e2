package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisrules"
)

// A ruleset is the rules in Redis, as JSON.
type ruleset struct {
	Key     string `json:"key"`
	Version string `json:"version"`
	Text    string `json:"text"`
}

func inForce(s *session, flags *pflag.FlagSet) action {
	server := connectionFlags(flags)
	at := rulesKey(flags)
	out := s.output(flags)
	return func([]string) error {
		return server.with(patience, func(ctx context.Context, client redis.UniversalClient) error {
			text, err := redisrules.Read(ctx, client, *at)
			if err != nil {
				return err
			}
			found := ruleset{*at, rules.VersionOf(text), string(text)}
			if *out.asJSON {
				return out.write(found, nil)
			}
			fmt.Fprintf(s.err, "%s, version %s\n", found.Key, found.Version)
			_, err = s.out.Write(text) // not as a table
			return err
		})
	}
}
