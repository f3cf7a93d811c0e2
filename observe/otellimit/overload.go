package otellimit

import (
	"errors"
	"reflect"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
)

// A Watcher keeps rules at what is written, as that of package rules does. A RateLimit is one
// too, whose rules change in another way.
type Watcher interface {
	// Overload is what is in force. Nil: nothing.
	Overload() middleware.Overload
}

// Follow adds the overload limit of a rules file, if Options.Overload is nil. Of several
// watchers the last one is told of.
func (t *Observer) Follow(w Watcher) error {
	if v := reflect.ValueOf(w); w == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("otellimit: Follow needs a Watcher")
	}
	t.watcher.Store(&w)
	return nil
}

// overload is the limit in force, or nil.
func (t *Observer) overload() *shed.Limiter {
	l := t.given
	if w := t.watcher.Load(); w != nil && l == nil {
		l, _ = (*w).Overload().(*shed.Limiter)
	}
	return l
}
