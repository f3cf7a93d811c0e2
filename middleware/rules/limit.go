package rules

import "github.com/weirgo/weir/limiter"

// limits makes the limits of f. With none, f may have no limit. It returns nil if something is wrong.
func (c *checker) limits(path []string, f *limitFields, none bool) (several []limiter.Limit) {
	at := sub(path, "limits")
	if !c.doc.has(at...) {
		if none && f.Limit == nil && f.Requests == nil && f.Window == nil {
			return nil
		}
		if l := c.limit(path, f); l != (limiter.Limit{}) {
			return []limiter.Limit{l}
		}
		return nil
	}
	for _, field := range limitNames {
		if field != "limits" && field != "algorithm" && c.doc.has(sub(path, field)...) {
			c.at(at, "stands beside %s: keep one of the two", field)
			return nil
		}
	}
	if c.noted(at) || c.noted(sub(path, "algorithm")) {
		return nil
	}
	for _, given := range f.Limits {
		l, ok := c.withAlgorithm(path, given, f.Algorithm)
		if !ok {
			return nil
		}
		several = append(several, l)
	}
	if _, err := limiter.NewQuotas("rule", "", limiter.Join(several, limiter.Concurrency{})); err != nil {
		c.at(at, "%s", inFile(err))
		return nil
	}
	return several
}

// limit makes the limit of f, in either spelling. It returns the zero Limit if something is wrong.
func (c *checker) limit(path []string, f *limitFields) limiter.Limit {
	var given limitText
	for _, field := range limitNames {
		if c.noted(sub(path, field)) {
			return limiter.Limit{}
		}
	}
	switch {
	case f.Limit != nil && (f.Requests != nil || f.Window != nil):
		c.at(path, "has limit beside requests or window: keep one of the two spellings")
		return limiter.Limit{}
	case f.Limit != nil:
		given = *f.Limit
	case f.Requests != nil && f.Window != nil:
		given.Limit, given.named = f.Window.of, f.Window.of.Algorithm != limiter.SlidingWindow
		given.Events = *f.Requests
	case f.Requests != nil:
		c.at(sub(path, "requests"), "needs a window, the period in which so many requests are allowed")
		return limiter.Limit{}
	case f.Window != nil:
		c.at(sub(path, "window"), "needs requests, the number that is allowed in the window")
		return limiter.Limit{}
	case c.doc.has(sub(path, "concurrency")...):
		for _, field := range []string{"algorithm", "burst"} {
			if c.doc.has(sub(path, field)...) {
				c.at(sub(path, field), "needs a limit: concurrency has none")
			}
		}
		return limiter.Limit{}
	default:
		if !c.noted(path) { // which may be no mapping at all
			c.at(path, "has no limit: write limit: 100/1m, or requests and window, or concurrency: 5")
		}
		return limiter.Limit{}
	}
	l, ok := c.withAlgorithm(path, given, f.Algorithm)
	if !ok {
		return limiter.Limit{}
	}
	switch {
	case f.Burst == nil:
	case l.Burst != 0:
		c.at(sub(path, "burst"), "is given in limit too: keep one")
		return limiter.Limit{}
	case f.Algorithm == nil:
		l = l.WithBurst(*f.Burst)
	default:
		l.Burst = *f.Burst
	}
	if err := l.Validate(); err != nil {
		at := path
		if f.Limit != nil && f.Burst == nil {
			at = sub(path, "limit")
		}
		c.reject(at, err)
		return limiter.Limit{}
	}
	return l
}

// withAlgorithm returns a limit with the algorithm beside it, if there is one, or false if it has another one.
func (c *checker) withAlgorithm(path []string, given limitText, a *algorithm) (limiter.Limit, bool) {
	if a == nil {
		return given.Limit, true
	}
	if given.named && given.Algorithm != a.Algorithm {
		c.at(sub(path, "algorithm"), "is %v, but the limit %v has another algorithm: keep one", a.Algorithm, given.Limit)
		return limiter.Limit{}, false
	}
	given.Algorithm = a.Algorithm
	return given.Limit, true
}

// concurrency makes the Concurrency of f. It returns the zero Concurrency if something is wrong.
func (c *checker) concurrency(path []string, f *limitFields) (of limiter.Concurrency) {
	path = sub(path, "concurrency")
	given := f.Concurrency
	if given == nil || c.noted(path) {
		return of
	}
	of.Max = *given.Max
	if given.Queue != nil {
		of.Waiting = int(*given.Queue)
	}
	if given.MaxWait != nil {
		of.MaxWait = given.MaxWait.Duration
	}
	if err := of.Validate(); err != nil {
		c.reject(path, err)
		return limiter.Concurrency{}
	}
	return of
}

// limitNames are the fields that make a limit.
var limitNames = []string{"limit", "limits", "requests", "window", "algorithm", "burst"}
