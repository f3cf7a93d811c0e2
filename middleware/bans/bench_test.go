package bans_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/bans"
)

func BenchmarkFind(b *testing.B) {
	for _, count := range []int{0, 1, 100_000} {
		b.Run(fmt.Sprint(count, " bans"), func(b *testing.B) {
			m := newMemory(b, bans.Options{})
			for i := range count {
				require.NoError(b, m.Ban(b.Context(), fmt.Sprint("banned ", i), 0))
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					m.Find("203.0.113.7")
				}
			})
		})
	}
}
