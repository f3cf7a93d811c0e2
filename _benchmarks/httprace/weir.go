package main

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/benchmarks/peers"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

func perAddress(name string, q peers.Quota) middleware.Rule {
	return middleware.Rule{Name: name, Key: keyfunc.IP(), Limit: limiter.Limit{
		Events: 1, Per: q.Every, Burst: q.Burst, Algorithm: limiter.TokenBucket,
	}}
}

// limits are one rule by address, but for what change makes of it. It may be nil.
func limits(q peers.Quota, change func(*middleware.Config)) (*middleware.RateLimit, error) {
	config := middleware.Config{Rules: []middleware.Rule{perAddress("ip", q)}}
	if change != nil {
		change(&config)
	}
	return middleware.New(config)
}

func weirWith(change func(*middleware.Config)) func(peers.Quota, http.Handler) (http.Handler, error) {
	return func(q peers.Quota, next http.Handler) (http.Handler, error) {
		l, err := limits(q, change)
		if err != nil {
			return nil, err
		}
		return l.Handler(next), nil
	}
}

func banClient(c *middleware.Config) {
	list := bans.Must(bans.New(bans.Options{}))
	if err := list.Ban(context.Background(), client, time.Hour); err != nil {
		panic(err)
	}
	c.Bans, c.BanKeys = list, []keyfunc.Func{keyfunc.IP()}
}

func addRules(c *middleware.Config) {
	for _, name := range []string{"second", "third"} {
		rule := c.Rules[0]
		rule.Name = name
		c.Rules = append(c.Rules, rule)
	}
}

func wrapGinlimit(q peers.Quota, next http.Handler) (http.Handler, error) {
	l, err := limits(q, nil)
	if err != nil {
		return nil, err
	}
	return withGin(next, ginlimit.New(l)), nil
}

func frameGin(next http.Handler) http.Handler { return withGin(next, func(*gin.Context) {}) }

func withGin(next http.Handler, m gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/", m, gin.WrapH(next))
	return engine
}

func wrapEcholimit(q peers.Quota, next http.Handler) (http.Handler, error) {
	l, err := limits(q, nil)
	if err != nil {
		return nil, err
	}
	return peers.WithEcho(next, echolimit.New(l)), nil
}
