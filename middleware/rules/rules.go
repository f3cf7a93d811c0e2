package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/envoy"
	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// Options are settings that a rules file cannot hold. The zero Options are the defaults.
type Options struct {
	// Config has what the file cannot say, such as Store and Logger. Its Rules come before the
	// file's rules, and its Bans and Allow apply beside the file's. ByTier, ByRoute, Default and
	// Bans.Status must be zero, as the file sets them. Without Bans.List, bans are kept in memory.
	Config middleware.Config

	// Keys are your own keys by the names that the file uses. A name has letters, digits, - and _.
	Keys map[string]keyfunc.Func

	// Overload makes a limiter of the file's overload section; [shed.FromRules] is one. A reload
	// that does not change the section keeps the limiter. Nil: a file with that section is an error.
	//
	// [shed.FromRules]: https://pkg.go.dev/github.com/weirgo/weir/middleware/shed#FromRules
	Overload func(middleware.OverloadOptions) (middleware.Overload, error)

	// Tiers are the tiers that your authentication puts requests in. A tier of the file that is not
	// among them is an error. Nil: unknown, and nothing is checked.
	Tiers []string

	// Lacks returns why the program cannot meet a rule's need, such as "needs a user, and this program
	// knows none", or "" if it can. A file with an unmet need is refused. Lacks is called for the needs
	// that Rules.Needs returns, and for concurrency, queue (a leaky bucket), overload, router (a route
	// with a parameter within a segment), stream (of refusal) and unix_socket (of proxies). For these six, Need.Rule may name
	// a section instead of a rule. The Proxies are the file's. Nil: the program meets all needs.
	Lacks func(*Proxies, Need) string

	// Fallback is the text of a rules file. Watch and WatchSource start with it if the rules are
	// missing or wrong. It cannot name other files. Nil: missing or wrong rules are an error.
	Fallback []byte

	// Poll is the time between two checks for changes, from 100 ms to a day. Zero: a second for
	// files, and 10 seconds for a key in Redis.
	Poll time.Duration

	// OnReload is called after each reload by Watch and WatchSource, refused reloads included. Calls
	// do not overlap. A panic in it is logged. Nil: each reload is logged, with the code
	// weir-rules-loaded (Info) or weir-rules-refused (Warn).
	OnReload func(Reload)

	bound bound // of the rules that a Watcher has in force
}

