package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

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
func connectionFlags(flags *pflag.FlagSet) *server {
	var s server
	// Not with $WEIR_REDIS for its default, which --help would show.
	flags.StringVar(&s.url, "redis", "", "`URL` of Redis, as in redis://user:password@host:6379/0; without it $WEIR_REDIS, or else redis://127.0.0.1:6379")
	flags.BoolVar(&s.cluster, "cluster", false, "it is a Cluster; more nodes as in redis://host:6379?addr=other:6379")
	flags.StringVar(&s.master, "sentinel", "", "the URL is a Sentinel's, and this the `name` of the master")
	return &s
}

// serverFlags say that, and what the service calls things there.
func serverFlags(flags *pflag.FlagSet) *server {
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
	case !strings.Contains(text, "://"):
		return usageError{fmt.Errorf("%s is no URL: want redis://host:port, such as redis://127.0.0.1:6379", by)}
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
	config.Logger = slog.New(slog.DiscardHandler)                   // check warns
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

func ruleName(rule, tier string) string {
	name := strconv.Quote(rule)
	if tier != "" {
		name += ", tier " + strconv.Quote(tier)
	}
	return name
}

// A keyed is the key that peek, reset, ban and unban are about, as JSON.
type keyed struct {
	Key    string `json:"key,omitempty"` // where it is known
	Digest string `json:"digest"`
}

// shown is the key, or else its digest.
func (k *keyed) shown() string { return cmp.Or(k.Key, k.Digest) }

// A keyCommand is peek or reset on a key under the rules of a file.
type keyCommand struct {
	limits *middleware.RateLimit
	rules  []string
	key    string // for package middleware
	keyed  keyed
	asJSON bool
}

// onKey runs do for the rules of a file that flags name, on the key that they name.
func onKey(flags *pflag.FlagSet, s *session, do func(ctx context.Context, c *keyCommand) error) action {
	server := serverFlags(flags)
	rule := flags.String("rule", "", "only this rule, by its `name`; all rules without it")
	key := flags.String("key", "", "the `key`, as weir explain shows it, such as user:42, or its digest; empty: the counter that all clients share")
	at := rulesKey(flags)
	file := namesFlag(flags)
	asJSON := flags.Bool("json", false, "write JSON")
	tiers, keys := knowing(flags)
	return func(files []string) error {
		if len(files) != 1 {
			return usageError{errors.New("name the file of rules, redis for the rules there, or - for the standard input")}
		}
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
			c := &keyCommand{limits: limits, key: counted, asJSON: *asJSON}
			seen := map[string]bool{}
			for _, info := range limits.Rules() {
				if info.Deny && *rule == info.Name {
					return usageError{fmt.Errorf("the rule %q denies every request, and counts none", *rule)}
				}
				if !info.Deny && !seen[info.Name] && (*rule == "" || *rule == info.Name) {
					c.rules = append(c.rules, info.Name)
				}
				seen[info.Name] = true
			}
			if len(c.rules) == 0 {
				if *rule == "" {
					return usageError{errors.New("the file has no rule that counts")}
				}
				return usageError{fmt.Errorf("the file has no rule named %q", *rule)}
			}
			if c.keyed, err = server.keyed(counted, known); err != nil {
				return err
			}
			return do(ctx, c)
		})
	}
}

// keyed is a key, or the one that stands for a digest, as JSON.
func (s *server) keyed(key string, known names) (keyed, error) {
	secret, err := s.secret()
	if err != nil {
		return keyed{}, err
	}
	digest := keyfunc.NewDigester(secret).Digest(key).String()
	if _, isDigest := keyfunc.DigestOf(key); isDigest {
		key = known[digest]
	}
	return keyed{key, digest}, nil
}

// A peeked is what a key has left, as JSON.
type peeked struct {
	keyed
	Rules []peekedRule `json:"rules"`
}

type peekedRule struct {
	Rule       string  `json:"rule"`
	Tier       string  `json:"tier,omitempty"`
	InProgress bool    `json:"in_progress,omitempty"` // what counts is in progress
	Used       int64   `json:"used"`
	Limit      int64   `json:"limit"`
	Left       int64   `json:"left"`
	FreeIn     seconds `json:"free_in_seconds,omitempty"` // when all of it is free again; unknown of what is in progress
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
		if c.asJSON {
			return writeJSON(s.out, found)
		}
		if _, isDigest := keyfunc.DigestOf(c.key); isDigest && found.Key == "" {
			fmt.Fprintf(s.out, "the key with the digest %s\n", found.Digest)
		} else {
			fmt.Fprintf(s.out, "key %q, in Redis %s\n", found.Key, found.Digest)
		}
		table := newTable(s)
		fmt.Fprintln(table, "RULE\tUSED\tLIMIT\tLEFT\tFREE IN")
		for _, r := range found.Rules {
			name, freeIn := ruleName(r.Rule, r.Tier), r.FreeIn.short().String()
			if r.InProgress {
				name, freeIn = name+", at once", ""
			}
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\n", name, r.Used, r.Limit, r.Left, freeIn)
		}
		return table.Flush()
	})
}

// A resetKey is what reset did, as JSON.
type resetKey struct {
	keyed
	Rules []resetRule `json:"rules"`
}

type resetRule struct {
	Rule    string `json:"rule"`
	HadUsed bool   `json:"had_used"` // something of the limit
}

