package redisstore_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

// What a client sends is no part of a name, whatever it is.
func TestNothingOfAKeyIsInRedis(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	keys := []string{
		"", "{", "}", "{}", "{other}", "}:{", "weir:{aaaaaaaaaaaaaaaaaaaaaa}:rule", "a\r\nFLUSHALL\r\n", "\n", "\x00",
		"203.0.113.7", "user:42", "\xff\xfe", "' .. redis.call('FLUSHALL') .. '", strings.Repeat("long", 1<<14),
	}
	form := regexp.MustCompile(`^weir:3:\{[A-Za-z0-9_-]{22}\}:rule$`)
	for _, secret := range []string{"", "a secret of 16 bytes"} {
		s := redisstore.New(client, redisstore.Options{ForgetRefusals: true, Secret: []byte(secret)}).Within(10 * time.Second)
		q := bounded(t, "rule", 10, limiter.SlidingWindow)
		for _, key := range keys {
			assert.Equal(t, int64(9), decideOne(t, s, q, key, 1).Remaining, "%.20q is counted apart", key)
			assert.Equal(t, int64(8), decideOne(t, s, q, key, 1).Remaining, "%.20q is the same each time", key)
		}
		stored := strings.Split(server.MustDo("KEYS", "*"), "\n")
		require.Len(t, stored, len(keys))
		for _, name := range stored {
			assert.Regexp(t, form, name)
			value := server.MustDo("GET", name)
			for _, key := range keys {
				if len(key) > 3 {
					assert.NotContains(t, name, key)
					assert.NotContains(t, value, key)
				}
			}
		}
		server.MustDo("FLUSHALL")
	}
}

func TestOptionsThatMakeNoSenseAreNamedWithTheirValue(t *testing.T) {
	for _, tt := range []struct {
		options redisstore.Options
		want    []string
	}{
		{redisstore.Options{Prefix: strings.Repeat("p", 65)}, []string{"redisstore: Prefix", "pppp", "65 characters", "at most 64"}},
		{redisstore.Options{Prefix: "a b"}, []string{`redisstore: Prefix "a b" has a space`}},
		{redisstore.Options{Prefix: "{a"}, []string{`redisstore: Prefix "{a" has a space, a brace`}},
		{redisstore.Options{Prefix: "a}"}, []string{`redisstore: Prefix "a}" has`}},
		{redisstore.Options{Prefix: "a\n"}, []string{`redisstore: Prefix "a\n" has`}},
		{redisstore.Options{Prefix: "größe"}, []string{`redisstore: Prefix "größe" has`}},
		{redisstore.Options{Prefix: "\xff"}, []string{`redisstore: Prefix "\xff" has`}},
		{redisstore.Options{Prefix: "\x7f"}, []string{`redisstore: Prefix "\x7f" has`}},
		{redisstore.Options{Secret: []byte("123456789012345")}, []string{"redisstore: Secret has 15 bytes", "at least 16, or none"}},
		{redisstore.Options{Secret: []byte("1")}, []string{"redisstore: Secret has 1 bytes"}},
		{redisstore.Options{Failover: failover.Options{Deadline: -1}}, []string{"redisstore: Failover: failover: Deadline is -1ns"}},
		{redisstore.Options{Prefix: " ", Secret: []byte("short"), Failover: failover.Options{Replicas: -2}},
			[]string{`Prefix " "`, "Secret has 5 bytes", "Replicas is -2"}},
	} {
		err := tt.options.Validate()
		require.Error(t, err, "%+v", tt.options)
		for _, want := range tt.want {
			assert.ErrorContains(t, err, want)
		}
		assert.NotContains(t, err.Error(), "123456789012345", "a secret is not told")
		assert.Less(t, len(err.Error()), 400)
		s := redisstore.New(redistest.CloseAfter(t, redis.NewClient(&redis.Options{})), tt.options)
		_, refused := limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(50), Store: s})
		assert.ErrorContains(t, refused, err.Error())
	}
}

func TestAStoreWithoutAClientCannotBeUsed(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		s := redisstore.New(client, redisstore.Options{Prefix: " "})
		for _, store := range []limiter.Store{s, s.Within(time.Second), failover.Must(failover.New(s, failover.Options{}))} {
			_, err := limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(50), Store: store})
			require.ErrorContains(t, err, "redisstore: it needs a client, and this one is nil")
			require.ErrorContains(t, err, `redisstore: Prefix " "`, "all that is wrong is told at once")
		}
		charges := []limiter.Charge{charge(bounded(t, "rule", 10, limiter.TokenBucket), "key", 1)}
		want := "redisstore: it needs a client, and this one is nil"
		assert.ErrorContains(t, s.Decide(t.Context(), charges), want, "it does not decide by policy either")
		assert.ErrorContains(t, s.Settle(t.Context(), []limiter.Settlement{{Charge: charges[0]}}), want)
		assert.ErrorContains(t, s.Reset(t.Context(), charges), want)
		assert.ErrorContains(t, s.Claim("rule"), want)
		assert.Zero(t, s.Stats())
		assert.Zero(t, s.Health())
	}
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	assert.NoError(t, redisstore.New(client, redisstore.Options{}).Check(nil), "nothing is asked of Redis yet")
}
