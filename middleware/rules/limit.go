package rules

import "github.com/weirgo/weir/limiter"

// limits makes the limits of f, in any of its spellings. With none, f may have no limit. It returns nil if something is
// wrong.
func (c *checker) limits(path []string, f *limitFields, none bool) (made []limiter.Limit) {
	has := func(field string) bool { return c.doc.Has(sub(path, field)...) }
	for _, field := range limitNames {
		if c.noted(sub(path, field)) {
			return nil
		}
	}
	var given []limitText
	at := path
	switch {
	case has("limits"):
		at, given = sub(path, "limits"), f.Limits
		for _, field := range []string{"limit", "requests", "window", "burst"} {
			if has(field) {
				c.at(at, "stands beside %s: keep one of the two", field)
				return nil
			}
		}
	case f.Limit != nil && (f.Requests != nil || f.Window != nil):
		c.at(path, "has limit beside requests or window: keep one of the two spellings")
	case f.Limit != nil:
		at, given = sub(path, "limit"), []limitText{*f.Limit}
	case f.Requests != nil && f.Window != nil:
		l := limitText{f.Window.of, f.Window.of.Algorithm != limiter.SlidingWindow}
		l.Events = *f.Requests
		given = []limitText{l}
	case f.Requests != nil:
		c.at(sub(path, "requests"), "needs a window, the period in which so many requests are allowed")
	case f.Window != nil:
		c.at(sub(path, "window"), "needs requests, the number that is allowed in the window")
	case none:
	case has("concurrency"):
		for _, field := range []string{"algorithm", "burst"} {
			if has(field) {
				c.at(sub(path, field), "needs a limit: concurrency has none")
			}
		}
	case !c.noted(path): // or it is no mapping at all
		c.at(path, "has no limit: write limit: 100/1m, or requests and window, or concurrency: 5")
	}
	for _, text := range given {
		l, ok := c.withAlgorithm(path, text, f.Algorithm)
		if !ok {
			return nil
		}
		made = append(made, l)
	}
	if len(made) == 0 {
		return nil
	}
	if has("limits") {
		if _, err := limiter.NewQuotas("rule", "", limiter.Join(made, limiter.Concurrency{})); err != nil {
			c.at(at, "%s", inFile(err))
			return nil
		}
		return made
	}
	l := &made[0]
	if f.Burst != nil {
		if at = path; l.Burst != 0 {
			c.at(sub(path, "burst"), "is given in limit too: keep one")
			return nil
		}
		if l.Burst = *f.Burst; f.Algorithm == nil {
			*l = l.WithBurst(*f.Burst)
		}
	}
	if err := l.Validate(); err != nil {
		c.reject(at, err)
		return nil
	}
	return made
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
