package rules

import (
	"cmp"

	"github.com/weirgo/weir/limiter"
)

// limits makes those of f: one, or several, or none where there need not be any. What is wrong
// is noted, and the zero Limit returned, or none of several.
func (c *checker) limits(path []string, f *limitFields, none bool) (one limiter.Limit, several []limiter.Limit) {
	at := sub(path, "limits")
	if !c.doc.Has(at...) {
		if none && f.Limit == nil && f.Requests == nil && f.Window == nil {
			return limiter.Limit{}, nil
		}
		return c.limit(path, f), nil
	}
	for _, field := range []string{"limit", "requests", "window", "algorithm", "burst"} {
		if c.doc.Has(sub(path, field)...) {
			c.at(at, "stands beside %s: keep one of the two", field)
			return limiter.Limit{}, nil
		}
	}
	switch {
	case c.noted(at):
		return limiter.Limit{}, nil
	case len(f.Limits) == 0:
		c.at(at, "is empty: name the limits, or write limit: 100/1m")
		return limiter.Limit{}, nil
	}
	for i, l := range f.Limits {
		if len(f.Limits) > 1 && l.Algorithm == limiter.LeakyBucket {
			c.at(c.element(at, i), "is a leaky_bucket beside other limits: its requests wait their turn, and could not meet another")
		}
		for _, other := range several {
			if other.Per == l.Per {
				c.at(c.element(at, i), "has the window of %v: keep one of the two", other)
			}
		}
		several = append(several, l.Limit)
	}
	if c.noted(at) {
		return limiter.Limit{}, nil
	}
	if _, err := limiter.NewQuotas("rule", "", several); err != nil {
		c.at(at, "%s", inFile(err))
		return limiter.Limit{}, nil
	}
	for _, l := range several {
		for _, by := range several {
			if by != l && by.Implies(l) {
				c.warnings.at(at, "has %v, which has no effect beside %v, a stricter one in any period", l, by)
			}
		}
	}
	return limiter.Limit{}, several
}

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
	case f.Requests == nil && f.Window == nil && f.Algorithm == nil && f.Burst == nil && c.doc.Has(sub(path, "concurrency")...):
		return limiter.Limit{} // there is nothing else
	case f.Requests == nil && f.Window == nil:
		if !c.noted(path) { // which may be no mapping at all
			c.at(path, "has no limit: write limit: 100/1m, or requests and window, or concurrency: 5")
		}
		return limiter.Limit{}
	case f.Window == nil:
		c.at(sub(path, "requests"), "needs a window, the time that so many requests fit in")
		return limiter.Limit{}
	case f.Requests == nil:
		c.at(sub(path, "window"), "needs requests, how many fit in the window")
		return limiter.Limit{}
	default:
		l = f.Window.of
		l.Events = *f.Requests
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
