package dashboard

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/internal/tally"
	"github.com/weirgo/weir/observe/offenders"
)

// Options is what [New] takes. All fields are optional, but without Authorize the page refuses all requests.
type Options struct {
	// Authorize reports whether a request may see the page or, with POST, act from it:
	//
	//	func(r *http.Request) bool { return r.Method == http.MethodGet || isAdmin(r) }
	//
	// lets everybody see the page, and admins look up, reset and ban clients. It is called for every
	// request. When the page fetches figures, Authorize is called again with the method POST: only
	// viewers who may act see the action buttons. Nil: the page refuses all requests.
	//
	// Check credentials. If you check only the client's address, check the Host header too. A check of
	// the address alone also admits sites that a browser at this address visits, if their name resolves
	// to this server (DNS rebinding), and all clients of a proxy on the same machine.
	//
	// Actions are logged with the user from [keyfunc.WithUser] in the request's context. A name from
	// basic authentication is marked "(claimed)", as only Authorize knows whether it was checked.
	Authorize func(*http.Request) bool

	// Title is the page's heading, such as the service's name. Empty: the name of the machine.
	Title string

	// Store is the limiters' store, whose health the page shows ([failover.Reporter]). It may be
	// wrapped (Wrapper of package limiter/store). Nil, or a store that reports nothing: the page shows
	// only what the decisions say about the store.
	Store limiter.Store

	// Bans is the limiters' list of bans. Nil: the page has no bans.
	Bans bans.List

	// ShowKeys shows keys on the page and, for actions, in the log: addresses, names of users, API keys. False: digests stand for them. A list in Redis has digests only;
	// the page adds the key if this process has met it lately.
	ShowKeys bool

	// Secret is the HMAC key of the digests: 16 bytes or more, and the same as in redisstore.Options, so that a client has one digest everywhere. Empty: the digests are SHA-256,
	// so whoever tries all addresses finds the address; see [keyfunc.Digester].
	Secret []byte

	// Logger logs the actions of operators. Nil: slog.Default().
	Logger *slog.Logger
}

// A Dashboard is the page, and the [middleware.Observer] that counts for it. Its memory is bounded:
// some 3 KB for each of up to 500 rules and tiers, and 230 KB for the keys of each of up to 100 rules
// ([offenders.Options]). Further rules are counted together, and their keys are not.
type Dashboard struct {
	options Options
	page    []byte
	policy  string // of content
	digests keyfunc.Digester
	origin  *http.CrossOriginProtection
	log     *slog.Logger
	start   time.Time

	store  *tally.Store
	counts counts

	hour, recent *offenders.Sketch // keys of the last hour, and refused ones of the last seconds

	mu       sync.Mutex
	limiters []*middleware.RateLimit
	watchers []Watcher
	latest   latest
}

// New returns a Dashboard, or an error about the options. Make it the Observer of limiters, and pass
// the limiters to Add.
func New(o Options) (*Dashboard, error) {
	if err := keyfunc.CheckSecret("dashboard", o.Secret); err != nil {
		return nil, err
	}
	hour, recent, err := newSketches(o.Secret)
	if err != nil {
		return nil, err
	}
	if o.Title == "" {
		o.Title, _ = os.Hostname()
	}
	page, policy, err := render(o)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d := &Dashboard{
		options: o, page: page, policy: policy,
		digests: keyfunc.NewDigester(o.Secret),
		origin:  http.NewCrossOriginProtection(),
		log:     o.Logger,
		start:   time.Now(),
		store:   tally.NewStore(o.Store),
		hour:    hour, recent: recent,
	}
	if d.log == nil {
		d.log = slog.Default()
	}
	d.counts.byName, d.counts.other = map[seriesName]*series{}, &series{}
	return d, nil
}

// Must returns d, or panics on an error of [New].
func Must(d *Dashboard, err error) *Dashboard {
	if err != nil {
		panic(err)
	}
	return d
}

// Add adds limiters whose rules the page shows and acts on. Their requests are counted only if the
// Dashboard is their Observer too. It panics on nil.
func (d *Dashboard) Add(limits ...*middleware.RateLimit) {
	if slices.Contains(limits, nil) {
		panic("dashboard: Add needs a limiter, not nil")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limiters = append(d.limiters, limits...)
}

// A Watcher reloads rules when their file changes, like rules.Watcher.
type Watcher interface {
	// Reloads returns how often rules were loaded and how often refused, when the rules in force
	// were loaded, and why the last attempt failed, or nil.
	Reloads() (loaded, refused uint64, last time.Time, err error)
}

// FollowRules adds a Watcher. If its newest rules were refused, the headline of the page says so, and why. FollowRules
// panics on nil.
func (d *Dashboard) FollowRules(w Watcher) {
	if v := reflect.ValueOf(w); w == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("dashboard: FollowRules needs a Watcher, not nil")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers = append(d.watchers, w)
}

// refusedRules returns why the rules as they are written now are not in force, or nil.
func (d *Dashboard) refusedRules() (err error) {
	d.mu.Lock()
	watchers := slices.Clip(d.watchers)
	d.mu.Unlock()
	for _, w := range watchers {
		_, _, _, refused := w.Reloads()
		err = errors.Join(err, refused)
	}
	return err
}

// ServeHTTP serves the page, its figures if the request accepts JSON, and the page's actions.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.secure(w.Header())
	if d.options.Authorize == nil || !d.options.Authorize(r) {
		http.Error(w, "You may not see this page. The service decides who may (dashboard.Options.Authorize).", http.StatusForbidden)
		return
	}
	switch r.Method {
	case http.MethodPost:
		d.act(w, r)
	case http.MethodGet, http.MethodHead:
		d.get(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "This page accepts GET, HEAD and POST.", http.StatusMethodNotAllowed)
	}
}

func (d *Dashboard) get(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(d.page)
		return
	}
	// Another site has no reason to fetch the figures, and could not read them.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "Only the page itself may fetch the figures.", http.StatusForbidden)
		return
	}
	act := r.WithContext(r.Context())
	act.Method = http.MethodPost
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"acts":%t,"state":%s}`, d.options.Authorize(act), d.state())
}

// secure sets header fields that keep browsers from doing anything with the page but showing it.
func (d *Dashboard) secure(h http.Header) {
	h.Set("Content-Security-Policy", d.policy)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Add("Vary", "Accept")
}

// all returns the limiters that were added.
func (d *Dashboard) all() []*middleware.RateLimit {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clip(d.limiters)
}
