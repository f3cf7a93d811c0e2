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

// rulesKey declares the flag for the key of rules in Redis.
func rulesKey(flags *pflag.FlagSet) *string {
	return flags.String("rules-key", "limits", "the `key` in Redis that holds the rules, as for redisrules.Watch")
}

// A published is the result of publish as JSON.
type published struct {
	Key      string          `json:"key"`
	Version  string          `json:"version"`
	Warnings []rules.Problem `json:"warnings"`
}

func publish(s *session, flags *pflag.FlagSet) action {
	server := connectionFlags(flags)
	at := rulesKey(flags)
	var only *string // the version that must be in Redis; nil: any
	flags.Func("if-version", "only if the rules in Redis have this `version`, as weir rules prints it; none: only if there are none", func(text string) error {
		if text == "" { // the text of an unset variable
			return errors.New("want a version, or none")
		}
		if text == "none" {
			text = ""
		}
		only = &text
		return nil
	})
	strict := flags.Bool("strict", false, "refuse a file with warnings too")
	out := s.output(flags)
	tiers, keys := knowing(flags)
	return func(files []string) error {
		o := options(*tiers, *keys)
		text, loaded, err := s.parse(files[0], o)
		if err != nil {
			return err
		}
		report := report{File: files[0], Good: true, Warnings: loaded.Warnings()}
		inFile(report.Warnings, files[0])
		if !*out.asJSON || *strict {
			report.writeProblems(s.err)
		}
		if *strict && len(report.Warnings) > 0 {
			return errors.New("the file has warnings: it is not published")
		}
		return server.with(patience, func(ctx context.Context, client redis.UniversalClient) error {
			if only == nil {
				// If the value is of another type, the flag names the wrong key.
				if _, err := redisrules.Read(ctx, client, *at); err != nil && !errors.Is(err, redisrules.ErrNone) {
					return err
				}
				err = redisrules.Publish(ctx, client, *at, text, o)
			} else {
				err = redisrules.PublishIf(ctx, client, *at, *only, text, o)
			}
			if err != nil {
				return err
			}
			said := published{*at, loaded.Version(), append([]rules.Problem{}, report.Warnings...)}
			return out.write(said, func(table io.Writer) { fmt.Fprintf(table, "%s is version %s from now on\n", *at, said.Version) })
		})
	}
}
