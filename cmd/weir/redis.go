package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

// patience is how long Redis has for an answer.
const patience = 5 * time.Second

// A server is what flags say about the Redis that the service counts in.
type server struct {
	url, prefix, master, secretFile string
	cluster                         bool
}

// connectionFlags say where it is.
func connectionFlags(flags *flag.FlagSet) *server {
	var s server
	// Not with $WEIR_REDIS for its default, which --help would show.
	flags.StringVar(&s.url, "redis", "", "`URL` of Redis, as in redis://user:password@host:6379/0; without it $WEIR_REDIS, or else redis://127.0.0.1:6379")
	flags.BoolVar(&s.cluster, "cluster", false, "it is a Cluster; more nodes as in redis://host:6379?addr=other:6379")
	flags.StringVar(&s.master, "sentinel", "", "the URL is a Sentinel's, and this the `name` of the master")
	return &s
}

// serverFlags say that, and what the service calls things there.
func serverFlags(flags *flag.FlagSet) *server {
	s := connectionFlags(flags)
	flags.StringVar(&s.prefix, "prefix", "", "redisstore.Options.Prefix of the service")
	flags.StringVar(&s.secretFile, "secret-file", "", "a `file` with redisstore.Options.Secret of the service; or $WEIR_SECRET")
	return s
}

// address is the URL, and what it was given by.
func (s *server) address() (text, by string) {
	if s.url != "" {
		return s.url, "--redis"
	}
	if text = os.Getenv("WEIR_REDIS"); text != "" {
		return text, "$WEIR_REDIS"
	}
	return "redis://127.0.0.1:6379", "the default URL"
}

// errAddress tells what kind of mistake a URL of Redis has, without any of its text: that has
// a password, and what is taken for a port or a path may be a part of it.
func errAddress(text, by string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return usageError{fmt.Errorf("%s is no URL: in a user's name or a password, write / as %%2F, # as %%23, ? as %%3F, %% as %%25, @ as %%40 and so on", by)}
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return usageError{fmt.Errorf("%s is no URL of Redis: it begins with redis://, rediss:// or unix://", by)}
	}
	return usageError{fmt.Errorf("%s has a host, a database or an option that go-redis does not take: want something like redis://user:password@host:6379/0", by)}
}

// connect is a client for it.
func (s *server) connect() (redis.UniversalClient, error) {
	text, by := s.address()
	if s.cluster {
		options, err := redis.ParseClusterURL(text)
		if err != nil {
			return nil, errAddress(text, by)
		}
		options.ContextTimeoutEnabled = true
		return redis.NewClusterClient(options), nil
	}
	options, err := redis.ParseURL(text)
	if err != nil {
		return nil, errAddress(text, by)
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
	list, err := redisbans.New(ctx, client, redisbans.Options{
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
			name := ruleName(u.Rule, u.Tier)
			if u.InFlight {
				name += ", at once"
			}
			fmt.Fprintf(table, "%d\t%d\t%d%%\t%v\t%s\t%s\n", u.Used, u.Limit, percent(u.Used, u.Limit), round(u.ResetAfter), name, u.Digest)
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
	key := flags.String("key", "", "the `key`, as weir explain shows it, such as user:42, or its digest; empty: the counter that all clients share")
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
		return usageError{errors.New("name the --key; an empty one for the counter that all clients share")}
	}
	counted, err := keyOf(*key, *keys)
	if err != nil {
		return err
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
			if !seen[info.Name] && (*rule == "" || *rule == info.Name) {
				names = append(names, info.Name)
			}
			seen[info.Name] = true
		}
		if len(names) == 0 {
			return usageError{fmt.Errorf("the file has no rule named %q", *rule)}
		}
		secret, err := server.secret()
		if err != nil {
			return err
		}
		return do(ctx, limits, names, counted, keyfunc.NewDigester(secret).Digest(counted).String())
	})
}

func peek(s *session, args []string) error {
	return onKey(s, "peek", args, func(ctx context.Context, limits *middleware.RateLimit, names []string, key, digest string) error {
		if _, ok := keyfunc.DigestOf(key); ok {
			fmt.Fprintf(s.out, "the key with the digest %s\n", digest)
		} else {
			fmt.Fprintf(s.out, "key %q, in Redis %s\n", key, digest)
		}
		table := newTable(s)
		fmt.Fprintln(table, "RULE\tUSED\tLIMIT\tLEFT\tFREE IN")
		for _, name := range names {
			results, err := limits.Peek(ctx, name, key)
			if err != nil {
				return err
			}
			for _, r := range results {
				name, d := ruleName(r.Rule.Name, r.Rule.Tier), &r.Decision
				if r.IsConcurrency() && r.Limits != nil {
					d = &r.Limits[0]
				}
				if !r.IsConcurrency() || r.Limits != nil {
					fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\n", name, d.Limit-d.Remaining, d.Limit, d.Remaining, round(d.ResetAfter))
				}
				if d := &r.Concurrent; d.Limit > 0 {
					fmt.Fprintf(table, "%s, at once\t%d\t%d\t%d\t\n", name, d.Limit-d.Remaining, d.Limit, d.Remaining)
				}
			}
		}
		return table.Flush()
	})
}

