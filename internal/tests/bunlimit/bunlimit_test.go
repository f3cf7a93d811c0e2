package bunlimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bunrouter"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/internal/tests/bunlimit"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware/routertest"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisstore"
)

var router = routertest.Router{Build: build, Pattern: pattern, Unlisted: true}

func TestBunrouter(t *testing.T) { routertest.Run(t, router) }

func TestBunrouterOnRedis(t *testing.T) {
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr}))
	onRedis := router
	onRedis.Store = func(t testing.TB) limiter.Store {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		return redisstore.New(client, redisstore.Options{Failover: failover.Options{Deadline: redistest.Patience}})
	}
	routertest.Run(t, onRedis)
}

func TestBunrouterOnLeases(t *testing.T) {
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr}))
	onLeases := router
	onLeases.Store = func(t testing.TB) limiter.Store {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		store, err := leasestore.New(client, leasestore.Options{Redis: redisstore.Options{
			Failover: failover.Options{Deadline: redistest.Patience},
		}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	routertest.Run(t, onLeases)
}

func pattern(path string) string {
	if below, ok := strings.CutSuffix(path, "/*"); ok {
		path = below + "/*rest"
	}
	return routertest.ColonParams(path)
}

func build(app routertest.App) http.Handler {
	stack := limits(app.Limits)
	if app.Authenticate != nil {
		stack = append([]bunrouter.MiddlewareFunc{func(next bunrouter.HandlerFunc) bunrouter.HandlerFunc {
			return func(w http.ResponseWriter, req bunrouter.Request) error {
				return next(w, req.WithContext(app.Authenticate(req.Request)))
			}
		}}, stack...)
	}
	router := bunrouter.New(bunrouter.Use(stack...))
	fill(&router.Group, app.Group)
	return router
}

func fill(g *bunrouter.Group, group routertest.Group) {
	for _, route := range group.Routes {
		handler := func(w http.ResponseWriter, req bunrouter.Request) error {
			for name, value := range req.Params().Map() {
				req.SetPathValue(name, value)
			}
			route.Handler(w, req.Request)
			return nil
		}
		methods := []string{route.Method}
		if route.Method == "" {
			methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
		}
		for _, method := range methods {
			g.NewGroup("", bunrouter.Use(limits(route.Limits)...)).Handle(method, route.Path, handler)
		}
	}
	for _, sub := range group.Groups {
		fill(g.NewGroup(sub.Prefix, bunrouter.Use(limits(sub.Limits)...)), sub)
	}
}

func limits(all []routertest.Limit) (stack []bunrouter.MiddlewareFunc) {
	for _, limit := range all {
		stack = append(stack, bunlimit.New(limit.Rules))
	}
	return stack
}
