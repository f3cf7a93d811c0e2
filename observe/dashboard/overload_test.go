package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
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
	page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Title: "checkout"}))
	limits := middleware.Must(middleware.New(middleware.Config{Observer: page, Overload: shed.Must(shed.New(o))}))
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

func TestOverloadIsShownByLevel(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := startBusy(t, shed.Options{Priority: []string{"premium", "free"}}, 2*time.Second)
		assert.NotNil(t, s.figures().Overload)
		s.ask("premium", 2)
		s.ask("free", 38)
		time.Sleep(time.Second)
		o := s.figures().Overload
		require.Len(t, o.Places, 1)
		assert.Equal(t, [4]int{32, 32, 8, 0}, [4]int{o.Places[0].Limit, o.Places[0].InFlight, o.Places[0].Waiting, o.Places[0].Streams})
		time.Sleep(12 * time.Second)
		o = s.figures().Overload
		assert.Zero(t, o.Places[0].InFlight+o.Places[0].Waiting)
		require.Len(t, o.Levels, 3)
		assert.Equal(t, "premium", o.Levels[0].Name)
		assert.Equal(t, [3]int{2, 38, 0}, [3]int{o.Levels[0].Admitted, o.Levels[1].Admitted, o.Levels[2].Admitted})

		s.ask("free", 11_000) // all but some wait
		time.Sleep(time.Second)
		o = s.figures().Overload
		assert.True(t, o.Levels[1].Overloaded)
		assert.False(t, o.Levels[0].Overloaded)
		time.Sleep(10 * time.Second)
		o = s.figures().Overload
		assert.Positive(t, o.Levels[1].Shed)
		assert.Equal(t, 11_038, o.Levels[1].Shed+o.Levels[1].Admitted)
		assert.Zero(t, o.Levels[0].Shed)

		rules := []middleware.Rule{{Name: "all", Key: keyfunc.Global, Limit: limiter.PerHour(1000)}}
		require.NoError(t, s.limits.Reconfigure(middleware.Config{Observer: s.page, Rules: rules}))
		time.Sleep(time.Second)
		assert.Nil(t, s.figures().Overload, "the rules have none any more")
		require.NoError(t, s.limits.Reconfigure(middleware.Config{Observer: s.page, Overload: shed.Must(shed.New(shed.Options{}))}))
		s.ask("", 3)
		time.Sleep(3 * time.Second)
		assert.Equal(t, 3, s.figures().Overload.Levels[0].Admitted, "of those before, another limiter knew")
	})
}

func TestOfManyRoutesTheFullestAreShown(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		l := shed.Must(shed.New(shed.Options{PerRoute: true}))
		page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody}))
		limits := middleware.Must(middleware.New(middleware.Config{Observer: page, Overload: l}))
		page.Add(limits)
		for i := range 20 {
			for range i {
				r := httptest.NewRequest("GET", "/", nil)
				r.Pattern = fmt.Sprint("GET /", i)
				_, _ = l.Admit(r)
			}
		}
		o := (&service{t: t, page: page, mux: page}).figures().Overload
		require.Len(t, o.Places, 6)
		assert.Equal(t, "GET /19", o.Places[0].Route)
		assert.Equal(t, "GET /14", o.Places[5].Route)
		assert.Equal(t, 14, o.More)
	})
}
