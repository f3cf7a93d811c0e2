package rules

import "github.com/weirgo/weir/limiter"

// concurrency is how many requests may be in progress at once, and how many wait. What is wrong
// is noted, and the zero Concurrency returned.
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
		c.at(path, "%s", inFile(err))
		return limiter.Concurrency{}
	}
	return of
}
