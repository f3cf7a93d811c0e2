package ginlimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/internal/routertest"
	"github.com/weirgo/weir/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	leak.VerifyMain(m)
}

func TestGin(t *testing.T) {
	routertest.Run(t, routertest.Router{Build: build(func() *gin.Engine { return gin.New() }), Pattern: routertest.ColonParams, Refuses: refuses})
}

func TestGinThatCorrectsPaths(t *testing.T) {
	routertest.Run(t, routertest.Router{Pattern: routertest.ColonParams, Build: build(func() *gin.Engine {
		engine := gin.New()
		engine.RedirectFixedPath = true
		engine.RemoveExtraSlash = true
		engine.UseRawPath = true
		engine.HandleMethodNotAllowed = true
		return engine
	})})
}

func build(engine func() *gin.Engine) func(routertest.App) http.Handler {
	return func(app routertest.App) http.Handler {
		r := engine()
		if app.Authenticate != nil {
			r.Use(func(c *gin.Context) { c.Request = c.Request.WithContext(app.Authenticate(c.Request)) })
		}
		r.Use(limits(app.Limits)...)
		fill(&r.RouterGroup, app.Group)
		return r
	}
}

func fill(r *gin.RouterGroup, g routertest.Group) {
	for _, route := range g.Routes {
		if below, ok := strings.CutSuffix(route.Path, "/*"); ok {
			route.Path = below + "/*rest"
		}
		handlers := append(limits(route.Limits), func(c *gin.Context) {
			for _, p := range c.Params {
				c.Request.SetPathValue(p.Key, p.Value)
			}
			route.Handler(c.Writer, c.Request)
		})
		if route.Method == "" {
			r.Any(routertest.ColonParams(route.Path), handlers...)
		} else {
			r.Handle(route.Method, routertest.ColonParams(route.Path), handlers...)
		}
	}
	for _, sub := range g.Groups {
		fill(r.Group(routertest.ColonParams(sub.Prefix), limits(sub.Limits)...), sub)
	}
}

func limits(all []routertest.Limit) []gin.HandlerFunc {
	var handlers []gin.HandlerFunc
	for _, limit := range all {
		if limit.Rules != nil {
			handlers = append(handlers, ginlimit.New(limit.Rules))
		} else {
			handlers = append(handlers, ginlimit.PerIP(limit.PerIP))
		}
	}
	return handlers
}

func refuses(limits *middleware.RateLimit, answer routertest.Answer, seen func(status int)) http.Handler {
	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		seen(c.Writer.Status())
	}, ginlimit.NewWith(limits, ginlimit.Options{OnRefused: func(c *gin.Context, result middleware.Result) {
		_ = answer(c.Writer, c.Request, result)
	}}))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "home") })
	return r
}
