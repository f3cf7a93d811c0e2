package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/redisbans"
)

// onBans calls do with the list of bans that the service's processes share.
func onBans(server *server, do func(ctx context.Context, list bans.List) error) error {
	secret, err := server.secret()
	if err != nil {
		return err
	}
	return server.with(time.Minute, func(ctx context.Context, client redis.UniversalClient) error {
		list, err := redisbans.New(ctx, client, redisbans.Options{
			Prefix: server.prefix, Secret: secret, Logger: slog.New(slog.DiscardHandler), // errors are returned
		})
		if err != nil {
			return usageError{err}
		}
		return do(ctx, list)
	})
}

// A banCommand is a run of ban or unban.
type banCommand struct {
	*output
	list  bans.List
	key   string // as package bans takes it
	text  string // the key, or a digest as written
	keyed keyed
}

// onBan calls do with the list of bans and the key or digest of the arguments.
func onBan(flags *pflag.FlagSet, s *session, do func(ctx context.Context, c *banCommand) error) action {
	server := serverFlags(flags)
	keys := ownKeys(flags)
	out := s.output(flags)
	return func(rest []string) error {
		if strings.TrimSpace(rest[0]) == "" {
			return usageError{errors.New("the key is empty")}
		}
		text := strings.TrimSpace(rest[0])
		key, err := keyOf(text, *keys)
		if err != nil {
			return err
		}
		digests, err := s.readNames("", server, *keys)
		if err != nil {
			return err
		}
		c := &banCommand{output: out, key: key, text: key, keyed: digests.keyed(key)}
		if _, ok := keyfunc.DigestOf(key); ok {
			c.text = text
		}
		return onBans(server, func(ctx context.Context, list bans.List) error {
			c.list = list
			return do(ctx, c)
		})
	}
}

// A listedBan is a ban as JSON.
type listedBan struct {
	Key       string    `json:"key,omitempty"` // empty: only Digest is known
	Digest    string    `json:"digest"`
	Rule      string    `json:"rule,omitempty"` // the rule that banned the key; empty: banned by hand
	Until     time.Time `json:"until,omitzero"` // zero: permanent
	Permanent bool      `json:"permanent"`
	Times     int       `json:"times"` // bans by a rule in a row, including this one
	Since     time.Time `json:"since,omitzero"`
	Reason    string    `json:"reason,omitempty"` // of a ban by hand
	By        string    `json:"by,omitempty"`     // the operator who banned by hand
}

func ban(s *session, flags *pflag.FlagSet) action {
	length := time.Hour // 0: permanent
	flags.Func("for", "how `long`, such as 30d, or permanent; by default an hour", func(text string) (err error) {
		if text == "permanent" {
			length = 0
			return nil
		}
		length, err = limiter.ParsePeriod(text) // it refuses "", the text of an unset variable
		return err
	})
	reason := flags.String("reason", "", "the `reason`, which the list of bans shows")
	by := flags.String("by", "", "your `name`, which the list of bans shows")
	counted := flags.Bool("counted", false, "the key is a network that rules count as one key, as key: ip/24/48 or proxies.ipv6_prefix: 56 says; ban.cidrs bans any other network")
	return onBan(flags, s, func(ctx context.Context, c *banCommand) error {
		if operate.IsNetwork(c.key) && !*counted {
			return usageError{errNetworkBan}
		}
		notes := []bans.Note{bans.Reason(*reason), bans.By(*by)}
		if _, err := bans.Noted(notes...); err != nil {
			return usageError{err}
		}
		if err := c.list.Ban(ctx, c.key, length, notes...); err != nil {
			return err
		}
		b := listedBan{Key: c.keyed.Key, Digest: c.keyed.Digest, Permanent: length == 0, Since: now(), Reason: *reason, By: *by}
		how := "permanently, until the ban is lifted"
		if length > 0 {
			b.Until, how = now().Add(length), fmt.Sprintf("for %v", length)
		}
		if note := operate.BanNote(c.key); note != "" && !*counted {
			fmt.Fprintln(s.err, "note:", note)
		}
		return c.write(b, func(table io.Writer) { fmt.Fprintf(table, "%s is banned %s\n", c.keyed.shown(), how) })
	})
}

// errNetworkBan is the error of ban for a network. A list of bans has keys, and a request's keys do not include
// every network around its address.
var errNetworkBan = errors.New("the key is a network: to ban every address in it, list it in ban.cidrs of the rules file; if rules count such a network as one key (key: ip/24/48, or proxies.ipv6_prefix), give --counted")

// errNotBanned is the error of unban if no ban was in force.
var errNotBanned = errors.New("it was not banned; what led to earlier bans is forgotten")

// An unbanned is the result of unban as JSON.
type unbanned struct {
	keyed
	Lifted bool `json:"lifted"`
}

func unban(s *session, flags *pflag.FlagSet) action {
	return onBan(flags, s, func(ctx context.Context, c *banCommand) error {
		lifted, err := c.list.Unban(ctx, c.text) // as written: a digest's text may also be a key
		if err != nil {
			return err
		}
		err = c.write(unbanned{c.keyed, lifted}, func(table io.Writer) {
			if lifted {
				fmt.Fprintf(table, "%s: the ban is lifted\n", c.keyed.shown())
			}
		})
		if err == nil && !lifted {
			err = errNotBanned
		}
		return err
	})
}

func listBans(s *session, flags *pflag.FlagSet) action {
	server := serverFlags(flags)
	file := namesFlag(flags)
	own := ownKeys(flags)
	out := s.output(flags)
	return func([]string) error {
		names, err := s.readNames(*file, server, *own)
		if err != nil {
			return err
		}
		return onBans(server, func(ctx context.Context, list bans.List) error {
			all, err := list.All(ctx)
			if err != nil {
				return err
			}
			listed := []listedBan{}
			for _, b := range all {
				listed = append(listed, listedBan{
					Key: names.known[b.Digest], Digest: b.Digest, Rule: b.Rule, Until: inUTC(b.Until), Permanent: b.Until.IsZero(),
					Times: b.Times, Since: inUTC(b.Since), Reason: b.Reason, By: b.By,
				})
			}
			return out.write(listed, func(table io.Writer) {
				fmt.Fprintln(table, "SINCE\tUNTIL\tTIMES\tBY\tKEY\tREASON")
				for _, b := range listed {
					since, until, by := "", "permanent", cmp.Or(b.By, "hand")
					if !b.Since.IsZero() {
						since = b.Since.Local().Format(time.RFC3339)
					}
					if !b.Permanent {
						until = b.Until.Local().Format(time.RFC3339)
					}
					if b.Rule != "" {
						by = strconv.Quote(b.Rule)
					}
					fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\n", since, until, b.Times, by, cmp.Or(b.Key, b.Digest), b.Reason)
				}
			})
		})
	}
}
