package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/tests/browser"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/observe/dashboard"
)

// A busy service has 8 connections, and takes 20 ms for each request.
func startBusy(t *testing.T, o shed.Options) *service {
	page, err := dashboard.New(dashboard.Options{Authorize: anybody, Title: "checkout"})
	require.NoError(t, err)
	limits, err := middleware.New(middleware.Config{Observer: page, Overload: shed.Must(shed.New(o))})
	require.NoError(t, err)
	page.Add(limits, limits)
	connections := make(chan struct{}, 8)
	mux := http.NewServeMux()
	mux.Handle("/ops/limits", page)
	mux.Handle("/", limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		connections <- struct{}{}
		time.Sleep(20 * time.Millisecond)
		<-connections
	})))
	return &service{t: t, page: page, mux: mux}
}

func TestThePageShowsAnOverload(t *testing.T) {
	t.Parallel()
	s := startBusy(t, shed.Options{Priority: []string{"premium", "free"}, MaxWait: 100 * time.Millisecond})
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `!document.querySelector("#overload").hidden`)
	assert.Equal(t, "has room", b.Text("#overload-text"))
	assert.Equal(t, "0 of 32 in flight", b.Text("#places .about"))
	every(t, func(int) {
		for tier, n := range map[string]int{"premium": 4, "free": 30, "": 20} {
			for range n {
				r := httptest.NewRequest("GET", "/", nil)
				go s.mux.ServeHTTP(httptest.NewRecorder(), r.WithContext(middleware.WithTier(r.Context(), tier)))
			}
		}
	})
	b.Await(2*patience, `document.querySelector("#overload").dataset.is === "sheds"`)
	b.Await(patience, `document.querySelectorAll("#levels .number.some").length > 0`)
	assert.Contains(t, b.Text("#overload-text"), "others")
	assert.NotContains(t, b.Text("#overload-text"), "premium")
	look(b, "overload")
}
