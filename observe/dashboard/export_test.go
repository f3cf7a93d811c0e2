package dashboard

import (
	"time"

	"github.com/weirgo/weir/middleware"
)

// Age makes a page one that has been there for so long, for tests on the real clock.
func (d *Dashboard) Age(by time.Duration) { d.start = d.start.Add(-by) }

// Remember has a page have counted so much of a rule in the points of a span, the first "hour".
// Point 0 is the oldest.
func (d *Dashboard) Remember(rule string, span int, asked, refused func(point int) uint32) {
	c := &d.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	now := d.now()
	c.fold(now)
	s := c.byName[seriesName{rule, ""}]
	s.began = 0
	first := now/steps[span] - int64(len(s.askedPast[span].points)) + 1
	for i := range len(s.askedPast[span].points) - 1 {
		point := (first + int64(i)) % int64(len(s.askedPast[span].points))
		s.askedPast[span].points[point], s.refusedPast[span].points[point] = asked(i), refused(i)
		c.outcomePast[middleware.OutcomeAllowed][span].points[point] = asked(i) - refused(i)
		c.outcomePast[middleware.OutcomeRefused][span].points[point] = refused(i)
	}
}
