package rules

import (
	"cmp"

	"github.com/weirgo/weir/limiter"
)

// limit makes one of either spelling. What is wrong is noted, and the zero Limit returned.
func (c *checker) limit(path []string, f *limitFields) (l limiter.Limit) {
	for _, field := range []string{"limit", "requests", "window", "algorithm", "burst"} {
		if c.noted(sub(path, field)) {
			return limiter.Limit{}
		}
	}
	before := len(c.list)
	burstAt := sub(path, "burst")
	switch {
	case f.Limit != nil && (f.Requests != nil || f.Window != nil):
		c.at(path, "has limit, and requests or window too: they are two ways to write one thing, keep one")
		return limiter.Limit{}
	case f.Limit != nil:
		l = f.Limit.Limit
		burstAt = sub(path, "limit")
	case f.Requests == nil && f.Window == nil:
		if !c.noted(path) { // which may be no mapping at all
			c.at(path, "has no limit: write limit: 100/1m, or requests and window")
		}
		return limiter.Limit{}
	case f.Window == nil:
		c.at(sub(path, "requests"), "needs a window, the time that so many requests fit in")
		return limiter.Limit{}
	case f.Requests == nil:
		c.at(sub(path, "window"), "needs requests, how many fit in the window")
		return limiter.Limit{}
	default:
		l = limiter.Limit{Events: *f.Requests, Per: f.Window.Duration}
		if l.Events < 1 {
			c.at(sub(path, "requests"), "is %d: it must be at least 1", l.Events)
		}
	}
	if a := f.Algorithm; a != nil {
		if l.Algorithm != limiter.SlidingWindow && l.Algorithm != a.Algorithm {
			c.at(sub(path, "algorithm"), "is %v, but limit says %v: keep one", a.Algorithm, l.Algorithm)
		}
		l.Algorithm = a.Algorithm
	}
	if f.Burst != nil {
		burstAt = sub(path, "burst")
		switch {
		case *f.Burst < 1:
			c.at(burstAt, "is %d: it must be at least 1", *f.Burst)
		case l.Burst != 0:
			c.at(burstAt, "is given in limit too: keep one")
		case f.Algorithm == nil:
			l = l.WithBurst(*f.Burst)
		default:
			l.Burst = *f.Burst
		}
	}
	if len(c.list) > before {
		return limiter.Limit{}
	}
	if err := l.Validate(); err != nil {
		at := sub(path, cmp.Or(map[bool]string{true: "limit"}[f.Limit != nil], "requests"))
		if l.Burst != 0 && withoutBurst(l).Validate() == nil {
			at = burstAt
		}
		c.at(at, "%s", inFile(err))
		return limiter.Limit{}
	}
	return l
}

func withoutBurst(l limiter.Limit) limiter.Limit {
	l.Burst = 0
	return l
}
