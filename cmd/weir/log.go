package main

import (
	"errors"
	"fmt"
	"io"
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

// The most clients that are listed.
const (
	mostOnTerminal = 10
	mostInJSON     = 100
)

// logFlags are the flags of simulate and recommend for reading a log and showing its clients.
type logFlags struct {
	*session
	*output
	format, keys, show, secretFile string
	mapped                         map[string]string
	trusted, routes                []string
	serveMux, partial              bool
}

func newLogFlags(s *session, flags *pflag.FlagSet) *logFlags {
	f := &logFlags{session: s, output: s.output(flags), mapped: map[string]string{}}
	flags.StringVar(&f.format, "format", "", "the log's `format`: "+strings.Join(accesslog.Formats(), ", ")+", or a log_format of nginx; by default the format that fits")
	flags.Func("map", "`NAME=PLACE` says where a line has the user, tier, time, took, client, method, target, host, status, header:NAME, cookie:NAME or key:NAME: user=$.sub in JSON, user=$remote_user in a format; may be repeated", func(text string) error {
		name, place, ok := strings.Cut(text, "=")
		if !ok || name == "" || place == "" {
			return errors.New("want a name, = and a place, such as user=$.sub")
		}
		f.mapped[name] = place
		return nil
	})
	flags.StringSliceVar(&f.trusted, "trust", nil, "`addresses` of proxies, comma-separated: their clients are taken from X-Forwarded-For in the log")
	flags.StringArrayVar(&f.routes, "route", nil, "a `route` of the service that the rules do not name, such as \"GET /users/{id}\", for keys with routes; may be repeated")
	flags.BoolVar(&f.serveMux, "servemux", false, "the router is an http.ServeMux")
	flags.StringVar(&f.keys, "keys", "", "comma-separated `names` of the application's own keys; --map key:NAME=PLACE says where the log has one")
	flags.StringVar(&f.show, "show", "digest", "how clients are shown: digest or address")
	flags.StringVar(&f.secretFile, "secret-file", "", "a `file` with the Secret of the service's digests; or $WEIR_SECRET")
	return f
}

// options returns options for a rules file. Bans follow the log's time.
func (f *logFlags) options() rules.Options {
	o := rules.Options{Keys: map[string]keyfunc.Func{}, Overload: shed.FromRules}
	o.Config.Bans.List = simulate.NewBans()
	for _, name := range list(f.keys) {
		o.Keys[name] = simulate.Key(name)
	}
	return o
}

// shown returns a function that returns a client's address or digest.
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
	flags   *logFlags
	client  func(*http.Request) netip.Addr // returns a request's client; nil: the client in the log
	missing []rules.Need                   // inputs of rules that the log lacks
	hasUser bool                           // a request had a user
}

// read calls do with a log, "-" for the standard input. needs are the inputs that rules need from it. An
// error names the log.
func (f *logFlags) read(name string, needs []rules.Need, do func(*weblog) error) error {
	in, err := f.open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // clients' data stay in memory until the end
	}
	log, err := f.newLog(in, needs)
	if err == nil {
		err = do(log)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (f *logFlags) newLog(in io.Reader, needs []rules.Need) (l *weblog, err error) {
	l = &weblog{flags: f}
	if l.Reader, err = accesslog.NewReader(in, accesslog.Options{Format: f.format, Map: f.mapped, Headers: headersOf(needs, f)}); err != nil {
		return nil, err
	}
	if !l.Has("client") {
		return nil, errors.New("the log has no clients' addresses: say where with --map client=PLACE")
	}
	if len(f.trusted) > 0 {
		if l.client, err = keyfunc.NewAddress(keyfunc.TrustProxies(f.trusted...)); err != nil {
			return nil, usageError{fmt.Errorf("--trust: %w", err)}
		}
		if !l.HasHeader("X-Forwarded-For") {
			return nil, errors.New("--trust needs X-Forwarded-For, which the log does not have: say where with --map header:X-Forwarded-For=PLACE")
		}
	}
	for _, need := range needs {
		if !l.satisfies(need.Of) {
			l.missing = append(l.missing, need)
		}
	}
	return l, nil
}

// headersOf returns the headers that rules need.
func headersOf(needs []rules.Need, f *logFlags) (headers []string) {
	for _, need := range needs {
		name, isHeader := strings.CutPrefix(need.Of, "header:")
		isCookie := strings.HasPrefix(need.Of, "cookie:")
		if isHeader || isCookie || strings.HasPrefix(need.Of, "key:") {
			headers = append(headers, name)
		}
		if isCookie {
			headers = append(headers, "Cookie")
		}
	}
	if len(f.trusted) > 0 {
		headers = append(headers, "X-Forwarded-For")
	}
	slices.Sort(headers)
	return slices.Compact(headers)
}

// satisfies reports whether the log has an input that a rule needs.
func (l *weblog) satisfies(need string) bool {
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
		return len(l.flags.routes) > 0
	}
	return l.Has(need)
}

// next returns the next request, with its client's address.
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
	forwarded := e.ForwardedFor
	if i := slices.Index(l.Headers(), "X-Forwarded-For"); forwarded == "" && i >= 0 && e.Headers != nil {
		forwarded = e.Headers[i]
	}
	if forwarded != "" {
		r.Header["X-Forwarded-For"] = []string{forwarded}
	}
	if client := l.client(r); client.IsValid() {
		e.Client = client.String()
	}
	e.ForwardedFor = "" // already used
	return e, nil
}

// A finding is the first part of the results of simulate and recommend.
type finding struct {
	Verdict string          `json:"verdict"`
	Log     accesslog.Stats `json:"log"`
	Notes   []string        `json:"notes"`
	detail  string
}

// found returns the finding after a log was read. answered is the number of 429s in the log.
func (l *weblog) found(verdict, detail string, notes []string, answered int64) finding {
	stats := l.Stats()
	if place := l.flags.mapped["user"]; place != "" && !l.hasUser {
		notes = append(notes, fmt.Sprintf("No request in the log has a user: at %s there is none.", place))
	}
	return finding{verdict, stats, append(append([]string{}, notes...), readings(&stats, answered)...), detail}
}

// write writes the finding as text.
func (f *finding) write(table io.Writer) {
	fmt.Fprintf(table, "%s\n%s\n", f.Verdict, f.detail)
	for _, note := range f.Notes {
		fmt.Fprintln(table, "note:", note)
	}
	fmt.Fprintln(table)
}
