package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisrules"
)

// inRedis stands for the rules in Redis in place of a file name.
const inRedis = "redis"

// A difference is the result of diff as JSON.
type difference struct {
	Old     side           `json:"old"`
	New     side           `json:"new"`
	Differ  bool           `json:"differ"`
	Changes []rules.Change `json:"changes"`
}

type side struct {
	Source  string `json:"source"` // the file, or redis
	Version string `json:"version"`
}

func diff(s *session, flags *pflag.FlagSet) action {
	server := connectionFlags(flags)
	at := rulesKey(flags)
	exitCode := flags.Bool("exit-code", false, "end with 3 if the rules differ")
	out := s.output(flags)
	tiers, keys := knowing(flags)
	return func(names []string) error {
		if names[0] == "-" && names[1] == "-" {
			return usageError{errors.New("the standard input is one file")}
		}
		o := options(*tiers, *keys)
		var sides [2]*rules.Rules
		var err error
		for i, name := range names {
			if sides[i], err = s.loadFrom(name, server, *at, o); err != nil {
				return err
			}
		}
		found := difference{side{names[0], sides[0].Version()}, side{names[1], sides[1].Version()}, false, append([]rules.Change{}, rules.Diff(sides[0], sides[1])...)}
		found.Differ = len(found.Changes) > 0
		err = out.write(found, func(table io.Writer) {
			for _, c := range found.Changes {
				fmt.Fprintln(table, c)
			}
			switch {
			case found.Differ:
			case found.Old.Version == found.New.Version:
				fmt.Fprintln(table, "they are the same")
			default:
				fmt.Fprintln(table, "they are written differently but mean the same")
			}
		})
		if err == nil && found.Differ && *exitCode {
			err = exitError(exitDiffers)
		}
		return err
	}
}

// loadFrom reads a file, the standard input or the rules in Redis.
func (s *session) loadFrom(name string, server *server, key string, o rules.Options) (loaded *rules.Rules, err error) {
	if name != inRedis {
		return s.load(name, o)
	}
	err = server.with(patience, func(ctx context.Context, client redis.UniversalClient) error {
		text, err := redisrules.Read(ctx, client, key)
		if err != nil {
			return err
		}
		loaded, err = rules.Parse(text, o)
		return err
	})
	return loaded, err
}
