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

// A busy service has 8 connections, and takes so long for each request.
type busy struct {
	*service
	limits *middleware.RateLimit
	page   *dashboard.Dashboard
}

func startBusy(t *testing.T, o shed.Options, takes time.Duration) *busy {
	page, err := dashboard.New(dashboard.Options{Authorize: anybody, Title: "checkout"})
	require.NoError(t, err)
	limits, err := middleware.New(middleware.Config{Observer: page, Overload: shed.Must(shed.New(o))})
	require.NoError(t, err)
	page.Add(limits, limits)
	connections := make(chan struct{}, 8)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {
		connections <- struct{}{}
		time.Sleep(takes)
		<-connections
	})
	outside := http.NewServeMux()
	outside.Handle("/ops/limits", page)
	outside.Handle("/", limits.Handler(mux))
	return &busy{&service{t: t, page: page, mux: outside}, limits, page}
}

// ask has so many requests of a tier come at once.
func (b *busy) ask(tier string, n int) {
	for range n {
		go func() {
			r := httptest.NewRequest("GET", "/", nil)
			r = r.WithContext(middleware.WithTier(r.Context(), tier))
			b.mux.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
}

func TestThePageShowsAnOverload(t *testing.T) {
	t.Parallel()
	s := startBusy(t, shed.Options{Priority: []string{"premium", "free"}, MaxWait: 100 * time.Millisecond}, 20*time.Millisecond)
	b := browser.Open(t, s.serve(), 1280, 900, false)
	b.Await(patience, `!document.querySelector("#overload").hidden`)
	assert.Equal(t, "has room", b.Text("#overload-text"))
	assert.Equal(t, "0 of 32 in flight", b.Text("#places .about"))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				s.ask("premium", 4)
				s.ask("free", 30)
				s.ask("", 20)
			}
		}
	}()
	b.Await(2*patience, `document.querySelector("#overload").dataset.is === "sheds"`)
	b.Await(patience, `document.querySelectorAll("#levels .number.some").length > 0`)
	assert.Contains(t, b.Text("#overload-text"), "others")
	assert.NotContains(t, b.Text("#overload-text"), "premium")
	look(b, "overload")
}
