package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/limiter"
)

// A lane applies one limit to the traffic.
type lane struct {
	quota    *limiter.Quota
	keeps    string
	arrivals []int64 // microseconds, ascending; the caller's slice
	cost     int64   // units of each arrival
	saved    []limiter.State

	course course // the latest; the next one reuses its memory
	passed []int64
}

// between is the number of arrivals from one saved state to the next.
const between = 256

func newLane(text string) (*lane, error) {
	limit, err := limiter.Parse(text)
	if err != nil {
		return nil, err
	}
	if limit.Calendar() != "" {
		return nil, fmt.Errorf("%v follows the calendar, which this page does not draw: try a fixed window of as many days, such as 1000/30d fixed-window", limit)
	}
	quota, err := limiter.NewQuota("playground", "", limit)
	if err != nil {
		return nil, err
	}
	return &lane{quota: quota, keeps: keeps[quota.Algorithm()]}, nil
}

// An axis is the time that is shown, and its number of points.
type axis struct {
	from, to int64
	points   int
}

func (a axis) point(i int) int64 {
	return a.from + int64(float64(a.to-a.from)*float64(i)/float64(max(1, a.points-1)))
}

// A course is the result of the traffic.
type course struct {
	// waits is how long each arrival waits, in microseconds, or -1 if it was refused.
	waits []float64

	// used is how many units were in use at each point of the axis.
	used []float64

	// most is the most units that passed within one period of the limit, which begins at from.
	most, from int64
}

// decide decides about all arrivals, of so many units each. The result is valid until the next call.
func (l *lane) decide(arrivals []int64, cost int64, a axis) course {
	l.arrivals, l.cost, l.saved = arrivals, cost, l.saved[:0]
	c := course{waits: slices.Grow(l.course.waits[:0], len(arrivals))[:len(arrivals)], used: slices.Grow(l.course.used[:0], a.points)}
	passed := l.passed[:0] // when arrivals passed, ascending
	var s limiter.State
	point := a.point(0)
	use := func(before int64) {
		for point < before && len(c.used) < a.points {
			d := l.quota.Describe(s, point, 0, true)
			c.used = append(c.used, float64(d.Limit-d.Remaining))
			point = a.point(len(c.used))
		}
	}
	queue := l.keeps == "queue"
	for i, at := range arrivals {
		use(at)
		if i%between == 0 {
			saved := s
			saved.Log = slices.Clone(s.Log) // a Take may append to it in place
			l.saved = append(l.saved, saved)
		}
		var ok bool
		if s, ok = l.quota.Take(s, at, cost); !ok {
			c.waits[i] = -1
			continue
		}
		c.waits[i] = 0
		if queue {
			d := l.quota.Describe(s, at, cost, true)
			c.waits[i] = float64(d.Delay.Microseconds())
			at += d.Delay.Microseconds()
		}
		passed = append(passed, at)
	}
	use(math.MaxInt64)

	first, per := 0, l.quota.Limit().Per.Microseconds()
	for last, at := range passed {
		for passed[first] <= at-per {
			first++
		}
		if n := int64(last-first+1) * cost; n > c.most {
			c.most, c.from = n, passed[first]
		}
	}
	l.course, l.passed = c, passed
	return c
}

// at returns the state at a time, after all arrivals until then.
func (l *lane) at(now int64) (s limiter.State) {
	arrived, _ := slices.BinarySearch(l.arrivals, now+1)
	if arrived == 0 {
		return s
	}
	from := (arrived - 1) / between
	s = l.saved[from]
	s.Log = slices.Clone(s.Log)
	for _, at := range l.arrivals[from*between : arrived] {
		s, _ = l.quota.Take(s, at, l.cost)
	}
	return s
}

// A view is a lane's state at a time. Durations are in microseconds.
type view struct {
	remaining int64
	next      int64   // until remaining grows
	retry     int64   // until an arrival is admitted; 0: now
	delay     int64   // how long an arrival would wait
	current   int64   // units in this window
	previous  int64   // units in the previous window
	log       []int64 // the times of the units that still count
}

func (l *lane) look(now int64) view {
	s := l.at(now)
	d := l.quota.Describe(s, now, 0, true)
	v := view{
		remaining: d.Remaining, next: d.NextAfter.Microseconds(), delay: d.Delay.Microseconds(),
		retry: l.quota.Describe(s, now, l.cost, d.Remaining >= l.cost).RetryAfter.Microseconds(),
	}
	per := l.quota.Limit().Per.Microseconds()
	switch now/per - s.Last/per { // windows that have begun since
	case 0:
		v.current, v.previous = s.Level, s.Prev
	case 1:
		v.previous = s.Level
	}
	for _, e := range s.Log {
		for range e.N {
			if e.At > now-per {
				v.log = append(v.log, e.At)
			}
		}
	}
	return v
}

// keeps names an algorithm's kind of state: a bucket of tokens, a queue, the count of one window or of
// two windows, or a log.
var keeps = map[limiter.Algorithm]string{
	limiter.TokenBucket: "bucket", limiter.LeakyBucket: "queue", limiter.FixedWindow: "window",
	limiter.SlidingCounter: "windows", limiter.SlidingLog: "log",
}

// limitsOfAll returns a limit of each algorithm. If an algorithm takes a burst, it is half of the
// events.
func limitsOfAll(events int64, per time.Duration) (texts []string) {
	var seen []limiter.Algorithm
	for a := limiter.Algorithm(0); ; a++ {
		if _, err := a.MarshalText(); err != nil {
			return texts
		}
		limit := limiter.Limit{Events: events, Per: per, Burst: (events + 1) / 2, Algorithm: a}
		if limit.Validate() != nil {
			limit.Burst = 0
		}
		quota, err := limiter.NewQuota("playground", "", limit)
		if err != nil || slices.Contains(seen, quota.Algorithm()) {
			continue // too many events for a log
		}
		seen = append(seen, quota.Algorithm())
		texts = append(texts, limit.String())
	}
}
