package dashboard

import (
	"fmt"
	"reflect"
	"time"
)

// A Watcher keeps rules at what is written, as that of package rules does, which is not
// imported for it: it brings a parser of YAML.
type Watcher interface {
	// Reloads is how often written rules came into force and how often they were refused,
	// when those in force did, and why the last attempt failed, if it did.
	Reloads() (loaded, refused uint64, last time.Time, err error)

	// Written is where the rules in force come from, or nothing if that is not what is written;
	// their version; and in words what they changed when they came into force.
	Written() (source, version string, changes []string)
}

// FollowRules shows when the rules of w were loaded and from where, what that changed, and why
// what is written now is refused, if it is. It panics on nil, which no Watch returns without an
// error.
func (d *Dashboard) FollowRules(w Watcher) {
	if v := reflect.ValueOf(w); w == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("dashboard: FollowRules needs a Watcher, not nil")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers = append(d.watchers, w)
}

// A writtenView is what became of rules that are written somewhere.
type writtenView struct {
	Source  string   `json:"source,omitempty"` // empty: those in force are not what is written
	Version string   `json:"version"`
	Loaded  int64    `json:"loaded"` // Unix milliseconds
	Loads   uint64   `json:"loads"`
	Refused uint64   `json:"refused,omitempty"`
	Error   string   `json:"error,omitempty"` // why what is written now is not in force
	Changes []string `json:"changes,omitempty"`
	More    int      `json:"more,omitempty"` // changes that are not shown
}

const maxChanges = 30

func (d *Dashboard) lookAtWritten() (all []writtenView) {
	d.mu.Lock()
	watchers := d.watchers[:len(d.watchers):len(d.watchers)]
	d.mu.Unlock()
	for _, w := range watchers {
		loads, refused, last, err := w.Reloads()
		source, version, changes := w.Written()
		v := writtenView{
			Source: cut(source), Version: version, Loaded: last.UnixMilli(), Loads: loads, Refused: refused,
			More: max(0, len(changes)-maxChanges),
		}
		if err != nil {
			v.Error = fmt.Sprintf("%.2000s", err.Error())
		}
		for _, change := range changes[:min(len(changes), maxChanges)] {
			v.Changes = append(v.Changes, cut(change))
		}
		all = append(all, v)
	}
	return all
}
