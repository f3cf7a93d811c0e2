package limiter_test

import (
	"testing"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
)

// Helpers of the tests inside the package.
var (
	everyAlgorithm = limiter.EveryAlgorithm
	inBubble       = limiter.InBubble
	mustQuota      = limiter.MustQuota
	named          = limiter.Named
	refunds        = limiter.Refunds
	debts          = limiter.Debts
)

func TestMemoryKeepsAStoresPromises(t *testing.T) {
	limitertest.Run(t, limitertest.Harness{
		New: func(testing.TB) limiter.Store { return limiter.Must(limiter.NewMemory(limiter.MemoryOptions{})) },
	})
}
