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
func TestTheLogHasTheStatusOfARefusedRPC(t *testing.T) {
	for status, rule := range map[string]middleware.Rule{
		"429": {Name: "cart", Key: keyfunc.Global, Limit: limiter.PerHour(1)},
		"403": {Name: "cart", Mode: middleware.Deny},
		"503": {Name: "cart", Mode: middleware.Deny, Refusal: middleware.Refusal{Status: http.StatusServiceUnavailable}},
		"401": {Name: "cart", Key: keyfunc.Bearer, NoKey: middleware.NoKeyUnauthorized, Limit: limiter.PerHour(1)},
	} {
		for _, media := range []string{"application/grpc", "application/connect+proto"} {
			var out bytes.Buffer
			log := serving.NewLog(&out, nil)
			limits, err := middleware.New(middleware.Config{Observer: log, Rules: []middleware.Rule{rule}})
			require.NoError(t, err)
			h := log.Handler(limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
			for range 2 {
				r := httptest.NewRequest(http.MethodPost, "/shop.Cart/Add", strings.NewReader("x"))
				r.ProtoMajor = 2
				r.Header.Set("Content-Type", media)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				assert.Equal(t, 200, w.Code)
			}
			lines := strings.Split(out.String(), "\n")
			assert.Contains(t, lines[1], `"status":`+status, media)
			assert.Equal(t, status == "429", strings.Contains(lines[0], `"status":200`), media)
		}
	}
}
