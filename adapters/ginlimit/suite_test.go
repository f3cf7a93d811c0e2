package ginlimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/routertest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	leak.VerifyMain(m)
}

func TestGin(t *testing.T) {
	routertest.Run(t, routertest.Router{Pattern: pattern, OnRefused: true, KeepsRequest: true, Build: func(app routertest.App) http.Handler {
		return build(gin.New(), app)
	}})
}

func TestGinThatCorrectsPaths(t *testing.T) {
	routertest.Run(t, routertest.Router{Pattern: pattern, OnRefused: true, KeepsRequest: true, Build: func(app routertest.App) http.Handler {
		engine := gin.New()
		engine.RedirectFixedPath = true
		engine.RemoveExtraSlash = true
		engine.UseRawPath = true
		engine.HandleMethodNotAllowed = true
		return build(engine, app)
	}})
}

func pattern(path string) string {
	if below, ok := strings.CutSuffix(path, "/*"); ok {
		path = below + "/*rest"
	}
	return routertest.ColonParams(path)
}

func build(r *gin.Engine, app routertest.App) http.Handler {
	r.Use(func(c *gin.Context) {
		if app.Authenticate != nil {
			c.Request = c.Request.WithContext(app.Authenticate(c.Request))
		}
		c.Next()
		if app.OnStatus != nil {
			app.OnStatus(c.Writer.Status())
		}
	})
	r.Use(limits(app.Limits)...)
	fill(&r.RouterGroup, app.Group)
	return r
}

func fill(r *gin.RouterGroup, g routertest.Group) {
	for _, route := range g.Routes {
		handlers := append(limits(route.Limits), func(c *gin.Context) {
			for _, p := range c.Params {
				c.Request.SetPathValue(p.Key, p.Value)
			}
			if route.Context != nil {
				c.Request = c.Request.WithContext(route.Context(c.Request))
			}
			route.Handler(c.Writer, c.Request)
		})
		if route.Method == "" {
			r.Any(route.Path, handlers...)
		} else {
			r.Handle(route.Method, route.Path, handlers...)
		}
	}
	for _, sub := range g.Groups {
		fill(r.Group(sub.Prefix, limits(sub.Limits)...), sub)
	}
}

func limits(all []routertest.Limit) (handlers []gin.HandlerFunc) {
	for _, limit := range all {
		var options ginlimit.Options
		if limit.OnRefused != nil {
			options.OnRefused = func(c *gin.Context, result middleware.Result) {
				_ = limit.OnRefused(c.Writer, c.Request, result)
			}
		}
		handlers = append(handlers, ginlimit.NewWith(limit.Rules, options))
	}
	return handlers
}
