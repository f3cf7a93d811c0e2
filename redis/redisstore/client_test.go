package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisrules"
	"github.com/weirgo/weir/redis/redisstore"
)

func TestClientsOfOtherKindsAreRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	redistest.CloseAfter(t, ring)
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	redistest.CloseAfter(t, one)
	wrapper := struct{ redis.UniversalClient }{one}
	for said, client := range map[string]redis.UniversalClient{
		"whose shards are not one store":                           ring,
		"must be a *redis.Client (one server or Sentinel) or":      wrapper,
		"a *redis.Client (one server or Sentinel) or a *redis.Clu": &wrapper,
		"it needs a client, and this one is nil":                   nil,
		"client, and this one is nil":                              (*redis.ClusterClient)(nil),
	} {
		_, stored := limiter.New(limiter.Config{Name: "rule", Limit: limiter.PerMinute(5), Store: redisstore.New(client, redisstore.Options{})})
		_, leased := leasestore.New(client, leasestore.Options{})
		_, listed := redisbans.New(t.Context(), client, redisbans.Options{})
		_, watched := redisrules.Watch(t.Context(), client, "rules", rules.Options{})
		_, read := redisrules.Read(t.Context(), client, "rules")
		published := redisrules.Publish(t.Context(), client, "rules", nil, rules.Options{})
		for i, err := range []error{stored, leased, listed, watched, read, published} {
			pkg := []string{"redisstore", "leasestore", "redisbans", "redisrules", "redisrules", "redisrules"}[i]
			require.ErrorContains(t, err, said)
			assert.Contains(t, err.Error(), pkg+": ")
		}
		if client == ring {
			_, err := redisstore.Usages(t.Context(), client, "", []string{"weir:3:{0123456789012345678901}:rule"})
			require.ErrorContains(t, err, said)
		}
	}
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(code string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), code)
}

// admitted asks for units of many keys at once, and returns how many each got.
func admitted(t *testing.T, store limiter.Store, rule string, keys, times int) map[string]int {
	t.Helper()
	l := limiter.Must(limiter.New(limiter.Config{Name: rule, Store: store, OnOutage: limiter.FailClosed, Limit: limiter.PerDay(100).With(limiter.TokenBucket)}))
	counts := make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range keys {
		wg.Go(func() {
			key := fmt.Sprint("key ", k)
			for range times {
				d, err := l.Allow(context.Background(), key)
				assert.NoError(t, err)
				if d.Allowed {
					mu.Lock()
					counts[key]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return counts
}

func TestAProxyThatSplitsAdmitsTheLimitWithOneTag(t *testing.T) {
	addr := redistest.StartProxy(t, redistest.Start(t), redistest.Start(t))
	client := redis.NewClient(&redis.Options{Addr: addr})
	redistest.CloseAfter(t, client)
	for _, isLeased := range []bool{false, true} {
		log := &lines{}
		o := redisstore.Options{OneTag: true, ForgetRefusals: true, Failover: failover.Options{
			Deadline: redistest.Patience, Logger: slog.New(slog.NewTextHandler(log, nil)),
		}}
		store, rule := limiter.Store(redisstore.New(client, o)), "exact"
		if isLeased {
			rule = "leased"
			leases, err := leasestore.New(client, leasestore.Options{Redis: o})
			require.NoError(t, err)
			defer leases.Close()
			store = leases
		}
		for key, n := range admitted(t, store, rule, 40, 150) {
			most := 100
			if isLeased {
				most = 125
			}
			assert.LessOrEqual(t, n, most, "%s of %s", key, rule)
			assert.GreaterOrEqual(t, n, 75, "%s of %s", key, rule)
		}
		assert.Zero(t, log.count("code="))
	}
}

func TestAProxyThatSplitsIsFound(t *testing.T) {
	one, two := redistest.Start(t), redistest.Start(t)
	for servers, want := range map[int]int{1: 0, 2: 1} {
		log := &lines{}
		client := redis.NewClient(&redis.Options{Addr: redistest.StartProxy(t, []*redistest.Server{one, two}[:servers]...)})
		redistest.CloseAfter(t, client)
		store := redisstore.New(client, redisstore.Options{ForgetRefusals: true, Failover: failover.Options{
			Deadline: redistest.Patience, Logger: slog.New(slog.NewTextHandler(log, nil)),
		}})
		admitted(t, store, fmt.Sprint("before ", servers), 40, 20)
		if want == 1 {
			n := 0
			redistest.Await(t, "the line", func() bool {
				n++
				admitted(t, store, fmt.Sprint("meanwhile ", n), 10, 1) // a busy machine needs a second try
				return log.count("weir-proxy-splits") > 0
			})
		}
		for key, n := range admitted(t, store, fmt.Sprint("after ", servers), 40, 120) {
			assert.Equal(t, 100, n, key)
		}
		assert.Equal(t, want, log.count("weir-proxy-splits"))
	}
}

// What servers of several makes answer, and how it is classified.
func TestServersThatCannotRunScriptsAreAWrongConfiguration(t *testing.T) {
	for said, code := range map[string]string{
		"ERR Could not find scripting engine 'lua'":                                                                      "weir-store-unusable",
		"ERR unknown command 'eval'":                                                                                     "weir-store-unusable",
		"ERR ACL failure in script: User u has no permissions to run the 'set' command":                                  "weir-store-unusable",
		"ERR Cross-slot queries are disabled for this command":                                                           "weir-store-unusable",
		"ERR Error running script (call to f_1): @user_script:13: -OOM command not allowed when used memory > maxmemory": "weir-call-failed",
		"LOADING Redis is loading the dataset in memory":                                                                 "weir-call-failed",
	} {
		t.Run(said, func(t *testing.T) {
			log := &lines{}
			client := redis.NewClient(&redis.Options{Addr: redistest.StartFake(t, func(command []string) string {
				switch strings.ToUpper(command[0]) {
				case "EVALSHA":
					return "-NOSCRIPT No matching script.\r\n"
				case "EVAL":
					return "-" + said + "\r\n"
				}
				return "-ERR unknown command\r\n" // go-redis does without HELLO
			}), MaxRetries: -1})
			redistest.CloseAfter(t, client)
			store := redisstore.New(client, redisstore.Options{Failover: failover.Options{
				Deadline: redistest.Patience, Logger: slog.New(slog.NewTextHandler(log, nil)),
			}})
			l := limiter.Must(limiter.New(limiter.Config{Name: "rule", Limit: limiter.PerHour(2), Store: store}))
			for i := range 3 {
				d, err := l.Allow(t.Context(), "key")
				require.NoError(t, err)
				assert.Equal(t, i < 2, d.Allowed)
				assert.True(t, d.Degraded)
			}
			redistest.Await(t, "the line", func() bool { return log.count("code="+code) == 1 })
			if strings.Contains(said, "engine") {
				assert.Equal(t, 1, log.count("load its Lua module"))
			}
		})
	}
}
