package pace_test

import (
	"sync"

	"github.com/weirgo/weir/pace"
)

// observed keeps what it was told.
type observed struct {
	mu   sync.Mutex
	seen []pace.Observation
}

func (s *observed) ObserveAttempt(o *pace.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, *o)
}

func (s *observed) all() []pace.Observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]pace.Observation(nil), s.seen...)
}
