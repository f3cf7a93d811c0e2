package dashboard

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
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

// Options are what [New] takes. All are optional, but without Authorize the page shows nothing.
type Options struct {
	// Authorize reports whether a request may see the page or, with POST, act from it:
	//
	//	func(r *http.Request) bool { return r.Method == http.MethodGet || isAdmin(r) }
	//
	// lets all see the page, and few look at a client of their choice, reset or ban it. It is
	// asked for every request, which an open page sends every two seconds. For figures it is
	// asked also with a copy of the request with the method POST, as viewers that may act see
	// more. Nil: the page is closed.
	//
	// Check credentials, or at least the Host header as well as the address. An address
	// alone lets in every site that a browser at it visits and that makes its name point here
	// (DNS rebinding), and every client of a proxy on the same machine.
	//
	// What was done is logged with the user that [keyfunc.WithUser] put into the request's
	// context. A name of basic authentication is marked "(claimed)", as only Authorize knows
	// whether it was checked.
	Authorize func(*http.Request) bool

	// Title is above the page, such as the service's name. Empty: the host's name.
	Title string

	// Store is what the limiters count in, for its health ([failover.Reporter]), through stores
	// around it too ([limiter.Wrapper]). Nil, or one that reports nothing: its health is what can
	// be seen from requests.
	Store limiter.Store

	// Bans is the limiters' list. Nil: the page has none.
	Bans bans.List

	// Offenders knows which keys ask most and are refused most. Its own ShowKeys says
	// whether the page names them. Nil: the page has none.
	Offenders *offenders.Sketch

	// ShowKeys shows the keys of bans, on the page, and of all that is done from it, in the
	// log. They can be addresses, names of users and API keys. False: digests stand for
	// them. A list in Redis has digests only, which are shown with the key where this process has
	// met it lately.
	ShowKeys bool

	// Secret keys the digests: 16 bytes or more, and the same as in offenders.Options and
	// redisstore.Options, so that a client has one digest everywhere. Empty: the digests are
	// SHA-256, from which an address is found by trying all of them; see
	// [keyfunc.Digester].
	Secret []byte

	// Logger hears what was done from the page. Nil: slog.Default().
	Logger *slog.Logger
}

// A Dashboard is the page, and the [middleware.Observer] that counts for it. Memory for
// its counts is bounded: some 3 KB for each of up to 500 rules and tiers, and what is beyond them
// is counted together. Of 512 clients, those that were refused last, it has the key: 100 KB.
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

	followed followed

	mu       sync.Mutex
	limiters []*middleware.RateLimit
	watchers []Watcher
	latest   latest
}

// New returns a page that shows nothing yet: give it to limiters as their Observer, and
// then them to Add.
func New(o Options) (*Dashboard, error) {
	err := keyfunc.CheckSecret("dashboard", o.Secret)
	digests := keyfunc.NewDigester(o.Secret)
	if o.Offenders != nil && o.Offenders.Digest("") != digests.Digest("").String() {
		err = errors.Join(err, errors.New("dashboard: Secret is not that of Offenders: a key would have two digests"))
	}
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
		digests: digests,
		origin:  http.NewCrossOriginProtection(),
		log:     o.Logger,
		start:   time.Now(),
		store:   tally.NewStore(o.Store),
	}
	if d.log == nil {
		d.log = slog.Default()
	}
	d.followed.digests = digests
	d.counts.init()
	return d, nil
}

// Must is for a page written in code: it panics where [New] returns an error.
func Must(d *Dashboard, err error) *Dashboard {
	if err != nil {
		panic(err)
	}
	return d
}

// Add shows the rules of these limiters, and has the page act on them. Their requests are
// only counted if the Dashboard is their Observer too. It panics on nil, which no New returns
// without an error.
func (d *Dashboard) Add(limits ...*middleware.RateLimit) {
	if slices.Contains(limits, nil) {
		panic("dashboard: Add needs a limiter, not nil")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limiters = append(d.limiters, limits...)
}

// ServeHTTP serves the page, its figures as JSON if that is accepted, and what is done from the
// page.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.secure(w.Header())
	if d.options.Authorize == nil || !d.options.Authorize(r) {
		http.Error(w, "This page is closed. The service decides which requests may see it (dashboard.Options.Authorize).", http.StatusForbidden)
		return
	}
	switch r.Method {
	case http.MethodPost:
		d.act(w, r)
	case http.MethodGet, http.MethodHead:
		d.get(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "This page takes GET, HEAD and POST.", http.StatusMethodNotAllowed)
	}
}

func (d *Dashboard) get(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(d.page)
		return
	}
	// Another site cannot read the figures, and has no reason to ask for them.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "The figures are for the page alone.", http.StatusForbidden)
		return
	}
	act := r.WithContext(r.Context())
	act.Method = http.MethodPost
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"acts":%t,"state":%s}`, d.options.Authorize(act), d.state())
}

// secure sets what keeps browsers from doing anything with the page but showing it.
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

// all are the limiters that were added.
func (d *Dashboard) all() []*middleware.RateLimit {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clip(d.limiters)
}
