package serving_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Its status line says 200.
func TestTheLogSaysThatAnRPCIsRefused(t *testing.T) {
	var out bytes.Buffer
	log := serving.NewLog(&out, nil)
	limits, err := middleware.New(middleware.Config{Observer: log, Rules: []middleware.Rule{{Name: "cart", Key: keyfunc.Global, Limit: limiter.PerHour(1)}}})
	require.NoError(t, err)
	h := log.Handler(limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, status := range []string{`"status":200`, `"status":429`} {
		r := httptest.NewRequest(http.MethodPost, "/shop.Cart/Add", strings.NewReader("x"))
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", "application/grpc")
		w := httptest.NewRecorder()
		out.Reset()
		h.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code)
		assert.Contains(t, out.String(), status)
	}
}
