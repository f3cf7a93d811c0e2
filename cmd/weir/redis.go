package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/bans"
	"github.com/weirgo/weir/limiter/redisstore"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// patience is how long Redis has for an answer.
const patience = 5 * time.Second

// A server is what flags say about the Redis that the service counts in.
type server struct {
	url, prefix, master, secretFile string
	cluster                         bool
}

func serverFlags(flags *flag.FlagSet) *server {
	var s server
	fallback := os.Getenv("WEIR_REDIS")
	if fallback == "" {
		fallback = "redis://127.0.0.1:6379"
	}
	flags.StringVar(&s.url, "redis", fallback, "`URL` of Redis, as in redis://user:password@host:6379/0; or $WEIR_REDIS")
	flags.BoolVar(&s.cluster, "cluster", false, "it is a Cluster; more nodes as in redis://host:6379?addr=other:6379")
	flags.StringVar(&s.master, "sentinel", "", "the URL is a Sentinel's, and this the `name` of the master")
	flags.StringVar(&s.prefix, "prefix", "", "redisstore.Options.Prefix of the service")
	flags.StringVar(&s.secretFile, "secret-file", "", "a `file` with redisstore.Options.Secret of the service; or $WEIR_SECRET")
	return &s
}

// connect is a client for it.
func (s *server) connect() (redis.UniversalClient, error) {
	if s.cluster {
		options, err := redis.ParseClusterURL(s.url)
		if err != nil {
			return nil, usageError{fmt.Errorf("--redis: %w", err)}
		}
		options.ContextTimeoutEnabled = true
		return redis.NewClusterClient(options), nil
	}
	options, err := redis.ParseURL(s.url)
	if err != nil {
		return nil, usageError{fmt.Errorf("--redis: %w", err)}
	}
	if s.master != "" {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: s.master, SentinelAddrs: []string{options.Addr},
			Username: options.Username, Password: options.Password, DB: options.DB,
			TLSConfig: options.TLSConfig, ContextTimeoutEnabled: true,
		}), nil
	}
	options.ContextTimeoutEnabled = true
	return redis.NewClient(options), nil
}

func (s *server) secret() ([]byte, error) {
	if s.secretFile == "" {
		return []byte(os.Getenv("WEIR_SECRET")), nil
	}
	secret, err := os.ReadFile(s.secretFile)
	return []byte(strings.TrimRight(string(secret), "\r\n")), err
}

// bans is the list that the service's processes share.
func (s *server) bans(ctx context.Context, client redis.UniversalClient) (bans.List, error) {
	secret, err := s.secret()
	if err != nil {
		return nil, err
	}
	list, err := redisstore.NewBans(ctx, client, redisstore.BansOptions{
		Prefix: s.prefix, Secret: secret, Logger: slog.New(slog.DiscardHandler), // errors are returned
	})
	if err != nil {
		return nil, usageError{err}
	}
	return list, nil
}

// limits is a limiter of the file's rules on the service's counters.
func (s *server) limits(client redis.UniversalClient, loaded *rules.Rules) (*middleware.RateLimit, error) {
	secret, err := s.secret()
	if err != nil {
		return nil, err
	}
	options := redisstore.Options{Prefix: s.prefix, Secret: secret, ForgetRefusals: true}
	if err := options.Validate(); err != nil {
		return nil, usageError{err}
	}
	config := loaded.Config()
	config.Store = redisstore.New(client, options).Within(patience) // what Redis says, or nothing
	return middleware.New(config)
}

// with runs do with a client, and for no longer than it is worth waiting for.
func (s *server) with(limit time.Duration, do func(ctx context.Context, client redis.UniversalClient) error) error {
	client, err := s.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return do(ctx, client)
}

func top(s *session, args []string) error {
	flags := flag.NewFlagSet("top", flag.ContinueOnError)
	server := serverFlags(flags)
	n := flags.Int("n", 20, "how many")
	rule := flags.String("rule", "", "only of the rule with this `name`")
	asJSON := flags.Bool("json", false, "write JSON")
	rest, err := s.parse(flags, args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError{errors.New("it takes flags only")}
	}
	return server.with(5*time.Minute, func(ctx context.Context, client redis.UniversalClient) error {
		list, all, err := redisstore.Top(ctx, client, *n, redisstore.TopOptions{Prefix: server.prefix, Rule: *rule})
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(s.out, list)
		}
		table := newTable(s)
		fmt.Fprintln(table, "USED\tLIMIT\tSHARE\tFREE IN\tRULE\tKEY")
		for _, u := range list {
			fmt.Fprintf(table, "%d\t%d\t%d%%\t%v\t%s\t%s\n", u.Used, u.Limit, percent(u.Used, u.Limit), round(u.ResetAfter), ruleName(u.Rule, u.Tier), u.Digest)
		}
		if !all {
			fmt.Fprintln(s.err, "weir top: there are more keys in this Redis than were looked at")
		}
		return table.Flush()
	})
}

func percent(part, whole int64) int64 { return int64(100 * float64(part) / float64(whole)) }

func ruleName(rule, tier string) string {
	name := strconv.Quote(rule)
	if tier != "" {
		name += ", tier " + strconv.Quote(tier)
	}
	return name
}

func round(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

func newTable(s *session) *tabwriter.Writer { return tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0) }

