package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
)

func newMemory(tb testing.TB, o limiter.MemoryOptions) *limiter.Memory {
	tb.Helper()
	m, err := limiter.NewMemory(o)
	require.NoError(tb, err)
	return m
}

func TestMemoryKeepsAStoresPromises(t *testing.T) {
	limitertest.Run(t, limitertest.Harness{
		New: func(t testing.TB) limiter.Store { return newMemory(t, limiter.MemoryOptions{}) },
	})
}
