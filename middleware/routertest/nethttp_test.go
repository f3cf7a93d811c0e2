package routertest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/internal/routertest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisstore"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }

// One mux has all routes; the limits of a group are around each of them.
func TestServeMux(t *testing.T) {
	routertest.Run(t, routertest.Router{Unlisted: true, Build: buildMux})
}

func buildMux(app routertest.App) http.Handler {
	mux := http.NewServeMux()
	for _, group := range app.Groups {
		flat(mux, group, "", nil)
	}
	routes(mux, "", app.Routes, nil)
	return front(app, mux)
}

func flat(mux *http.ServeMux, group routertest.Group, prefix string, outer []routertest.Limit) {
	limits := slices.Concat(outer, group.Limits)
	routes(mux, prefix+group.Prefix, group.Routes, limits)
	for _, sub := range group.Groups {
		flat(mux, sub, prefix+group.Prefix, limits)
	}
}

func TestServeMuxOnRedisAndOnLeases(t *testing.T) {
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr}))
	run := func(store func(*testing.T) limiter.Store) {
		routertest.RunEnds(t, routertest.Router{Build: buildMux}, func(t *testing.T) limiter.Store {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			return store(t)
		})
	}
	run(func(*testing.T) limiter.Store {
		return redisstore.New(client, redisstore.Options{Failover: failover.Options{Deadline: redistest.Patience}})
	})
	run(func(t *testing.T) limiter.Store {
		store, err := leasestore.New(client, leasestore.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	})
}

// Every group is a mux of its own, whose patterns have the whole path.
func TestServeMuxInServeMux(t *testing.T) {
	routertest.Run(t, routertest.Router{Nested: true, Unlisted: true, Build: func(app routertest.App) http.Handler {
		return front(app, nested("", app.Group))
	}})
}

func nested(prefix string, group routertest.Group) *http.ServeMux {
	mux := http.NewServeMux()
	routes(mux, prefix, group.Routes, nil)
	for _, sub := range group.Groups {
		mux.Handle(prefix+sub.Prefix+"/", limited(nested(prefix+sub.Prefix, sub), sub.Limits))
	}
	return mux
}

func routes(mux *http.ServeMux, prefix string, routes []routertest.Route, outer []routertest.Limit) {
	for _, route := range routes {
		path := prefix + route.Path
		if path == "/" {
			path = "/{$}" // alone, it would be everything
		}
		if below, ok := strings.CutSuffix(path, "/*"); ok {
			path = below + "/{rest...}"
		}
		mux.Handle(strings.TrimPrefix(route.Method+" "+path, " "), limited(route.Handler, slices.Concat(outer, route.Limits)))
	}
}

// front is what stands in front of the router.
func front(app routertest.App, mux *http.ServeMux) http.Handler {
	handler := http.Handler(mux)
	handler = limited(handler, app.Limits)
	if app.Authenticate == nil {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(app.Authenticate(r)))
	})
}

func limited(handler http.Handler, limits []routertest.Limit) http.Handler {
	for _, limit := range slices.Backward(limits) {
		handler = limit.NetHTTP()(handler)
	}
	return handler
}
