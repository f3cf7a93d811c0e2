package dashboard

import (
	"math"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/middleware"
)

func TestAnHourAndADayHaveWhatWasCountedInThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, model := &past{}, map[int64]uint64{}
		var now int64
		var total uint64
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if later := rapid.SampledFrom([]int64{0, 1, 1, 5, 12, 13, 100, 288, 3599, 3600, 10_000, 86_400, 100_000}).Draw(t, "later"); later > 0 {
				p.fold(total, now, now+later)
				now += later
			}
			n := rapid.Uint64Range(0, 1000).Draw(t, "n")
			total += n
			model[now] += n
		}
		p.fold(total, now, now+1)
		now++
		for i, step := range steps {
			points := p.rates(i, total, now)
			if len(points) != span {
				t.Fatalf("there are %d points, want %d", len(points), span)
			}
			sum := uint64(0)
			for j, got := range points {
				begin := (now+step-1)/step*step + int64(j-span)*step
				end, want := min(begin+step, now), uint64(0)
				for second, n := range model {
					if begin <= second && second < end {
						want += n
					}
				}
				sum += want
				if rate := float64(want) / float64(end-begin); math.Abs(got-rate) > 0.001 {
					t.Fatalf("the point from %d to %d of %d s is %v, want %v", begin, end, step, got, rate)
				}
			}
			if got := p.sum(i, total, now); got < sum { // at most a point more
				t.Fatalf("the sum is %d, of points that come to %d", got, sum)
			}
		}
	})
}

func lookBack(t *testing.T, d *Dashboard, query url.Values) *pastView {
	t.Helper()
	v, err := d.lookBack(query)
	require.NoError(t, err)
	return v
}

func TestBeforeTheProcessBeganNothingIsKnown(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		d := newDashboard(t, Options{})
		ip, late := &middleware.RuleInfo{Name: "ip"}, &middleware.RuleInfo{Name: "late"}
		d.Observe(observed(ip, "a", true))
		time.Sleep(10 * time.Minute)
		for range 24 {
			d.Observe(observed(late, "a", false))
		}
		time.Sleep(12 * time.Second)

		v := lookBack(t, d, url.Values{"span": {"hour"}})
		assert.Equal(t, 612/12, v.Known)
		assert.Equal(t, time.Now().Unix(), v.End)
		assert.Len(t, v.All[middleware.OutcomeRefused], span)
		assert.Equal(t, 2.0, v.All[middleware.OutcomeRefused][span-1])
		assert.Nil(t, v.Asked, "no rule was asked for")

		v = lookBack(t, d, url.Values{"span": {"hour"}, "rule": {"late"}})
		assert.Equal(t, 1, v.Known, "of this rule")
		assert.Equal(t, 2.0, v.Refused[span-1])
		v = lookBack(t, d, url.Values{"span": {"day"}, "rule": {"ip"}})
		assert.Equal(t, 3, v.Known)
		assert.Equal(t, 0.003, v.Asked[span-3], "one in 288 s")

		time.Sleep(2 * 24 * time.Hour)
		v = lookBack(t, d, url.Values{"span": {"day"}})
		assert.Equal(t, span, v.Known)
		for _, outcome := range v.All {
			for _, n := range outcome {
				assert.Zero(t, n)
			}
		}
		_, err := d.lookBack(url.Values{"span": {"week"}})
		assert.ErrorAs(t, err, new(mistake))
	})
}
