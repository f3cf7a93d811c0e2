package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

// logFlags say how a log is read, and what is written of it.
type logFlags struct {
	format, keys, report, show, secretFile string
	mapped                                 map[string]string
	trusted, routes                        []string
	serveMux, partial, asJSON              bool
}

func newLogFlags(flags *pflag.FlagSet) *logFlags {
	f := &logFlags{mapped: map[string]string{}}
	flags.StringVar(&f.format, "format", "", "the log's `format`: "+strings.Join(accesslog.Formats(), ", ")+", or a log_format as nginx has it; without it, the one that fits")
	flags.Func("map", "`NAME=PLACE` says where a line has the user, tier, time, took, client, method, target, host, status, header:NAME, cookie:NAME or key:NAME: user=$.sub in JSON, user=$remote_user in a format; may be repeated", func(text string) error {
		name, place, ok := strings.Cut(text, "=")
		if !ok || name == "" || place == "" {
			return errors.New("want a name, = and a place, such as user=$.sub")
		}
		f.mapped[name] = place
		return nil
	})
	flags.StringSliceVar(&f.trusted, "trust", nil, "`addresses` of proxies, comma-separated: what the log's X-Forwarded-For says of their clients is taken for the client")
	flags.StringArrayVar(&f.routes, "route", nil, "a `route` of the service that the rules do not name, such as \"GET /users/{id}\", for keys that go by routes; may be repeated")
	flags.BoolVar(&f.serveMux, "servemux", false, "the router is an http.ServeMux")
	flags.StringVar(&f.keys, "keys", "", "comma-separated `names` of the application's own keys; --map key:NAME=PLACE says where the log has one")
	flags.BoolVar(&f.partial, "partial", false, "leave out rules that need what the log does not have, and name them")
	flags.StringVar(&f.report, "report", "", "write a report to this `file`, one page of HTML")
	flags.StringVar(&f.show, "show", "digest", "how clients are shown: digest or address")
	flags.StringVar(&f.secretFile, "secret-file", "", "a `file` with the Secret that digests are made with in the service; or $WEIR_SECRET")
	flags.BoolVar(&f.asJSON, "json", false, "write JSON")
	return f
}

// options are for a rules file, whose bans are in the log's time.
func (f *logFlags) options() rules.Options {
	o := rules.Options{Keys: map[string]keyfunc.Func{}, Overload: shed.FromRules}
	o.Config.Bans.List = simulate.NewBans()
	for _, name := range list(f.keys) {
		o.Keys[name] = simulate.Key(name)
	}
	return o
}

// shown is how a client is shown.
func (f *logFlags) shown() (func(string) string, error) {
	secret, err := (&server{secretFile: f.secretFile}).secret()
	if err != nil {
		return nil, err
	}
	if err := keyfunc.CheckSecret("weir", secret); err != nil {
		return nil, usageError{err}
	}
	switch f.show {
	case "address":
		return func(client string) string { return client }, nil
	case "digest":
	default:
		return nil, usageError{fmt.Errorf("--show is %q: want digest or address", f.show)}
	}
	digester := keyfunc.NewDigester(secret)
	return func(client string) string { return digester.Digest(client).String() }, nil
}

// A weblog is a log that is being read.
type weblog struct {
	*accesslog.Reader
	file    io.ReadCloser
	client  func(*http.Request) netip.Addr // nil: the log's is the client
	hasUser bool                           // a request had one
}

// collectOften is for what measures demand: of each client that takes memory until the end, so
// garbage is to be a smaller part of it than Go lets it be.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// open opens a log, "-" for the standard input, that says at least what these rules need.
func (s *session) open(name string, f *logFlags, needs []rules.Need) (_ *weblog, missing []rules.Need, err error) {
	l := &weblog{file: io.NopCloser(s.in)}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, nil, err
		}
		l.file = file
	}
	defer func() {
		if err != nil {
			_ = l.file.Close()
		}
	}()
	if l.Reader, err = accesslog.NewReader(l.file, accesslog.Options{Format: f.format, Map: f.mapped, Headers: headersOf(needs, f)}); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	if !l.Has("client") {
		return nil, nil, fmt.Errorf("%s: the log has no clients' addresses: say where with --map client=PLACE", name)
	}
	if len(f.trusted) > 0 {
		if l.client, err = keyfunc.NewAddress(keyfunc.TrustProxies(f.trusted...)); err != nil {
			return nil, nil, usageError{fmt.Errorf("--trust: %w", err)}
		}
		if !l.HasHeader("X-Forwarded-For") {
			return nil, nil, fmt.Errorf("%s: --trust needs X-Forwarded-For, which the log does not have: say where with --map header:X-Forwarded-For=PLACE", name)
		}
	}
	for _, need := range needs {
		if !l.satisfies(need.Of, f) {
			missing = append(missing, need)
		}
	}
	return l, missing, nil
}

