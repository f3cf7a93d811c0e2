package leasestore

import (
	"strings"
	"testing"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
)

// conforms runs the suite but for the cases, by the end of their names, that leases deviate
// in, each with the reason. The suite's limits are so tight that most are decided exactly,
// unless half of them may be ahead; what it does with larger ones is not.
func conforms(t *testing.T, o Options, deviations map[string]string) {
	limitertest.Run(t, limitertest.Harness{
		New: func(t testing.TB) limiter.Store {
			for end, reason := range deviations {
				if strings.Contains(t.Name()+"/", "/"+strings.ReplaceAll(end, " ", "_")+"/") {
					t.Skip("deviates: " + reason)
				}
			}
			return newFake().instance(t, 1, o)
		},
	})
}

func TestLeasesKeepAStoresPromises(t *testing.T) {
	t.Parallel()
	inHand := "what is in hand when its window ends is returned by the next settlement, and until then counts as used"
	t.Run("by default", func(t *testing.T) { conforms(t, Options{}, nil) })
	t.Run("with half of it ahead", func(t *testing.T) {
		conforms(t, Options{Ahead: mostAhead}, map[string]string{
			"decides as Quota does": inHand,
			"RetryAfter is exact while some units remain/sliding-window-counter": inHand,
		})
	})
}
