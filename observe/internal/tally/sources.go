package tally

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
)

// A Watcher keeps rules at what is written, as that of package rules does.
type Watcher interface{ Overload() middleware.Overload }

// Sources are what an adapter reads metrics from. W is its Watcher.
type Sources[W Watcher] struct {
	*Tally
	Paced *Paced

	adapter string // its package, for errors
	given   *shed.Limiter
	placing placing
	watcher atomic.Pointer[W]
}

const (
	defaultMaxRules = 1000
	mostMaxRules    = 100_000
)

// NewSources returns Sources in which nothing was counted, or an error about maxRules. A nil
// overload is that of the rules that are followed.
func NewSources[W Watcher](adapter string, store limiter.Store, overload *shed.Limiter, maxRules int) (*Sources[W], error) {
	if maxRules < 0 || maxRules > mostMaxRules {
		return nil, fmt.Errorf("%s: MaxRules is %d: it must be from 1 to %d, or 0 for %d", adapter, maxRules, mostMaxRules, defaultMaxRules)
	}
	maxRules = cmp.Or(maxRules, defaultMaxRules)
	return &Sources[W]{Tally: New(store, maxRules), Paced: NewPaced(maxRules), adapter: adapter, given: overload}, nil
}

// Follow has metrics read from a watcher. Of several it is the last one.
func (s *Sources[W]) Follow(w W) error {
	if v := reflect.ValueOf(w); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New(s.adapter + ": Follow needs a Watcher")
	}
	s.watcher.Store(&w)
	return nil
}

// Watcher is the one that is followed.
func (s *Sources[W]) Watcher() (w W, ok bool) {
	if found := s.watcher.Load(); found != nil {
		return *found, true
	}
	return w, false
}

// FollowLimiter adds what is in progress in a limiter, once.
func (s *Sources[W]) FollowLimiter(l *middleware.RateLimit) error {
	if l == nil {
		return errors.New(s.adapter + ": FollowLimiter needs a RateLimit")
	}
	s.placing.follow(l)
	return nil
}

// overload is the limit in force, or nil.
func (s *Sources[W]) overload() *shed.Limiter {
	l := s.given
	if w, ok := s.Watcher(); ok && l == nil {
		l, _ = w.Overload().(*shed.Limiter)
	}
	return l
}