// headersOf are those that rules need.
func headersOf(needs []rules.Need, f *logFlags) (headers []string) {
	for _, need := range needs {
		name, isHeader := strings.CutPrefix(need.Of, "header:")
		if isHeader || strings.HasPrefix(need.Of, "cookie:") || strings.HasPrefix(need.Of, "key:") {
			headers = append(headers, name)
		}
		if strings.HasPrefix(need.Of, "cookie:") {
			headers = append(headers, "Cookie")
		}
	}
	if len(f.trusted) > 0 {
		headers = append(headers, "X-Forwarded-For")
	}
	slices.Sort(headers)
	return slices.Compact(headers)
}

// satisfies reports whether the log says that about requests.
func (l *weblog) satisfies(need string, f *logFlags) bool {
	header, isHeader := strings.CutPrefix(need, "header:")
	switch {
	case isHeader:
		return l.HasHeader(header)
	case strings.HasPrefix(need, "cookie:"):
		return l.HasHeader(need) || l.HasHeader("Cookie")
	case strings.HasPrefix(need, "key:"):
		return l.HasHeader(need)
	case strings.HasPrefix(need, "query:"):
		return l.Has("target")
	case need == "settled":
		return true // a note says that it is not known
	case need == "route":
		return len(f.routes) > 0
	}
	return l.Has(need)
}

// next is the next request, from the client that it is of.
func (l *weblog) next() (*accesslog.Entry, error) {
	e, err := l.Next()
	if err != nil {
		return nil, err
	}
	l.hasUser = l.hasUser || e.User != ""
	if l.client == nil {
		return e, nil
	}
	r := &http.Request{RemoteAddr: net.JoinHostPort(e.Client, "1"), Header: http.Header{}}
	if forwarded := l.forwarded(e); forwarded != "" {
		r.Header["X-Forwarded-For"] = []string{forwarded}
	}
	if client := l.client(r); client.IsValid() {
		e.Client = client.String()
	}
	e.ForwardedFor = "" // it has said what it can
	return e, nil
}

func (l *weblog) forwarded(e *accesslog.Entry) string {
	if i := slices.Index(l.Headers(), "X-Forwarded-For"); e.ForwardedFor == "" && i >= 0 && e.Headers != nil {
		return e.Headers[i]
	}
	return e.ForwardedFor
}

// anonymous says that no request had a user, if the log was said to have some.
func (l *weblog) anonymous(f *logFlags) []string {
	if f.mapped["user"] == "" || l.hasUser {
		return nil
	}
	return []string{fmt.Sprintf("No request in the log has a user: at %s there is none.", f.mapped["user"])}
}

// partly says of rules that need what the log lacks that it does, or that they are left out.
func partly(missing []rules.Need, f *logFlags) (notes []string, err error) {
	if len(missing) == 0 {
		return nil, nil
	}
	of := map[string][]string{}
	for _, need := range missing {
		of[need.Of] = append(of[need.Of], fmt.Sprintf("%q", need.Rule))
	}
	var errs []error
	for _, need := range slices.Sorted(maps.Keys(of)) {
		names, verb := strings.Join(of[need], ", "), "goes by"
		if len(of[need]) > 1 {
			verb = "go by"
		}
		notes = append(notes, fmt.Sprintf("Left out: %s, which %s %s. The log does not have it.", names, verb, need))
		where := "--map " + need + "=PLACE"
		if need == "route" {
			where = "--route PATTERN which the service has"
		}
		errs = append(errs, fmt.Errorf("%s %s %s, which the log does not have: say where with %s, or leave such rules out with --partial", names, verb, need, where))
	}
	if f.partial {
		return notes, nil
	}
	return nil, errors.Join(errs...)
}
