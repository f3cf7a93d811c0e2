package source

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// A watch hears of the names that files are read by. It watches their directories, as a
// watch on a file ends when the file is replaced.
type watch struct {
	open    func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher      // nil: there is none at this time
	dirs    map[string]os.FileInfo // that the watcher was opened for
	names   map[string]bool        // whose events count
}

// aim makes the watch one for what the paths lead to now. The error tells of what cannot
// be watched; the rest is.
func (w *watch) aim(paths []string) error {
	w.names = make(map[string]bool)
	dirs := make(map[string]os.FileInfo)
	var errs []error
	for _, path := range paths {
		for _, name := range trail(path) {
			dir := filepath.Dir(name)
			w.names[name], w.names[dir] = true, true
			if _, seen := dirs[dir]; seen {
				continue
			}
			info, err := os.Stat(dir)
			if err != nil {
				errs = append(errs, err)
			}
			dirs[dir] = info
		}
	}
	maps.DeleteFunc(dirs, func(_ string, info os.FileInfo) bool { return info == nil })
	if !w.stands(dirs) {
		errs = append(errs, w.replace(dirs))
	}
	return errors.Join(errs...)
}

// stands tells whether these very directories are watched. A watcher loses those that are
// removed or renamed, and stays with one that was renamed further up.
func (w *watch) stands(dirs map[string]os.FileInfo) bool {
	if w.watcher == nil || !maps.EqualFunc(dirs, w.dirs, os.SameFile) {
		return false
	}
	held := w.watcher.WatchList()
	for dir := range dirs {
		if !slices.Contains(held, dir) {
			return false
		}
	}
	return true
}

// replace opens a new watcher: fsnotify 1.8 does not stand one that is changed while
// directories vanish. Its error tells of directories that it could not add.
func (w *watch) replace(dirs map[string]os.FileInfo) error {
	w.close()
	watcher, err := w.open()
	if err != nil {
		return err
	}
	w.watcher, w.dirs = watcher, dirs
	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := watcher.Add(dir); err != nil {
			errs = append(errs, fmt.Errorf("watch %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// counts tells whether an event is about one of the names, or about their directories.
func (w *watch) counts(e fsnotify.Event) bool { return w.names[filepath.Clean(e.Name)] }

func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// close ends the watcher until the next aim.
func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // it is of no more use either way
		w.watcher = nil
	}
}
