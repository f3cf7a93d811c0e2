package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A Watcher reloads rules into a RateLimit when they change.
type Watcher struct {
	// RateLimit decides by the rules in force. Give it to the router's adapter. A reload changes its
	// rules and keeps the RateLimit.
	RateLimit *middleware.RateLimit

	options Options
	name    string // of the file or the source, for people
	source  Source // nil: a file
	files   files  // if there is no source

	stop  context.CancelFunc
	done  chan struct{}
	again chan struct{} // has Reread's wish; nil before there is a RateLimit

	warned []Problem // the last time

	mu     sync.Mutex
	rules  *Rules
	status Status
}

// A Reload is the outcome of an attempt to reload rules.
type Reload struct {
	// Source is the path of the file, or the name of the source, such as a key in Redis.
	Source string

	// Err is why the reload was refused: an [*Error], or an error of reading the file or source. The
	// rules in force stay. Nil: the new rules are in force.
	Err error

	// Warnings are those of [Rules.Warnings], if Err is nil.
	Warnings []Problem
}

// Status is the state of a Watcher.
type Status struct {
	LoadedAt time.Time // when the rules in force were loaded
	Version  string    // of the rules in force; see [Rules.Version]
	Loads    uint64    // how many times rules were loaded, the first time included
	Refused  uint64    // how many attempts to load rules failed
	Err      error     // of the last attempt; nil: it succeeded
	Changes  []Change  // between the last two versions that were loaded
	Fallback bool      // whether the rules in force are Options.Fallback
}

// Watch reads a rules file and reloads it when it changes, until ctx ends or the Watcher is closed.
// The file may be written in place, replaced, or mounted from a ConfigMap. The error is about the
// options or, without a Fallback, about the file. After that, a file that is wrong or missing leaves
// the rules in force as they are, and OnReload is called.
//
// Watch checks the file, and the files that it names, every Options.Poll. It reads them if the size, time,
// inode or mode of one has changed, and once more two seconds later, as file systems round times. It loads a
// change once two checks in a row have found the same contents: within two seconds by default. So it does
// not load a file that is being written, unless the writing pauses for that long.
//
// A request is decided by the rules in force when it arrives. Counters belong to a rule's name and
// stay: if a limit changes, what was used stays used.
func Watch(ctx context.Context, path string, o Options) (*Watcher, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, invalid.New("rules", "the path of the file is empty")
	}
	absolute, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, invalid.New("rules", "%w", err)
	}
	return watch(ctx, o, &Watcher{name: path, files: files{path: absolute}})
}

// A Source holds the text of rules outside of a file. Package redis/redisrules has one. Its errors must
// name where the text is, such as a key in Redis.
type Source interface {
	// Read returns the text of the rules, or an error if there is no text.
	Read(ctx context.Context) ([]byte, error)

	// Changed returns a channel that receives a value when Read may return another text. One value
	// may stand for several changes, and may come without a change or during one. After the last
	// change there is always a value. The channel is never closed.
	Changed() <-chan struct{}

	// Close stops Changed and releases what the Source holds. It may be called more than once.
	Close() error
}

