package limiter

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
)

// Limits that come and go, as those of plans and of files that are loaded anew: each is counted, and
// none is remembered when what it counted has come back.
func TestMemoryTakesAnyNumberOfLimitsOneAfterTheOther(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m := newMemory(t, 0)
		lasting := named(t, "lasting", "", Monthly(1e12))
		const limits = 200_000
		used := int64(0)
		for i := range int64(limits) {
			l := Limit{Events: 100 + i, Per: time.Minute}.With([]Algorithm{TokenBucket, SlidingCounter, FixedWindow}[i%3])
			q := named(t, "rule", "", l)
			require.True(t, m.take(q, fmt.Sprint("key ", i%5000), 1), "limit %d", i)
			require.True(t, m.take(lasting, "key", 1))
			if used++; i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		start, _ := lasting.WindowAt(m.now())
		if now := m.now(); now-start > 3e9 { // all of it was in this month
			assert.Equal(t, used, lasting.Capacity()-m.remaining(lasting, "key"))
		}
		assert.Less(t, m.tags.given, maxTags, "no more tags are given than are in use at a time, about")
		assert.Less(t, len(m.tags.names), maxTags)
		runtime.GC()
		time.Sleep(time.Hour)
		m.register.Lock()
		m.reclaim()
		left := len(m.tags.names)
		m.register.Unlock()
		assert.Equal(t, 1, left, "what is left is the limit that is in use")
		assert.LessOrEqual(t, m.Stats().Bytes, 1<<20)
		runtime.KeepAlive(lasting)
	})
}

// A lasting quota's cells are decided on without a lock while tags go from one limit to the next.
func TestATagThatIsGivenAgainIsNeverReadAsWhatItWas(t *testing.T) {
	m := newMemory(t, 0)
	m.tags.few, m.tags.enough, m.tags.most = 8, 8, 2000
	const rules = 6
	var lasting []*Quota
	for i := range rules {
		l := []Limit{
			PerDay(1e11).With(FixedWindow), PerDay(1e11).With(TokenBucket), Yearly(1e12).In("Asia/Kolkata"),
			PerDay(1e11), Limit{Events: 10, Per: 24 * time.Hour}, PerDay(10_000).With(SlidingLog),
		}[i]
		lasting = append(lasting, named(t, fmt.Sprint("lasting ", i), "", l))
	}
	var counts [rules]atomic.Int64
	var busy, churn sync.WaitGroup
	var ended atomic.Bool
	for g := range 4 {
		busy.Go(func() {
			for i := g; !ended.Load(); i++ {
				q := lasting[i%rules]
				if m.take(q, "key", 1) {
					counts[i%rules].Add(1)
				}
			}
		})
		churn.Go(func() {
			for i := range 3000 {
				l := Limit{Events: int64(1 + i + 3000*g), Per: time.Microsecond << (i % 10 * 2)}
				if l.Validate() != nil {
					continue
				}
				q, err := NewQuota(fmt.Sprint("passing ", i%40), "", l)
				if err == nil {
					_ = m.Decide(t.Context(), []Charge{{Quota: q, Key: "key", Cost: 1}}, make([]Decision, 1))
				}
				if i%100 == 0 {
					runtime.GC()
				}
			}
		})
	}
	churn.Wait()
	ended.Store(true)
	busy.Wait()
	for i, q := range lasting {
		want := counts[i].Load()
		if q.algorithm == &tokenBucket {
			assert.GreaterOrEqual(t, want, q.capacity-m.remaining(q, "key"), "%v", q.limit)
			continue
		}
		assert.Equal(t, want, q.capacity-m.remaining(q, "key"), "%v", q.limit)
	}
	runtime.KeepAlive(lasting)
}

// What a key has used under a limit that nothing else uses any more is known when it returns, under
// another, and its tag is kept until then.
func TestATagIsKeptAsLongAsACellHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, 0)
		m.tags.few, m.tags.enough = 1, 1
		require.True(t, m.take(named(t, "rule", "", Daily(1000)), "key", 300))
		for i := range int64(200) {
			runtime.GC()
			m.remaining(named(t, "other", "", PerDay(50+i)), "key")
		}
		assert.LessOrEqual(t, m.tags.given, 20)
		assert.EqualValues(t, 1700, m.remaining(named(t, "rule", "", Daily(2000)), "key"))
	})
}
