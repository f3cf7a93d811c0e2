package dashboard

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
)

func TestRowsSayHowManyAreInProgressAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
			{Name: "all", Limit: limiter.PerHour(100)},
			{Name: "exports", Limit: limiter.AtOnce(2).Queue(5, time.Minute)},
		}}))
		d := newDashboard(t, Options{Authorize: func(*http.Request) bool { return true }})
		d.Add(l)
		rows, _ := d.rows(failover.Stats{})
		assert.Equal(t, "2 at once", rows[1].Limit)
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) })
		}
		synctest.Wait()
		assert.Equal(t, [][3]int{{1, 2, 1}}, d.places(rows))
		wg.Wait()
		assert.Empty(t, d.places(rows))
	})
}