// WatchSource is [Watch] for a [Source]; name is its name in messages. The source is closed when the
// Watcher ends, or if WatchSource returns an error. The rules cannot name files.
func WatchSource(ctx context.Context, name string, s Source, o Options) (*Watcher, error) {
	if s == nil {
		return nil, invalid.New("rules", "WatchSource needs a Source")
	}
	if err := o.Validate(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return watch(ctx, o, &Watcher{name: name, source: s})
}

// watch reads the rules for the first time and goes on in the background.
func watch(ctx context.Context, o Options, w *Watcher) (*Watcher, error) {
	err := o.needBans() // one list for all rules to come
	w.options = o
	if err == nil {
		err = w.begin(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.closeSource())
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.done, w.again = make(chan struct{}), make(chan struct{}, 1)
	go w.follow(ctx)
	return w, nil
}

// begin makes the RateLimit of the first rules.
func (w *Watcher) begin(ctx context.Context) error {
	rules, refused := w.read(ctx)
	if refused == nil {
		w.RateLimit, refused = middleware.New(rules.Config())
	}
	if refused != nil {
		if w.options.Fallback == nil {
			return refused
		}
		var err error
		if rules, err = Parse(w.options.Fallback, w.options); err != nil {
			return invalid.New("rules", "Options.Fallback: %w", err)
		}
		if w.RateLimit, err = middleware.New(rules.Config()); err != nil {
			return err
		}
	}
	w.inForce(rules)
	w.status.Fallback = refused != nil
	if refused != nil { // what is written is not what is in force
		w.keep(refused)
	} else {
		w.tell(nil)
	}
	return nil
}

// read reads and checks the file or source.
func (w *Watcher) read(ctx context.Context) (*Rules, error) {
	if err := ctx.Err(); err != nil {
		return nil, invalid.New("rules", "read %s: %w", w.name, err)
	}
	if w.source == nil {
		return w.files.read(w.name, w.options)
	}
	text, err := w.source.Read(ctx)
	if err != nil {
		return nil, invalid.New("rules", "%s: %w", w.name, err)
	}
	return parseText(text, w.options)
}

// follow reloads when the source or the files have changed.
func (w *Watcher) follow(ctx context.Context) {
	defer close(w.done)
	var changed <-chan struct{}
	poll := time.NewTicker(cmp.Or(w.options.Poll, defaultPoll))
	defer poll.Stop()
	if w.source != nil {
		changed = w.source.Changed()
		poll.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			if err := w.closeSource(); err != nil {
				w.logger().LogAttrs(context.Background(), slog.LevelWarn, "weir: rules: "+err.Error())
			}
			return
		case <-changed:
		case <-w.again:
		case <-poll.C:
			if !w.files.look() {
				continue
			}
		}
		rules, err := w.read(ctx)
		w.reload(ctx, rules, err)
	}
}

func (w *Watcher) closeSource() error {
	if w.source == nil {
		return nil
	}
	return w.source.Close()
}

// reload loads rules that were read, unless they are wrong or the same.
func (w *Watcher) reload(ctx context.Context, rules *Rules, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil && rules.digest != w.rules.digest {
		if err = w.RateLimit.Reconfigure(rules.Config()); err == nil {
			w.inForce(rules)
			w.tell(nil)
			return
		}
	}
	w.keep(err)
}

func (w *Watcher) inForce(rules *Rules) {
	var changes []Change
	if w.rules != nil {
		changes = Diff(w.rules, rules)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = rules
	w.options.bound = rules.bound
	w.status.Loads++
	w.status.LoadedAt, w.status.Version = time.Now(), rules.Version()
	w.status.Err, w.status.Changes, w.status.Fallback = nil, changes, false
}

// keep records that the rules in force stay: because of err, or because the text read is theirs. It
// reports an error once.
func (w *Watcher) keep(err error) {
	w.mu.Lock()
	news := fmt.Sprint(w.status.Err) != fmt.Sprint(err)
	w.status.Err = err
	if err != nil {
		w.status.Refused++
	}
	w.mu.Unlock()
	if news {
		w.tell(err)
	}
}

// Reread reads the rules now, in the background, even if they have not changed: call it on a signal
// such as SIGHUP.
func (w *Watcher) Reread() {
	select {
	case w.again <- struct{}{}:
	default: // a reload is pending
	}
}

// Status returns the Watcher's state.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Reloads is [Watcher.Status] in plain types, for packages such as promlimit that do not import this
// one.
func (w *Watcher) Reloads() (loaded, refused uint64, last time.Time, err error) {
	s := w.Status()
	return s.Loads, s.Refused, s.LoadedAt, s.Err
}

// Rules returns the rules in force.
func (w *Watcher) Rules() *Rules {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rules
}

// Bans returns the list of bans. Reloads keep it.
func (w *Watcher) Bans() bans.List { return w.options.Config.Bans.List }

// Close stops the Watcher. The rules in force stay. Close waits until OnReload has returned, so
// OnReload must not call Close. It returns nil.
func (w *Watcher) Close() error {
	w.stop()
	<-w.done
	return nil
}

func (w *Watcher) logger() *slog.Logger {
	return cmp.Or(w.options.Config.Logger, slog.Default())
}

// tell calls OnReload, or logs.
func (w *Watcher) tell(err error) {
	r := Reload{Source: w.name, Err: err}
	if err == nil {
		r.Warnings = w.rules.Warnings()
	}
	if w.options.OnReload == nil {
		w.log(r)
		return
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			w.logger().LogAttrs(context.Background(), slog.LevelError, "weir: rules: OnReload panicked",
				slog.String("code", "weir-hook-panic"), slog.String("panic", fmt.Sprint(panicked)))
		}
	}()
	w.options.OnReload(r)
}

func (w *Watcher) log(r Reload) {
	ctx := context.Background()
	if r.Err != nil {
		w.logger().LogAttrs(ctx, slog.LevelWarn, "weir: rules were not reloaded, those in force are kept",
			slog.String("code", "weir-rules-refused"), slog.String("source", r.Source), slog.String("error", r.Err.Error()))
		return
	}
	w.logger().LogAttrs(ctx, slog.LevelInfo, "weir: rules are in force",
		slog.String("code", "weir-rules-loaded"), slog.String("source", r.Source))
	for _, warning := range r.Warnings {
		if slices.Contains(w.warned, warning) {
			continue
		}
		w.logger().LogAttrs(ctx, slog.LevelWarn, "weir: "+warning.String(), slog.String("code", "weir-rules-warning"))
	}
	w.warned = r.Warnings
}
