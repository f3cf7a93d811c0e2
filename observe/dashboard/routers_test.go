package dashboard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/observe/dashboard"
)

// mounts put the page under /ops/limits, in every way that one may think of.
func mounts(page http.Handler) map[string]http.Handler {
	plain := http.NewServeMux()
	plain.Handle("/ops/limits", page)
	below := http.NewServeMux()
	below.Handle("/ops/", http.StripPrefix("/ops", page))

	r := chi.NewRouter()
	r.Handle("/ops/limits", page)
	mounted := chi.NewRouter()
	mounted.Route("/ops", func(r chi.Router) { r.Mount("/limits", page) })

	g := gin.New()
	g.Group("/ops").Any("/limits", gin.WrapH(page))
	e := echo.New()
	e.Group("/ops").Any("/limits", echo.WrapHandler(page))
	e5 := echo5.New()
	e5.Group("/ops").Any("/limits", echo5.WrapHandler(page))
	return map[string]http.Handler{
		"net/http": plain, "net/http, StripPrefix": below, "chi": r, "chi, mounted": mounted, "gin": g, "echo": e, "echo v5": e5,
	}
}

func TestThePageWorksOnEveryRouterUnderAPrefix(t *testing.T) {
	s := start(t, dashboard.Options{})
	for name, h := range mounts(s.page) {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(h)
			defer server.Close()
			url := server.URL + "/ops/limits"

			response, err := http.Get(url)
			require.NoError(t, err)
			html, err := io.ReadAll(response.Body)
			response.Body.Close()
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, response.StatusCode)
			assert.Contains(t, string(html), "<title>Weir · checkout</title>")

			response, err = http.Post(url, "application/json", strings.NewReader(`{"action":"look","rule":"ip","key":"192.0.2.1"}`))
			require.NoError(t, err)
			answer, err := io.ReadAll(response.Body)
			response.Body.Close()
			require.NoError(t, err)
			assert.Contains(t, string(answer), `"remaining":600`)
		})
	}
	http.DefaultClient.CloseIdleConnections()
}
