package pace

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/pace"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

// weirClient shares the limit and cooldowns through Redis, where there is one. It has the defaults,
// but for a deadline that outlasts a moment in which this machine has no time for Redis: what is
// measured is not an outage.
func weirClient(base http.RoundTripper, t task) (*http.Client, func(), error) {
	target, err := url.Parse(t.URL)
	if err != nil {
		return nil, nil, err
	}
	limit := limiter.PerSecond(t.Limit)
	if t.Burst > 0 {
		limit = limit.WithBurst(t.Burst)
	}
	o := pace.Options{
		Rules: []pace.Rule{{Host: target.Host, Key: pace.Token, Limit: limit}},
		Retry: pace.Retry{Attempts: attempts},
	}
	done := func() {}
	if t.Redis != "" {
		rdb := redis.NewClient(&redis.Options{Addr: t.Redis})
		ctx, cancel := context.WithCancel(context.Background())
		done = func() {
			cancel()
			_ = rdb.Close()
		}
		o.Store = redisstore.New(rdb, redisstore.Options{Failover: failover.Options{Deadline: 2 * time.Second, Replicas: processes}})
		list, err := redisbans.New(ctx, rdb, redisbans.Options{})
		if err != nil {
			done()
			return nil, nil, err
		}
		o.Cooldowns = list
	}
	transport, err := pace.NewTransport(base, o)
	if err != nil {
		done()
		return nil, nil, err
	}
	return &http.Client{Transport: transport}, done, nil
}