// Validate returns everything that is wrong with o, joined, or nil.
func (o *Options) Validate() error {
	var errs []error
	c := &o.Config
	if c.ByTier != nil || c.ByRoute != nil || c.Default != nil || c.Bans.Status != 0 {
		errs = append(errs, invalid.New("rules", "Options.Config has ByTier, ByRoute, Default or Bans.Status, which belong in the file"))
	}
	// The file adds its own to these, so that middleware.New does not see them.
	for name, match := range map[string]middleware.Match{"Allow": c.Allow, "Bans.Deny": c.Bans.Deny} {
		if err := route.Wrong(match); err != nil {
			errs = append(errs, invalid.New("rules", "Options.Config.%s: %w", name, err))
		}
	}
	for _, name := range []string{"ip", "fingerprint"} {
		if o.Keys[name] != nil {
			errs = append(errs, invalid.New("rules", "Options.Keys has %q, which the file's proxies section defines", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Keys)) {
		switch {
		case o.Keys[name] == nil:
			errs = append(errs, invalid.New("rules", "Options.Keys[%q] is nil", name))
		case name == "" || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			errs = append(errs, invalid.New("rules", "Options.Keys has %q: a name is letters, digits, - and _", name))
		}
	}
	if o.Poll != 0 && (o.Poll < 100*time.Millisecond || o.Poll > 24*time.Hour) {
		errs = append(errs, invalid.New("rules", "Options.Poll is %v: it must be from 100ms to 24h, or 0 for the default", o.Poll))
	}
	return errors.Join(errs...)
}

// needBans makes a list of bans if there is none.
func (o *Options) needBans() error {
	if o.Config.Bans.List != nil {
		return nil
	}
	list, err := bans.New(bans.Options{})
	if err == nil {
		o.Config.Bans.List = list
	}
	return err
}

// Rules are a rules file that was read and checked.
type Rules struct {
	config           middleware.Config
	warnings         []Problem
	doc              *yamlfile.Document
	file             *file
	scopes           []*scope
	descriptorScopes []*scope
	descriptors      []envoy.Descriptor
	files            []string // that were read beside it
	tiers            []string // that there are; nil: unknown
	proxies          Proxies
	own              map[string]keyfunc.Func // keys of the application's
	ip               keyfunc.Func
	banned, exempt   *clientList   // exempt is nil without allow
	listed           map[Need]bool // the keys, in place of inputs, that the sections ban and allow list values of
	bound            bound
	settlements      map[string]Settlement        // by rule
	now              func() time.Time             // by which overrides and bans end
	digest           [sha256.Size]byte            // of all that was read
	sums             map[string][sha256.Size]byte // of the files that were read beside it, as it names them

	fieldsOnce          sync.Once
	fields, plainFields map[string]bool // see ReadsField
}

// Parse reads and checks the text of a rules file, in YAML or JSON. The error is an [*Error] with
// everything that is wrong with the text, or is about the options. The text cannot have fields that
// name other files, such as the field ban.file; see [Load].
func Parse(text []byte, o Options) (*Rules, error) {
	return onlyGood(parseText(text, o))
}

// onlyGood returns no rules beside an error, so that a caller who ignores the error has none.
func onlyGood(r *Rules, err error) (*Rules, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

func parseText(text []byte, o Options) (*Rules, error) { return parse("", text, o, nil) }

// Load reads and checks a rules file and the files that it names.
func Load(path string, o Options) (*Rules, error) { return onlyGood(loadFile(path, path, o)) }

func parse(name string, text []byte, o Options, readFile func(name string) (path string, text []byte, err error)) (*Rules, error) {
	if err := errors.Join(o.Validate(), o.needBans()); err != nil {
		return nil, err
	}
	digest, sums := sha256.New(), map[string][sha256.Size]byte{}
	digest.Write(text)
	rules := &Rules{
		config: o.Config, file: &file{}, own: o.Keys, listed: map[Need]bool{}, sums: sums, now: time.Now, settlements: map[string]Settlement{},
	}
	c := &checker{Rules: rules, problems: problems{name: name}, options: o, names: map[string][]string{}}
	if clock, ok := o.Config.Bans.List.(interface{ Now() time.Time }); ok { // a simulation's
		c.now = clock.Now
	}
	if readFile != nil {
		c.readFile = func(name string) (string, []byte, error) {
			path, text, err := readFile(name)
			addOther(digest, text, err)
			sums[name] = sha256.Sum256(text)
			return path, text, err
		}
	}
	rules.doc = yamlfile.Read(text, rules.file, yamlfile.Wrapper{Above: wrapper, Beside: "version"}, c.report)
	c.written, c.warnings = rules.doc, problems{name: name, written: rules.doc}
	if c.doc.Has() { // it could be read
		c.check()
		c.checkAll()
	}
	if len(c.list) == 0 {
		c.lacking()
	}
	rules.warnings = c.warnings.list
	digest.Sum(rules.digest[:0])
	return rules, c.err()
}

// checkRule records what else package middleware finds wrong with a rule.
func (c *checker) checkRule(p *scopedRule, made middleware.Rule) {
	if c.noted(p.path) {
		return // what middleware finds would follow from that
	}
	config, at := c.config, fmt.Sprintf("Rules[0] %q", made.Name)
	config.Rules, config.ByTier, config.ByRoute, config.Default = []middleware.Rule{made}, nil, nil, nil
	if p.pattern != nil {
		at = fmt.Sprintf("ByRoute[%q] %q", p.of, made.Name)
		config.Rules, config.ByRoute = nil, map[string][]middleware.Rule{p.of: {made}}
	}
	_, err := c.idle(config)
	ofRule := invalid.All(err)
	ofRule = slices.DeleteFunc(ofRule, func(err error) bool {
		var e *invalid.Error
		return !errors.As(err, &e) || e.Rule != at
	})
	c.reject(p.path, errors.Join(ofRule...))
}

// checkAll records what package middleware finds wrong with the whole Config, if no part is wrong.
func (c *checker) checkAll() {
	if len(c.list) > 0 {
		return
	}
	_, err := c.idle(c.config)
	for _, err := range invalid.All(err) {
		if e := (*invalid.Error)(nil); errors.As(err, &e) && e.Rule == "" {
			c.reject(nil, err)
		} else {
			c.at(nil, "%s", invalid.Text(err, nil))
		}
	}
}

// reject records what another package finds wrong with the value at path, each error at the field that it
// names if the file has that field.
func (c *checker) reject(path []string, err error) {
	for _, err := range invalid.All(err) {
		var e *invalid.Error
		if !errors.As(err, &e) {
			c.at(path, "%s", err)
			continue
		}
		at, fields, said := path, namesInFile(e.Field), e.Reason(inSnake)
		for len(fields) > 0 && c.doc.Has(sub(at, fields[0])...) {
			at, fields = sub(at, fields[0]), fields[1:]
		}
		if len(fields) > 0 {
			said = strings.Join(fields, ".") + " " + said
		}
		if e.Tier != "" {
			said += fmt.Sprintf(": tier %q", e.Tier)
		}
		c.at(at, "%s", said)
	}
}

// idle returns a RateLimit that answers questions about a Config and decides nothing.
func (r *Rules) idle(c middleware.Config) (*middleware.RateLimit, error) {
	c.Store = nopStore{now: r.now}
	c.Logger = slog.New(slog.DiscardHandler) // the RateLimit that decides warns
	return middleware.New(c)
}

type nopStore struct {
	limiter.Store
	now func() time.Time
}

// Now is the time by which overrides and bans end.
func (s nopStore) Now() time.Time { return s.now() }

// Check implements limiter.Checker.
func (nopStore) Check(*limiter.Quota) error { return nil }

// Config returns the rules for [middleware.New].
func (r *Rules) Config() middleware.Config {
	c := r.config
	c.Rules = slices.Clone(c.Rules)
	return c
}

// VersionOf returns the version of a text: a hash of it.
func VersionOf(text []byte) string { return versionOf(sha256.Sum256(text)) }

func versionOf(digest [sha256.Size]byte) string { return hex.EncodeToString(digest[:6]) }

// Version is a hash of the text that the rules were read from, as [VersionOf] returns it. If the text
// names files, their contents are part of the hash.
func (r *Rules) Version() string { return versionOf(r.digest) }

// IP is the file's key "ip": the client's address, as the file's proxies section says.
func (r *Rules) IP() keyfunc.Func { return r.ip }

// Warnings report what is valid and probably not intended.
func (r *Rules) Warnings() []Problem { return slices.Clone(r.warnings) }