// onKey runs do for the rules of a file that flags name, on the key that they name.
func onKey(s *session, name string, args []string, do func(ctx context.Context, limits *middleware.RateLimit, rules []string, key, digest string) error) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	server := serverFlags(flags)
	rule := flags.String("rule", "", "only this rule, by its `name`; all rules without it")
	key := flags.String("key", "", "the `key`, as weir explain shows it, such as user:42; empty: the counter of everybody")
	tiers, keys := knowing(flags)
	files, err := s.parse(flags, args)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return usageError{errors.New("name the file of rules, or - for the standard input")}
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "key" })
	if !given {
		return usageError{errors.New("name the --key; an empty one for the counter that everybody shares")}
	}
	counted, err := operate.Key(*key)
	if err != nil {
		return usageError{err}
	}
	if redisstore.IsDigest(counted) {
		return usageError{errors.New("this is a digest, from which the key cannot be told: peek prints the digest of a key, to compare")}
	}
	loaded, err := s.load(files[0], options(*tiers, *keys))
	if err != nil {
		return err
	}
	return server.with(time.Minute, func(ctx context.Context, client redis.UniversalClient) error {
		limits, err := server.limits(client, loaded)
		if err != nil {
			return err
		}
		var names []string
		seen := map[string]bool{}
		for _, info := range limits.Rules() {
			if !seen[info.Rule] && (*rule == "" || *rule == info.Rule) {
				names = append(names, info.Rule)
			}
			seen[info.Rule] = true
		}
		if len(names) == 0 {
			return usageError{fmt.Errorf("the file has no rule named %q", *rule)}
		}
		secret, err := server.secret()
		if err != nil {
			return err
		}
		return do(ctx, limits, names, counted, redisstore.Digest(counted, secret))
	})
}

func peek(s *session, args []string) error {
	return onKey(s, "peek", args, func(ctx context.Context, limits *middleware.RateLimit, names []string, key, digest string) error {
		fmt.Fprintf(s.out, "key %q, in Redis %s\n", key, digest)
		table := newTable(s)
		fmt.Fprintln(table, "RULE\tUSED\tLIMIT\tLEFT\tFREE IN")
		for _, name := range names {
			results, err := limits.Peek(ctx, name, key)
			if err != nil {
				return err
			}
			for _, r := range results {
				fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\n", ruleName(r.Rule, r.Tier), r.Limit-r.Remaining, r.Limit, r.Remaining, round(r.ResetAfter))
			}
		}
		return table.Flush()
	})
}

func reset(s *session, args []string) error {
	return onKey(s, "reset", args, func(ctx context.Context, limits *middleware.RateLimit, names []string, key, _ string) error {
		for _, name := range names {
			if err := limits.Reset(ctx, name, key); err != nil {
				return err
			}
			fmt.Fprintf(s.out, "%q begins anew for %q\n", name, key)
		}
		return nil
	})
}

// onBans runs do on the list of bans, with the one argument that it needs.
func onBans(s *session, flags *flag.FlagSet, args []string, wants string, do func(ctx context.Context, list bans.List, arg string) error) error {
	server := serverFlags(flags)
	rest, err := s.parse(flags, args)
	if err != nil {
		return err
	}
	arg := ""
	switch {
	case wants == "" && len(rest) > 0:
		return usageError{errors.New("it takes flags only")}
	case wants != "" && (len(rest) != 1 || rest[0] == ""):
		return usageError{errors.New("name " + wants)}
	case wants != "":
		if arg, err = operate.Key(rest[0]); err != nil {
			return usageError{err}
		}
	}
	return server.with(time.Minute, func(ctx context.Context, client redis.UniversalClient) error {
		list, err := server.bans(ctx, client)
		if err != nil {
			return err
		}
		return do(ctx, list, arg)
	})
}

func ban(s *session, args []string) error {
	flags := flag.NewFlagSet("ban", flag.ContinueOnError)
	period := flags.String("for", "", "how long, such as 1h or 30d; without it, until it is lifted")
	return onBans(s, flags, args, "the key to ban, as weir explain shows it, such as user:42", func(ctx context.Context, list bans.List, key string) error {
		var d time.Duration
		if *period != "" {
			var err error
			if d, err = limiter.ParsePeriod(*period); err != nil {
				return usageError{fmt.Errorf("--for: %w", err)}
			}
		}
		if redisstore.IsDigest(key) {
			return usageError{errors.New("this is a digest, from which the key cannot be told: name the key")}
		}
		if err := list.Ban(ctx, key, d); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s is banned\n", key)
		return nil
	})
}

func unban(s *session, args []string) error {
	return onBans(s, flag.NewFlagSet("unban", flag.ContinueOnError), args, "the key, or its digest as weir bans shows it", func(ctx context.Context, list bans.List, key string) error {
		if err := list.Unban(ctx, key); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s is not banned\n", key)
		return nil
	})
}

func listBans(s *session, args []string) error {
	flags := flag.NewFlagSet("bans", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "write JSON")
	return onBans(s, flags, args, "", func(ctx context.Context, list bans.List, _ string) error {
		all, err := list.All(ctx)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(s.out, all)
		}
		table := newTable(s)
		fmt.Fprintln(table, "UNTIL\tTIMES\tBY\tKEY")
		for _, b := range all {
			until, by := "it is lifted", "hand"
			if !b.Until.IsZero() {
				until = b.Until.Format(time.RFC3339)
			}
			if b.Rule != "" {
				by = strconv.Quote(b.Rule)
			}
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", until, b.Times, by, b.Key)
		}
		return table.Flush()
	})
}
