package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

// A URL with its parts and options, none of which is dropped.
func TestAURLIsUsedAsAWholeOrItsErrorNamesTheOption(t *testing.T) {
	const one, cluster, sentinels = "", "--cluster", "--sentinel=main"
	for _, test := range []struct{ url, kind, want string }{
		{"redis://h?adr=x:1", one, "has the option adr, which does not exist here"},
		{"redis://h?addr=x:1", one, "has the option addr, which does not exist here"},
		{"redis://h?sentinel_password=x", one, "has the option sentinel_password, which does not exist here"},
		{"redis://h?sentinel_password=x", cluster, "has the option sentinel_password, which does not exist here"},
		{"redis://h?db=1", cluster, "has the option db, which does not exist here"},
		{"redis://h?timeout=1s", sentinels, "has the option timeout, which does not exist here"},
		{"redis://h?pool-size=5", sentinels, "has the option pool-size, which does not exist here"},
		{"redis://h?master_name=main", sentinels, "has the option master_name, which does not exist here"},
		{"redis://h?pool_size=5&dial_timeout=1x", one, "has the option dial_timeout with a value that go-redis does not accept"},
		{"redis://h?pool_size=many", sentinels, "has the option pool_size with a value that go-redis does not accept"},
		{"redis://h?addr=x", sentinels, "has the option addr with a value that go-redis does not accept"},
		{"redis://h?addr=x", cluster, "has the option addr with a value that go-redis does not accept"},
		{"redis://h?sentinel_password=", sentinels, "has the option sentinel_password with a value that go-redis does not accept"},
		{"redis://h?db=", one, "has the option db with a value that go-redis does not accept"},
		{"redis://h?db=1&db=2", one, "has the option db more than once"},
		{"redis://h?sentinel_username=a&sentinel_username=b", sentinels, "has the option sentinel_username more than once"},
		{"redis://h?db=1;pool_size=2", one, "is not a URL"},
		{"redis://h?%zz", one, "is not a URL"},
		{"redis://h/0#1", one, "is not a URL"},
		{"redis://h/3", cluster, "names a database"},
		{"redis://h/x", sentinels, "has a host or a database that go-redis does not accept"},
		{"unix:///redis.sock", sentinels, "is not a URL of Redis"},
		{"unix:///redis.sock", cluster, "is not a URL of Redis"},
	} {
		for _, args := range [][]string{{"top"}, {"serve", write(t, "limits.yaml", loose), "--ask=127.0.0.1:0"}} {
			if args = append(args, "--redis="+test.url); test.kind != "" {
				args = append(args, test.kind)
			}
			exit, _, said := weir(t, "", args...)
			assert.Equal(t, exitUsage, exit, test.url)
			assert.Contains(t, said, "--redis "+test.want, test.url)
		}
	}
}

func TestEveryOptionOfAURLHoldsBehindSentinelsToo(t *testing.T) {
	const options = "?db=3&protocol=2&client_name=weir&max_retries=2&min_retry_backoff=2ms&max_retry_backoff=3s&dial_timeout=4s&read_timeout=5s&write_timeout=6s" +
		"&pool_fifo=true&pool_size=7&pool_timeout=8s&min_idle_conns=0&max_idle_conns=9&max_active_conns=10&conn_max_idle_time=11m&conn_max_lifetime=12h"
	made := func(s server) redis.Options {
		client, err := s.connect()
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		o := client.(*redis.Client).Options()
		return redis.Options{ // what a URL says: go-redis derives further ones from the address
			Username: o.Username, Password: o.Password, DB: o.DB, Protocol: o.Protocol, ClientName: o.ClientName,
			MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
			PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
			MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
			ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		}
	}
	for _, from := range []string{"redis://ann:word@127.0.0.1:1", "rediss://ann:w%40rd@127.0.0.1:1"} {
		assert.Equal(t, made(server{url: from + options}), made(server{url: from + options + "&addr=127.0.0.1:2&sentinel_username=a&sentinel_password=b", master: "main"}))
	}
}

// Any Sentinel will do, each command goes through them, and they have credentials of their own.
func TestSentinelsHaveSeveralAddressesAndTheirOwnCredentials(t *testing.T) {
	s := redistest.StartSentinel(t)
	for _, sentinel := range s.Sentinels {
		sentinel.MustDo("ACL", "SETUSER", "watcher", "on", ">of-sentinels", "+@all", "allchannels")
		sentinel.MustDo("ACL", "SETUSER", "default", "resetpass", ">alone")
	}
	s.Master.MustDo("ACL", "SETUSER", "app", "on", ">of-the-master", "~*", "&*", "+@all")
	at := func(options ...string) string {
		query := url.Values{"addr": redistest.Addrs(s.Sentinels[1:])}
		for i := 0; i < len(options); i += 2 {
			query.Set(options[i], options[i+1])
		}
		return "--redis=redis://app:of-the-master@127.0.0.1:1?" + query.Encode() // the first Sentinel is down
	}
	file, name := write(t, "limits.yaml", loose), "--sentinel="+s.Name
	for _, credentials := range [][]string{{"sentinel_username", "watcher", "sentinel_password", "of-sentinels"}, {"sentinel_password", "alone"}} {
		for _, args := range [][]string{
			{"top"}, {"bans"}, {"ban", "user:42"}, {"unban", "user:42"}, {"peek", file, "--key=user:42"}, {"reset", file, "--key=user:42"},
			{"publish", file}, {"rules"}, {"diff", "redis", file},
		} {
			exit, _, said := weir(t, "", append(args, at(credentials...), name)...)
			assert.Equal(t, exitGood, exit, "%s: %s", args, said)
		}
		served := startServing(t, nil, "redis", "--ask=127.0.0.1:0", "--drain=0s", at(credentials...), name)
		served.stop()
	}

	for _, test := range []struct {
		want    string
		options []string
	}{
		{"NOAUTH", nil},
		{"WRONGPASS", []string{"sentinel_password", "not-it"}},
		{"WRONGPASS", []string{"sentinel_username", "nobody", "sentinel_password", "not-it"}},
	} {
		_, said := ends(t, exitBad, "", "top", at(test.options...), name)
		assert.Contains(t, said, test.want)
		assert.Contains(t, said, "connection refused", "the first one says something else")
		assert.NotContains(t, said, "not-it")
		assert.NotContains(t, said, "of-the-master")
	}
	_, said := ends(t, exitBad, "", "top", at("sentinel_password", "alone"), "--sentinel=none")
	assert.Contains(t, said, "a Sentinel knows no master of this name")

	// Newer versions of go-redis try a Sentinel that is down for longer than a diagnosis takes, so all are up.
	up := strings.Replace(at("sentinel_password", "not-it"), "127.0.0.1:1?", s.Sentinels[0].Addr+"?", 1)
	served := startServing(t, nil, file, "--proxy=127.0.0.1:0="+hello(t), "--drain=0s", up, name)
	await(t, func() bool {
		served.get("--proxy", "/")
		served.mu.Lock()
		defer served.mu.Unlock()
		require.NotContains(t, served.said.String(), "not-it")
		return strings.Contains(served.said.String(), "WRONGPASS")
	})
}
