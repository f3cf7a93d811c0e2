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

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// A Watcher keeps a RateLimit at what its rules say.
type Watcher struct {
	// RateLimit is limited by the rules in force; give it to the router's adapter. It
	// stays the same when rules are reloaded.
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

// A Reload is what became of an attempt to reload rules.
type Reload struct {
	// Source is the file, or the name of the source: the key in Redis.
	Source string

	// Err says why the rules that were in force are kept: an [*Error], or that the file or
	// source can't be read. Nil: what is written is in force.
	Err error

	// Warnings are about what is no mistake and is hardly meant.
	Warnings []Problem
}

// Status is what a Watcher has done.
type Status struct {
	LoadedAt time.Time // when the rules in force came into force
	Version  string    // of the rules in force: see [Rules.Version]
	Loads    uint64    // rules that came into force, the first ones included
	Refused  uint64    // attempts that failed
	Err      error     // of the last attempt; nil: what is written is in force
	Changes  []Change  // what the last rules that came into force changed; none of the first ones
	Fallback bool      // those in force are Options.Fallback
}

// Watch reads a rules file and keeps a RateLimit at what it says, until ctx ends or the
// Watcher is closed. The file may be written in place, replaced by another, or mounted
// from a ConfigMap. An error is about the options, or about the file as it is now unless
// there is a Fallback; later on, a file that is wrong or gone changes nothing, and OnReload
// is called.
//
// The file, and a file of bans that it names, is looked at every Options.Poll. A change is
// in force once two looks found the same, which is within two seconds by default: what is in
// the middle of being written is not, unless the writing stops for as long.
//
// A request is decided by the rules that were in force when it came. Counters carry over:
// they belong to the rule's name, so where a limit changes, what was used stays used.
func Watch(ctx context.Context, path string, o Options) (*Watcher, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("rules: the path of the file is empty")
	}
	absolute, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return watch(ctx, o, &Watcher{name: path, files: files{path: absolute}})
}

// A Source is where the text of rules is, if not in a file: redis/redisrules has one. Its
// errors say where that is.
type Source interface {
	// Read gives the text, or an error where there is none.
	Read(ctx context.Context) ([]byte, error)

	// Changed nudges when Read may now give something else. A nudge stands for all that
	// came before it was received, may be spurious, and may come in the middle of a change;
	// another one comes after it. The channel is never closed.
	Changed() <-chan struct{}

	// Close ends the nudges, and waits for what goes on behind them, though not for long
	// where a server hangs. It may be called again.
	Close() error
}

// WatchSource is [Watch] for rules that are elsewhere; name tells people where. It closes the
// source in the end, and if it fails. Such rules can't name a file of bans.
func WatchSource(ctx context.Context, name string, s Source, o Options) (*Watcher, error) {
	if s == nil {
		return nil, errors.New("rules: WatchSource needs a Source")
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
			return fmt.Errorf("rules: Options.Fallback: %w", err)
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

// read is the rules that are written, or what is wrong with them.
func (w *Watcher) read(ctx context.Context) (*Rules, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("rules: read %s: %w", w.name, err)
	}
	if w.source == nil {
		return w.files.read(w.name, w.options)
	}
	text, err := w.source.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("rules: %s: %w", w.name, err)
	}
	return parseText(text, w.options)
}

// follow reloads after every nudge of the source, or when files have changed.
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

// reload puts what was read in force, if it is other than what is and nothing is wrong.
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

// keep records why the rules in force stay: err, or nil if the text read is theirs. It reports only
// news.
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

// Reread has the rules read now, in the background, as if they had changed: for a signal.
func (w *Watcher) Reread() {
	select {
	case w.again <- struct{}{}:
	default: // they are about to be
	}
}

// Status tells what was reloaded.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Reloads is [Watcher.Status] in plain types, for what shows it without importing this
// package, as promlimit does.
func (w *Watcher) Reloads() (loaded, refused uint64, last time.Time, err error) {
	s := w.Status()
	return s.Loads, s.Refused, s.LoadedAt, s.Err
}

// Written is where the rules in force come from: the file, or the name of the source, and nothing
// of a fallback; their version; and in words what they changed when they came into force. It is
// for what shows them without importing this package.
func (w *Watcher) Written() (source, version string, changes []string) {
	s := w.Status()
	for _, c := range s.Changes {
		changes = append(changes, c.String())
	}
	if s.Fallback {
		return "", s.Version, changes
	}
	return w.name, s.Version, changes
}

// Rules are those in force.
func (w *Watcher) Rules() *Rules {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rules
}

// Bans is the list that the rules' bans are in.
func (w *Watcher) Bans() bans.List { return w.options.Config.Bans.List }

// Overload is what the rules in force have made of their overload section, or nil.
func (w *Watcher) Overload() middleware.Overload { return w.RateLimit.Overload() }

// Close ends the watching. The rules in force stay in force. Close waits for OnReload, so it
// must not be called there. It returns nil.
func (w *Watcher) Close() error {
	w.stop()
	<-w.done
	return nil
}

func (w *Watcher) logger() *slog.Logger {
	if w.options.Config.Logger != nil {
		return w.options.Config.Logger
	}
	return slog.Default()
}

// tell calls the hook, or logs.
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