func reset(s *session, flags *pflag.FlagSet) action {
	return onKey(flags, s, func(ctx context.Context, c *keyCommand) error {
		done := resetKey{c.keyed, []resetRule{}}
		shown := done.Digest
		if done.Key != "" || c.key == "" {
			shown = strconv.Quote(done.Key)
		}
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
			if c.asJSON {
				continue
			}
			had := ""
			if !used {
				had = ", which had used nothing"
			}
			fmt.Fprintf(s.out, "%q begins anew for %s%s\n", name, shown, had)
		}
		if c.asJSON {
			return writeJSON(s.out, done)
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

// A banCommand is ban or unban on a key.
type banCommand struct {
	list   bans.List
	key    string // for package bans
	text   string // as it was written, of a digest
	keyed  keyed
	asJSON bool
}

// onBan runs do on the list of bans and the key that a command names, or its digest.
func onBan(flags *pflag.FlagSet, wants string, do func(ctx context.Context, c *banCommand) error) action {
	server := serverFlags(flags)
	keys := ownKeys(flags)
	asJSON := flags.Bool("json", false, "write JSON")
	return func(rest []string) error {
		if len(rest) != 1 || strings.TrimSpace(rest[0]) == "" {
			return usageError{errors.New("name " + wants)}
		}
		text := strings.TrimSpace(rest[0])
		key, err := keyOf(text, *keys)
		if err != nil {
			return err
		}
		c := &banCommand{key: key, text: key, asJSON: *asJSON}
		if _, ok := keyfunc.DigestOf(key); ok {
			c.text = text
		}
		if c.keyed, err = server.keyed(key, nil); err != nil {
			return err
		}
		return onBans(server, func(ctx context.Context, list bans.List) error {
			c.list = list
			return do(ctx, c)
		})
	}
}

// A listedBan is a ban as JSON.
type listedBan struct {
	Key       string    `json:"key,omitempty"` // where it is known
	Digest    string    `json:"digest"`
	Rule      string    `json:"rule,omitempty"` // that the key was refused by; none: it was banned by hand
	Until     time.Time `json:"until,omitzero"` // none: it is permanent
	Permanent bool      `json:"permanent"`
	Times     int       `json:"times"` // bans by a rule in a row, with this one
	Since     time.Time `json:"since,omitzero"`
	Reason    string    `json:"reason,omitempty"` // of a ban by hand, as its next
	By        string    `json:"by,omitempty"`     // the operator
}

func ban(s *session, flags *pflag.FlagSet) action {
	length := time.Hour // 0: permanent
	flags.Func("for", "how `long`, such as 30d, or permanent; without it an hour", func(text string) (err error) {
		if text == "permanent" {
			length = 0
			return nil
		}
		length, err = limiter.ParsePeriod(text) // which takes no empty text, as of a variable that is not set
		return err
	})
	reason := flags.String("reason", "", "`why`, which the list of bans shows as it stands")
	by := flags.String("by", "", "your `name`, for them")
	const wants = "the key to ban, as weir explain shows it, such as user:42, or its digest"
	return onBan(flags, wants, func(ctx context.Context, c *banCommand) error {
		notes := []bans.Note{bans.Reason(*reason), bans.By(*by)}
		if _, err := bans.Noted(notes...); err != nil {
			return usageError{err}
		}
		if err := c.list.Ban(ctx, c.key, length, notes...); err != nil {
			return err
		}
		switch {
		case c.asJSON:
			b := listedBan{Key: c.keyed.Key, Digest: c.keyed.Digest, Permanent: length == 0, Since: now(), Reason: *reason, By: *by}
			if length > 0 {
				b.Until = now().Add(length)
			}
			return writeJSON(s.out, b)
		case length == 0:
			fmt.Fprintf(s.out, "%s is banned permanently, until the ban is lifted\n", c.keyed.shown())
		default:
			fmt.Fprintf(s.out, "%s is banned for %v\n", c.keyed.shown(), length)
		}
		return nil
	})
}

// errNotBanned is what unban ends with where there was nothing to lift.
var errNotBanned = errors.New("it was not banned; what led to earlier bans is forgotten")

// An unbanned is what unban did, as JSON.
type unbanned struct {
	keyed
	Lifted bool `json:"lifted"`
}

func unban(s *session, flags *pflag.FlagSet) action {
	const wants = "the key, or its digest as weir bans shows it"
	return onBan(flags, wants, func(ctx context.Context, c *banCommand) error {
		lifted, err := c.list.Unban(ctx, c.text) // a digest as it is written, as it may also be a key
		if err != nil {
			return err
		}
		if c.asJSON {
			if err := writeJSON(s.out, unbanned{c.keyed, lifted}); err != nil {
				return err
			}
		}
		if !lifted {
			return errNotBanned
		}
		if !c.asJSON {
			fmt.Fprintf(s.out, "%s: the ban is lifted\n", c.keyed.shown())
		}
		return nil
	})
}

func listBans(s *session, flags *pflag.FlagSet) action {
	server := serverFlags(flags)
	file := namesFlag(flags)
	own := ownKeys(flags)
	asJSON := flags.Bool("json", false, "write JSON")
	return func([]string) error {
		known, err := s.readNames(*file, server, *own)
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
					Key: known[b.Digest], Digest: b.Digest, Rule: b.Rule, Until: inUTC(b.Until), Permanent: b.Until.IsZero(),
					Times: b.Times, Since: inUTC(b.Since), Reason: b.Reason, By: b.By,
				})
			}
			if *asJSON {
				return writeJSON(s.out, listed)
			}
			table := newTable(s)
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
			return table.Flush()
		})
	}
}
