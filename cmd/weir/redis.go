package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisstore"
)

// patience is how long a command waits for Redis.
const patience = 5 * time.Second

// A server is the Redis of the service's counters, as flags name it.
type server struct {
	url, prefix, master, secretFile string
	cluster                         bool
}

// connectionFlags declares the flags for the address of a server.
func connectionFlags(flags *pflag.FlagSet) *server {
	var s server
	// $WEIR_REDIS is no default of the flag: --help would show it.
	flags.StringVar(&s.url, "redis", "", "`URL` of Redis, as in redis://user:password@host:6379/0; by default $WEIR_REDIS, or else redis://127.0.0.1:6379")
	flags.BoolVar(&s.cluster, "cluster", false, "the URL is of a Cluster; name more nodes as in redis://host:6379?addr=other:6379")
	flags.StringVar(&s.master, "sentinel", "", "the URL is of a Sentinel, and the master has this `name`; more Sentinels and their own credentials as in redis://user:password@host:26379/0?addr=other:26379&sentinel_username=weir&sentinel_password=word")
	return &s
}

// serverFlags declares the flags of connectionFlags, --prefix and --secret-file.
func serverFlags(flags *pflag.FlagSet) *server {
	s := connectionFlags(flags)
	flags.StringVar(&s.prefix, "prefix", "", "how the names of the service's keys in Redis begin, if it sets redisstore.Options.Prefix")
	flags.StringVar(&s.secretFile, "secret-file", "", "a `file` with the secret of the digests in Redis, if the service sets redisstore.Options.Secret; or $WEIR_SECRET")
	return s
}

// secret returns the secret of --secret-file or $WEIR_SECRET, or nothing.
func (s *server) secret() ([]byte, error) {
	secret := []byte(os.Getenv("WEIR_SECRET"))
	if s.secretFile != "" {
		text, err := os.ReadFile(s.secretFile)
		if err != nil {
			return nil, err
		}
		secret = bytes.TrimRight(text, "\r\n")
	}
	if err := keyfunc.CheckSecret("weir", secret); err != nil {
		return nil, usageError{err}
	}
	return secret, nil
}

// limits returns a limiter with the file's rules and the service's counters.
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
	config.Store = redisstore.New(client, options).Within(patience) // an outage is an error
	config.Logger = slog.New(slog.DiscardHandler)                   // weir check warns
	return middleware.New(config)
}

// with calls do with a client. It cancels do's context after the duration limit.
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
