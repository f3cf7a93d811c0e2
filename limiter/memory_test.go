package limiter_test

import (
	"testing"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
)

func TestMemoryKeepsAStoresPromises(t *testing.T) {
	limitertest.Run(t, limitertest.Harness{
		New: func(testing.TB) limiter.Store { return limiter.Must(limiter.NewMemory(limiter.MemoryOptions{})) },
	})
}
