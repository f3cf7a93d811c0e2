package sloglimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/sloglimit"
)

func TestARefusalSaysThatItIsForHowManyAtOnce(t *testing.T) {
	_, refusals, written := logging(t, sloglimit.Options{}, middleware.Config{Rules: []middleware.Rule{{Name: "x", Limit: limiter.PerHour(1)}}})
	l := middleware.Must(middleware.New(middleware.Config{Observer: refusals, Rules: []middleware.Rule{
		{Name: "exports", Key: keyfunc.IP(), Limit: limiter.All(limiter.PerHour(100), limiter.AtOnce(1))},
	}}))
	var h http.Handler
	h = l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, http.StatusTooManyRequests, w.Code)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	records := written.take(t)
	if assert.Len(t, records, 1) {
		assert.Equal(t, "weir-refused", records[0]["code"])
		assert.Equal(t, "1 at once", records[0]["limit"])
	}
}
