package house_test

import (
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

// The picture in docs/algorithms.md: what each algorithm makes of the same traffic.
const (
	picture = "docs/pictures/algorithms.svg"
	period  = 10 * time.Second
	shown   = 4 * period
	origin  = 1_000_000_000_000 // microseconds; a window begins
)

var drawn = []struct {
	limit limiter.Limit
	says  string
}{
	{limiter.Limit{Events: 10, Per: period}.With(limiter.SlidingCounter), "what the last 10 s still hold of both windows"},
	{limiter.Limit{Events: 10, Per: period}.WithBurst(5), "5 at once, then one a second"},
	{limiter.Limit{Events: 10, Per: period, Burst: 5}.With(limiter.LeakyBucket), "5 wait, and leave one a second"},
	{limiter.Limit{Events: 10, Per: period}.With(limiter.FixedWindow), "10 in each window, so 20 around a boundary"},
	{limiter.Limit{Events: 10, Per: period}.With(limiter.SlidingLog), "what a sliding window of so few is"},
}

// aroundAnEdge is when requests arrive: much around a boundary of windows, then twice of what is
// allowed, then a pause, and many at once.
func aroundAnEdge() (at []time.Duration) {
	add := func(from, every time.Duration, n int) {
		for i := range n {
			at = append(at, from+time.Duration(i)*every)
		}
	}
	add(7*time.Second, 250*time.Millisecond, 10)
	add(10250*time.Millisecond, 250*time.Millisecond, 10)
	add(15*time.Second, 500*time.Millisecond, 18)
	add(32*time.Second, 200*time.Millisecond, 12)
	return at
}

// A course is what became of the traffic.
type course struct {
	quota   *limiter.Quota
	passed  []time.Duration // when each that was allowed went on
	refused []time.Duration
	used    []int64 // of the capacity, at each of steps
}

const steps = 400

func decide(t *testing.T, limit limiter.Limit) course {
	t.Helper()
	quota, err := limiter.NewQuota("picture", "", limit)
	require.NoError(t, err)
	c := course{quota: quota}
	arrivals := aroundAnEdge()
	var state limiter.State
	for step := range steps {
		end := time.Duration(step) * shown / steps
		for len(arrivals) > 0 && arrivals[0] <= end {
			at := arrivals[0]
			now := origin + at.Microseconds()
			after, ok := quota.Take(state, now, 1)
			if state = after; ok {
				c.passed = append(c.passed, at+quota.Describe(state, now, 1, true).Delay)
			} else {
				c.refused = append(c.refused, at)
			}
			arrivals = arrivals[1:]
		}
		d := quota.Describe(state, origin+end.Microseconds(), 0, true)
		c.used = append(c.used, d.Limit-d.Remaining)
	}
	return c
}

// name is the limit as text, with the algorithm of one that leaves it out.
func (c course) name() string {
	limit := c.quota.Limit()
	if name := limit.Algorithm.String(); !strings.Contains(limit.String(), name) {
		return limit.String() + " " + name
	}
	return limit.String()
}

// most is how many went on within one period.
func (c course) most() int {
	most := 0
	for i, from := range c.passed {
		n := 0
		for _, at := range c.passed[i:] {
			if at < from+period {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func (c course) figures() string {
	return fmt.Sprintf("%d of %d allowed, at most %d in any %d s",
		len(c.passed), len(aroundAnEdge()), c.most(), int(period.Seconds()))
}

const pictureStyle = `<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.name { font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.used { fill: #eaeef2 } .cap { stroke: #8c959f } .window { stroke: #d1d9e0; stroke-dasharray: 2 3 }
.passed { stroke: #0969da; stroke-width: 2 } .refused { stroke: #cf222e; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
	text { fill: #e6edf3 }
	.small { fill: #9198a1 }
	.used { fill: #262c36 } .cap { stroke: #656c76 } .window { stroke: #3d444d }
	.passed { stroke: #4493f8 } .refused { stroke: #f85149 }
}
</style>
`

func draw(courses []course) string {
	const left, width, top, height, row = 8, 744, 44, 40, 108
	var b strings.Builder
	x := func(at time.Duration) float64 { return left + width*at.Seconds()/shown.Seconds() }
	text := func(x float64, y int, class, text string) {
		fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, html.EscapeString(text))
	}
	ticks := func(class string, from, to int, at []time.Duration) {
		fmt.Fprintf(&b, "<path class=\"%s\" d=\"", class)
		for _, at := range at {
			fmt.Fprintf(&b, "M%.1f %dV%d", x(at), from, to)
		}
		b.WriteString("\"/>\n")
	}
	bottom := top + row*len(courses)
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 %d\" width=\"760\" height=\"%d\" role=\"img\" aria-label=\"Five algorithms on the same traffic\">\n", bottom+8, bottom+8)
	b.WriteString(pictureStyle)
	text(left, 14, "small", "Above each line: requests that go on, blue, at that time; grey: how much of the limit is used.")
	text(left, 29, "small", "Below it: requests that are refused, red. Dotted: windows of 10 s begin.")
	for i, c := range courses {
		y := top + i*row
		text(left, y+12, "name", c.name())
		text(left, y+27, "small", drawn[i].says+": "+c.figures())
		base := y + 34 + height
		fmt.Fprintf(&b, "<path class=\"used\" d=\"M%d %d", left, base)
		last := int64(-1)
		for step, used := range c.used {
			if used != last {
				fmt.Fprintf(&b, "H%.1fV%.1f", x(time.Duration(step)*shown/steps), float64(base)-float64(height)*float64(used)/float64(c.quota.Capacity()))
			}
			last = used
		}
		fmt.Fprintf(&b, "H%dV%dz\"/>\n", left+width, base)
		for at := period; at < shown; at += period {
			fmt.Fprintf(&b, "<path class=\"window\" d=\"M%.1f %dV%d\"/>\n", x(at), base-height, base+14)
		}
		fmt.Fprintf(&b, "<path class=\"cap\" d=\"M%d %dH%d\"/>\n", left, base, left+width)
		ticks("passed", base-1, base-16, c.passed)
		ticks("refused", base+2, base+12, c.refused)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// WEIR_UPDATE=1 go test -run Picture . draws it again.
func TestThePictureOfTheAlgorithmsIsWhatTheyDecide(t *testing.T) {
	var courses []course
	alt := "Five algorithms deciding on the same 50 requests."
	for _, d := range drawn {
		c := decide(t, d.limit)
		courses = append(courses, c)
		alt += fmt.Sprintf(" %s: %s.", c.name(), c.figures())
	}
	svg := draw(courses)
	if os.Getenv("WEIR_UPDATE") != "" {
		require.NoError(t, os.WriteFile(picture, []byte(svg), 0o644))
	}
	assert.Equal(t, svg, readPage(t, picture), "the picture is of other decisions")
	assert.Contains(t, readPage(t, "docs/algorithms.md"), "!["+alt+"](pictures/algorithms.svg)", "and so are the words in its place")
}
