package offenders

import (
	"math/rand/v2"
	"sync/atomic"
)

// To count a request takes some 45 ns. That is much beside a limiter that lets it pass in 600,
// so where there are plenty, one in sample is counted of those, as that many.
const (
	plenty = 4096 // in a stripe and a step
	sample = 16
)

// A sampling says which rules have plenty, by their names, and without looking them up: some
// may share a place. One that has little is then sampled too, which makes its counts less
// sure, and not wrong.
type sampling [256]atomic.Int64 // the last step with plenty

func (s *sampling) of(rule string) *atomic.Int64 {
	at := len(rule)
	for _, c := range []byte(rule[max(0, len(rule)-4):]) {
		at = at*31 + int(c)
	}
	return &s[at%len(s)]
}

// weight is what a request counts that is let pass: 0 if it is not in the sample.
func (s *sampling) weight(rule string, now int64) uint64 {
	switch {
	case s.of(rule).Load() != now:
		return 1
	case rand.Uint32()%sample != 0:
		return 0
	}
	return sample
}

// note tells how many a stripe has of a rule.
func (s *sampling) note(rule string, now int64, total uint64) {
	if step := s.of(rule); total >= plenty && step.Load() < now {
		step.Store(now)
	}
}
