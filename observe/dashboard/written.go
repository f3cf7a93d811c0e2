package dashboard

import (
	"fmt"
	"reflect"
	"time"
)

// A Watcher reloads rules when their file changes, like rules.Watcher.
type Watcher interface {
	// Reloads returns how often rules were loaded and how often refused, when the rules in force
	// were loaded, and why the last attempt failed, or nil.
	Reloads() (loaded, refused uint64, last time.Time, err error)

	// Written returns the source of the rules in force, or "" if they are the program's fallback;
	// their version; and in words what they changed when they were loaded.
	Written() (source, version string, changes []string)
}

// FollowRules adds a Watcher. The page shows when its rules were loaded, from where, and what that
// changed. If its newest rules were refused, the page shows why. FollowRules panics on nil.
func (d *Dashboard) FollowRules(w Watcher) {
	if v := reflect.ValueOf(w); w == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("dashboard: FollowRules needs a Watcher, not nil")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers = append(d.watchers, w)
}

// A writtenView is the state of rules that are written somewhere.
type writtenView struct {
	Source  string   `json:"source,omitempty"` // empty: the fallback is in force
	Version string   `json:"version"`
	Loaded  int64    `json:"loaded"` // Unix milliseconds
	Loads   uint64   `json:"loads"`
	Refused uint64   `json:"refused,omitempty"`
	Error   string   `json:"error,omitempty"` // why the rules as they are written now are not in force
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
