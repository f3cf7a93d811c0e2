package leasestore

import (
	"strings"
	"testing"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/limitertest"
)

// conforms runs the suite but for the cases, by the end of their names, that a mode deviates
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

func TestLeasedKeepsAStoresPromises(t *testing.T) {
	t.Parallel()
	inHand := "what is in hand when its window ends is returned by the next settlement, and until then counts as used"
	t.Run("by default", func(t *testing.T) { conforms(t, Options{Mode: Leased}, nil) })
	t.Run("with half of it ahead", func(t *testing.T) {
		conforms(t, Options{Mode: Leased, Ahead: mostAhead}, map[string]string{
			"decides as the quota does":                                    inHand,
			"RetryAfter is exact while some remain/sliding-window-counter": inHand,
		})
	})
}

func TestSynchronizedKeepsAStoresPromises(t *testing.T) {
	t.Parallel()
	counters := "where a limit's mode changes with it, so does its counter, which begins anew"
	late := "a bucket that was full begins to refill when Redis has heard of what was used: an exchange later, at most"
	ended := "what is left of a new window is known an exchange after the one before has ended"
	told := "what is told when its window has ended counts in the next"
	spent := "who has used up all of a limit since the last exchange waits for the next, though some may have come back"
	t.Run("by default", func(t *testing.T) {
		conforms(t, Options{Mode: Synchronized}, map[string]string{
			"counts exactly at the greatest limits":                                spent,
			"a changed limit keeps what was used":                                  counters,
			"two limits in turn admit no more than the larger":                     counters,
			"a limit that ceases to be exact, and is exact again, forgets nothing": counters,
			"what is settled under an old limit forgets nothing":                   counters,
			"a raised limit is one for keys that only owe, too":                    counters,
		})
	})
	t.Run("with half of it ahead", func(t *testing.T) {
		conforms(t, Options{Mode: Synchronized, Ahead: mostAhead}, map[string]string{
			"counts exactly at the greatest limits":                                spent,
			"a changed limit keeps what was used":                                  counters,
			"two limits in turn admit no more than the larger":                     counters,
			"a limit that ceases to be exact, and is exact again, forgets nothing": counters,
			"what is settled under an old limit forgets nothing":                   counters,
			"a raised limit is one for keys that only owe, too":                    counters,
			"what is owed outlives its window/token-bucket":                        late,
			"what is owed above one limit is forgiven/token-bucket":                late,
			"what is owed above one limit is forgiven/sliding-window-counter":      told,
			"what is owed above one limit is forgiven/fixed-window":                told,
			"what is owed outlives its window/sliding-window-counter":              told,
			"what is owed outlives its window/fixed-window":                        told,
			"a refusal takes nothing and changes nothing/token-bucket":             late,
			"RetryAfter is exact while some remain/token-bucket":                   late,
			"RetryAfter is exact while some remain/sliding-window-counter":         ended,
			"RetryAfter is exact while some remain/fixed-window":                   ended,
			"giving back to an unknown key is harmless/sliding-window-counter":     ended,
			"giving back to an unknown key is harmless/fixed-window":               ended,
			"ResetAfter is exact/token-bucket":                                     late,
			"decides as the quota does":                                            late,
		})
	})
}
