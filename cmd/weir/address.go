package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Options in the URL of a Sentinel, beside those of [redis.ParseURL].
const (
	otherSentinel    = "addr"
	sentinelUsername = "sentinel_username"
	sentinelPassword = "sentinel_password"
)

// address returns the URL, and the flag or variable that set it.
func (s *server) address() (text, by string) {
	if s.url != "" {
		return s.url, "--redis"
	}
	if text = os.Getenv("WEIR_REDIS"); text != "" {
		return text, "$WEIR_REDIS"
	}
	return "redis://127.0.0.1:6379", "the default URL"
}

var errEncoding = errors.New("is not a URL: in a user's name or a password, write / as %2F, # as %23, ? as %3F, % as %25, @ as %40 and so on")

// parse parses a URL of Redis. Its error never quotes the URL: even what looks like a port or a path may be
// a part of the password. Only options are named, if no @ follows them.
func (s *server) parse(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		return nil, errors.New("is not a URL: want redis://host:port, such as redis://127.0.0.1:6379")
	}
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || strings.Contains(u.RawQuery, "@") {
		return nil, errEncoding
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errEncoding
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" && (u.Scheme != "unix" || s.cluster || s.master != "") {
		return nil, errors.New("is not a URL of Redis: it begins with redis://, rediss:// or, for a single server, unix://")
	}
	if s.cluster && u.Path != "" && u.Path != "/" && u.Path != "/0" {
		return nil, errors.New("names a database, and a Cluster has none but 0")
	}
	alone := *u
	alone.RawQuery = ""
	if _, err := redis.ParseURL(alone.String()); err != nil {
		return nil, errors.New("has a host or a database that go-redis does not accept: want something like redis://user:password@host:6379/0")
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		alone.RawQuery = url.Values{name: options[name]}.Encode()
		if err := s.parseOption(&alone); err != nil && strings.Contains(err.Error(), "unexpected option") {
			return nil, fmt.Errorf("has the option %s, which does not exist here", name)
		} else if err != nil || slices.Contains(options[name], "") {
			return nil, fmt.Errorf("has the option %s with a value that go-redis does not accept", name)
		}
		if len(options[name]) > 1 && name != otherSentinel {
			return nil, fmt.Errorf("has the option %s more than once", name)
		}
	}
	return u, nil
}

// parseOption returns what go-redis says to a URL with one option.
func (s *server) parseOption(u *url.URL) (err error) {
	switch query := u.Query(); {
	case s.cluster, s.master != "" && query.Has(otherSentinel):
		_, err = redis.ParseClusterURL(u.String())
	case s.master != "" && (query.Has(sentinelUsername) || query.Has(sentinelPassword)):
	default:
		_, err = redis.ParseURL(u.String())
	}
	return err
}

// connect returns a client for the server.
func (s *server) connect() (redis.UniversalClient, error) {
	if s.cluster && s.master != "" {
		return nil, usageError{errors.New("--cluster and --sentinel exclude each other: give the one that the URL is of")}
	}
	text, by := s.address()
	u, err := s.parse(text)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s %w", by, err)}
	}
	if s.cluster {
		options, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, usageError{fmt.Errorf("%s is not a URL of a Cluster", by)}
		}
		options.ContextTimeoutEnabled = true
		return redis.NewClusterClient(options), nil
	}
	query := u.Query()
	if s.master != "" {
		plain := maps.Clone(query)
		plain.Del(otherSentinel)
		plain.Del(sentinelUsername)
		plain.Del(sentinelPassword)
		u.RawQuery = plain.Encode()
	}
	options, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, usageError{fmt.Errorf("%s is not a URL of Redis", by)}
	}
	options.ContextTimeoutEnabled = true
	if !query.Has("max_retries") {
		options.MaxRetries = -1 // newer versions of go-redis retry until the time is up, and hide the cause
	}
	if !query.Has("dialer_retries") {
		options.DialerRetries = 1 // the same
	}
	if s.master == "" {
		return redis.NewClient(options), nil
	}
	return s.throughSentinels(options, query), nil
}

// throughSentinels returns a client for the master that Sentinels name. options are the master's, but for
// the address.
func (s *server) throughSentinels(options *redis.Options, query url.Values) redis.UniversalClient {
	others := query[otherSentinel]
	if options.TLSConfig != nil && len(others) > 0 {
		options.TLSConfig.ServerName = "" // each server has its own
	}
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.master, SentinelAddrs: append([]string{options.Addr}, others...),
		SentinelUsername: query.Get(sentinelUsername), SentinelPassword: query.Get(sentinelPassword),

		Username: options.Username, Password: options.Password, DB: options.DB, TLSConfig: options.TLSConfig,
		ClientName: options.ClientName, Protocol: options.Protocol,
		MaxRetries: options.MaxRetries, MinRetryBackoff: options.MinRetryBackoff, MaxRetryBackoff: options.MaxRetryBackoff,
		DialTimeout: options.DialTimeout, ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout, ContextTimeoutEnabled: true,
		PoolFIFO: options.PoolFIFO, PoolSize: options.PoolSize, PoolTimeout: options.PoolTimeout,
		MinIdleConns: options.MinIdleConns, MaxIdleConns: options.MaxIdleConns, MaxActiveConns: options.MaxActiveConns,
		ConnMaxIdleTime: options.ConnMaxIdleTime, ConnMaxLifetime: options.ConnMaxLifetime,
	})
	client.AddHook(sentinelHook{})
	return client
}

// A sentinelHook adds the errors of Sentinels to the error of a dial. go-redis only logs them.
type sentinelHook struct{}

// ProcessHook implements [redis.Hook].
func (sentinelHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (sentinelHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// DialHook implements [redis.Hook].
func (sentinelHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var logged loggedErrors
		conn, err := next(context.WithValue(ctx, loggedKey{}, &logged), network, addr)
		logged.mu.Lock()
		defer logged.mu.Unlock()
		if err != nil && len(logged.texts) > 0 {
			err = fmt.Errorf("%w: %s", err, strings.Join(logged.texts, ", "))
		}
		return conn, err
	}
}

type loggedKey struct{}

// loggedErrors are the different errors that go-redis logs during a dial, whose context has them. They are texts,
// because an error that is redis.Nil would be read as "not there".
type loggedErrors struct {
	mu    sync.Mutex
	texts []string
}

// A silence keeps go-redis from logging: commands report its errors themselves.
type silence struct{}

func (silence) Printf(ctx context.Context, _ string, args ...any) {
	logged, ok := ctx.Value(loggedKey{}).(*loggedErrors)
	if !ok {
		return
	}
	logged.mu.Lock()
	defer logged.mu.Unlock()
	for _, arg := range args {
		err, ok := arg.(error)
		if !ok {
			continue
		}
		text := err.Error()
		if errors.Is(err, redis.Nil) {
			text = "a Sentinel knows no master of this name"
		}
		if !slices.Contains(logged.texts, text) {
			logged.texts = append(logged.texts, text)
		}
	}
}