func reset(s *session, args []string) error {
	return onKey(s, "reset", args, func(ctx context.Context, limits *middleware.RateLimit, names []string, key, digest string) error {
		shown := strconv.Quote(key)
		if _, ok := keyfunc.DigestOf(key); ok {
			shown = digest
		}
		for _, name := range names {
			results, err := limits.Peek(ctx, name, key)
			if err != nil {
				return err
			}
			if err := limits.Reset(ctx, name, key); err != nil {
				return err
			}
			used := slices.ContainsFunc(results, func(r middleware.RuleResult) bool { return r.Remaining < r.Limit })
			had := ""
			if !used {
				had = ", which had used nothing"
			}
			fmt.Fprintf(s.out, "%q begins anew for %s%s\n", name, shown, had)
		}
		return nil
	})
}

// keyOf is the key that an argument means, or the one that stands for a digest. Own are the
// kinds of --keys.
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

// onBans runs do on the list of bans.
func onBans(server *server, do func(ctx context.Context, list bans.List) error) error {
	return server.with(time.Minute, func(ctx context.Context, client redis.UniversalClient) error {
		list, err := server.bans(ctx, client)
		if err != nil {
			return err
		}
		return do(ctx, list)
	})
}

// onBan runs do on the list of bans and the key that a command names, or its digest. Shown is
// how that was written.
func onBan(s *session, flags *flag.FlagSet, args []string, wants string, do func(ctx context.Context, list bans.List, key, shown string) error) error {
	server := serverFlags(flags)
	keys := ownKeys(flags)
	rest, err := s.parse(flags, args)
	if err != nil {
		return err
	}
	if len(rest) != 1 || strings.TrimSpace(rest[0]) == "" {
		return usageError{errors.New("name " + wants)}
	}
	text := strings.TrimSpace(rest[0])
	key, err := keyOf(text, *keys)
	if err != nil {
		return err
	}
	shown := key
	if _, ok := keyfunc.DigestOf(key); ok {
		shown = text
	}
	return onBans(server, func(ctx context.Context, list bans.List) error { return do(ctx, list, key, shown) })
}

func ban(s *session, args []string) error {
	flags := flag.NewFlagSet("ban", flag.ContinueOnError)
	var length time.Duration // 0: permanent
	flags.Func("for", "how `long`, such as 1h or 30d; without it permanently, until it is lifted", func(text string) (err error) {
		length, err = limiter.ParsePeriod(text) // which takes no empty text, as of a variable that is not set
		return err
	})
	const wants = "the key to ban, as weir explain shows it, such as user:42, or its digest"
	return onBan(s, flags, args, wants, func(ctx context.Context, list bans.List, key, shown string) error {
		if err := list.Ban(ctx, key, length); err != nil {
			return err
		}
		if length == 0 {
			fmt.Fprintf(s.out, "%s is banned permanently, until the ban is lifted\n", shown)
		} else {
			fmt.Fprintf(s.out, "%s is banned for %v\n", shown, length)
		}
		return nil
	})
}

// errNotBanned is what unban ends with where there was nothing to lift.
var errNotBanned = errors.New("it was not banned; what led to earlier bans is forgotten")

func unban(s *session, args []string) error {
	flags := flag.NewFlagSet("unban", flag.ContinueOnError)
	const wants = "the key, or its digest as weir bans shows it"
	return onBan(s, flags, args, wants, func(ctx context.Context, list bans.List, _, shown string) error {
		lifted, err := list.Unban(ctx, shown) // a digest as it is written, as it may also be a key
		if err != nil {
			return err
		}
		if !lifted {
			return errNotBanned
		}
		fmt.Fprintf(s.out, "%s: the ban is lifted\n", shown)
		return nil
	})
}

// A listedBan is a ban as JSON.
type listedBan struct {
	bans.Ban
	Permanent bool `json:"permanent"` // there is no "until"
}

func listBans(s *session, args []string) error {
	flags := flag.NewFlagSet("bans", flag.ContinueOnError)
	server := serverFlags(flags)
	asJSON := flags.Bool("json", false, "write JSON")
	rest, err := s.parse(flags, args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError{errors.New("it takes flags only")}
	}
	return onBans(server, func(ctx context.Context, list bans.List) error {
		all, err := list.All(ctx)
		if err != nil {
			return err
		}
		if *asJSON {
			listed := []listedBan{}
			for _, b := range all {
				listed = append(listed, listedBan{b, b.Until.IsZero()})
			}
			return writeJSON(s.out, listed)
		}
		table := newTable(s)
		fmt.Fprintln(table, "UNTIL\tTIMES\tBY\tKEY")
		for _, b := range all {
			until, by := "permanent", "hand"
			if !b.Until.IsZero() {
				until = b.Until.Format(time.RFC3339)
			}
			if b.Rule != "" {
				by = strconv.Quote(b.Rule)
			}
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", until, b.Times, by, b.ID())
		}
		return table.Flush()
	})
}
