package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/redis/redisstore"
)

// A topView is the result of top as JSON.
type topView struct {
	At     time.Time `json:"at"`
	Top    []topKey  `json:"top"`
	Keys   int64     `json:"keys"`   // all keys in Redis, of any kind
	Looked int64     `json:"looked"` // how many of Keys were visited
	Took   seconds   `json:"took_seconds"`
}

// A topKey is a counter.
type topKey struct {
	Key        string  `json:"key,omitempty"` // empty: --names does not have it
	Digest     string  `json:"digest"`
	Rule       string  `json:"rule"`
	Tier       string  `json:"tier,omitempty"`
	InProgress bool    `json:"in_progress,omitempty"` // the limit is on requests in progress
	Used       int64   `json:"used"`
	Limit      int64   `json:"limit"`
	Share      float64 `json:"share"` // Used / Limit
	FreeIn     seconds `json:"free_in_seconds"`
}

// errInterrupted is the error of top if it was stopped before it had scanned all keys.
var errInterrupted = errors.New("stopped before it had read all keys")

func top(s *session, flags *pflag.FlagSet) action {
	server := serverFlags(flags)
	n := flags.IntP("n", "n", 20, "how many")
	rule := flags.String("rule", "", "only keys of the rule with this `name`")
	rate := flags.Int("rate", 10_000, "how many keys of a Redis are read in a second, at most")
	file := namesFlag(flags)
	own := ownKeys(flags)
	out := s.output(flags)
	return func([]string) error {
		switch {
		case *n < 1 || *n > 10_000:
			return usageError{fmt.Errorf("-n is %d: it must be from 1 to 10000", *n)}
		case *rate < 1 || *rate > 1_000_000:
			return usageError{fmt.Errorf("--rate is %d: it must be from 1 to 1000000", *rate)}
		}
		names, err := s.readNames(*file, server, *own)
		if err != nil {
			return err
		}
		client, err := server.connect()
		if err != nil {
			return err
		}
		defer client.Close()
		if err := (redisstore.Options{Prefix: server.prefix}).Validate(); err != nil {
			return usageError{err}
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		survey := &survey{
			client: client, n: *n, prefix: server.prefix, rule: *rule, every: page * time.Second / time.Duration(*rate),
			progress: func(looked, keys int64) {
				fmt.Fprintf(s.err, "looked at %s of %s keys\n", operate.Number(looked), operate.Number(keys))
			},
		}
		err = survey.run(ctx)
		isInterrupted := err != nil && ctx.Err() != nil
		if err != nil && !isInterrupted {
			return err
		}
		found, err := survey.found(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		view := topView{At: now(), Top: []topKey{}, Keys: survey.keys, Looked: survey.keys, Took: inSeconds(time.Since(survey.begun))}
		if isInterrupted {
			view.Looked = min(survey.looked, survey.keys)
		}
		for _, u := range found {
			view.Top = append(view.Top, topKey{
				Key: names.known[u.Digest], Digest: u.Digest, Rule: u.Rule, Tier: u.Tier, InProgress: u.InFlight,
				Used: u.Used, Limit: u.Limit, Share: shareOfLimit(u), FreeIn: inSeconds(u.ResetAfter),
			})
		}
		err = out.write(view, func(table io.Writer) {
			fmt.Fprintln(table, "USED\tLIMIT\tSHARE\tFREE IN\tRULE\tKEY")
			for _, u := range view.Top {
				name := ruleName(u.Rule, u.Tier)
				if u.InProgress {
					name += ", at once"
				}
				fmt.Fprintf(table, "%d\t%d\t%d%%\t%v\t%s\t%s\n", u.Used, u.Limit, int64(100*u.Share), u.FreeIn, name, cmp.Or(u.Key, u.Digest))
			}
		})
		if err == nil && isInterrupted {
			err = fmt.Errorf("%w: at %s of %s", errInterrupted, operate.Number(view.Looked), operate.Number(view.Keys))
		}
		return err
	}
}
