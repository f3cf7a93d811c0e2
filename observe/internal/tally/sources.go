package tally

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
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
	watcher atomic.Pointer[W]

	mu     sync.Mutex
	limits []*middleware.RateLimit
}

const (
	defaultMaxRules = 1000
	mostMaxRules    = 100_000
)

// NewSources returns Sources in which nothing was counted, or an error about maxRules. If
// overload is nil, it is the one in force in the rules that are followed.
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

// Watcher is the source of rules that is followed.
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.limits, l) {
		s.limits = append(s.limits, l)
	}
	return nil
}

// inProgress is that of all limiters that are followed, of as many rules and tiers as are told
// apart. Rules of one name in several limiters are told together, with the Rule of the first.
func (s *Sources[W]) inProgress() (all []middleware.InProgress) {
	s.mu.Lock()
	limits := slices.Clip(s.limits)
	s.mu.Unlock()
	at := map[name]int{}
	for _, l := range limits {
		for _, of := range l.InProgress() {
			n := name{of.Rule.Name, of.Rule.Tier}
			i, known := at[n]
			switch {
			case known:
				all[i].Requests += of.Requests
				all[i].Waiting += of.Waiting
			case len(all) < s.most:
				at[n] = len(all)
				all = append(all, of)
			}
		}
	}
	return all
}

// overload is the limit in force, or nil.
func (s *Sources[W]) overload() *shed.Limiter {
	l := s.given
	if w, ok := s.Watcher(); ok && l == nil {
		l, _ = w.Overload().(*shed.Limiter)
	}
	return l
}
