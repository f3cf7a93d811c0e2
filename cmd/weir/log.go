package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/internal/operate"
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
	zone                           *time.Location
	mapped                         map[string]string
	trusted, routes                []string
	serveMux, partial              bool
}

func newLogFlags(s *session, flags *pflag.FlagSet) *logFlags {
	f := &logFlags{session: s, output: s.output(flags), mapped: map[string]string{}}
	flags.StringVar(&f.format, "format", "", "the log's `format`: "+strings.Join(accesslog.Formats(), ", ")+", or a log_format of nginx; by default the format that fits")
	flags.Func("map", "`NAME=PLACE` says where a line has the user, tier, time, date, took, client, method, target, host, status, header:NAME, cookie:NAME or key:NAME: user=$.sub in JSON, user=$remote_user in a format; may be repeated", func(text string) error {
		name, place, ok := strings.Cut(text, "=")
		if !ok || name == "" || place == "" {
			return errors.New("want a name, = and a place, such as user=$.sub")
		}
		f.mapped[name] = place
		return nil
	})
	flags.Func("zone", "the time `zone` of times without one, such as UTC or Europe/Berlin", func(name string) (err error) {
		f.zone, err = zoneNamed(name)
		return err
	})
	flags.StringSliceVar(&f.trusted, "trust", nil, "`addresses` of proxies, comma-separated: their clients are taken from X-Forwarded-For in the log")
	flags.StringArrayVar(&f.routes, "route", nil, "a `route` of the service that the rules do not name, such as \"GET /users/{id}\", for keys with routes; may be repeated")
	flags.BoolVar(&f.serveMux, "servemux", false, "the router is an http.ServeMux")
	flags.StringVar(&f.keys, "keys", "", "comma-separated `names` of the application's own keys; --map key:NAME=PLACE says where the log has one")
	flags.StringVar(&f.show, "show", "digest", "how clients are shown: digest or address")
	flags.StringVar(&f.secretFile, "secret-file", "", "a `file` with the Secret of the service's digests; or $WEIR_SECRET")
	return f
}

func zoneNamed(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || zone == time.Local {
		return nil, fmt.Errorf("there is no time zone %q: want UTC or a name such as Europe/Berlin", name)
	}
	return zone, nil
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
	trust   keyfunc.Func // finds the client by --trust; nil: without it
	naming  []string     // the header that names clients, for each rules file; "": none does
	missing []rules.Need // inputs of rules that the log lacks
	unmet   []string     // inputs of rules that no request had so far
	needed  []string     // the headers that rules need, beside naming
}

// forwardedFor is the header that --trust reads.
const forwardedFor = "X-Forwarded-For"

// read calls do with a log, "-" for the standard input. needs are the inputs that rules need from it, and
// naming has the header in which each file's proxies name clients. An error names the log.
func (f *logFlags) read(name string, needs []rules.Need, naming []string, do func(*weblog) error) error {
	in, err := f.open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // clients' data stay in memory until the end
	}
	log, err := f.newLog(in, needs, naming)
	if err == nil {
		err = do(log)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (f *logFlags) newLog(in io.Reader, needs []rules.Need, naming []string) (l *weblog, err error) {
	l = &weblog{flags: f, naming: naming}
	for _, need := range needs {
		l.needed = append(l.needed, headersOf(need.Of)...)
	}
	if len(f.trusted) > 0 {
		if slices.ContainsFunc(naming, func(header string) bool { return header != "" }) {
			return nil, usageError{errors.New("the rules have proxies, which say who the client is: leave out --trust")}
		}
		if l.trust, err = keyfunc.NewIP(keyfunc.TrustProxies(f.trusted...), keyfunc.IPv6Prefix(128)); err != nil {
			return nil, usageError{fmt.Errorf("--trust: %w", err)}
		}
		l.naming = slices.Repeat([]string{forwardedFor}, len(naming))
	}
	headers := slices.DeleteFunc(slices.Concat(l.naming, l.needed), func(header string) bool { return header == "" })
	slices.Sort(headers)
	if l.Reader, err = accesslog.NewReader(in, accesslog.Options{
		Format: f.format, Map: f.mapped, Zone: f.zone, Headers: slices.Compact(headers),
	}); err != nil {
		return nil, err
	}
	if !l.Has("client") {
		return nil, errors.New("the log has no clients' addresses: say where with --map client=PLACE")
	}
	if l.trust != nil && !l.Has(forwardedFor) {
		return nil, fmt.Errorf("--trust needs X-Forwarded-For, which the log does not have: %s", whereIs(forwardedFor))
	}
	for _, need := range needs {
		if !l.satisfies(need.Of) {
			l.missing = append(l.missing, need)
		} else if !slices.Contains(l.unmet, need.Of) {
			l.unmet = append(l.unmet, need.Of)
		}
	}
	return l, nil
}

// whereIs says how to read a header that names clients from a log.
func whereIs(header string) string {
	variable := "$http_" + strings.ReplaceAll(strings.ToLower(header), "-", "_")
	return fmt.Sprintf("say where with --map header:%s=PLACE, or with --format and a log_format that has %s", header, variable)
}

// options returns how requests are made of the log, for a rules file.
func (l *weblog) options(file int) simulate.Options {
	headers := slices.Clone(l.Headers())
	if l.naming[file] == "" && !slices.Contains(l.needed, forwardedFor) {
		headers[slices.Index(headers, forwardedFor)] = ""
	}
	return simulate.Options{Routes: l.flags.routes, ServeMux: l.flags.serveMux, Headers: headers, Trust: l.trust}
}

// headersOf returns the headers of a log that may have an input of a rule; nil: the input is not in a header.
func headersOf(need string) []string {
	header, isHeader := strings.CutPrefix(need, "header:")
	switch {
	case isHeader, strings.HasPrefix(need, "key:"):
		return []string{header}
	case strings.HasPrefix(need, "cookie:"):
		return []string{need, "Cookie"}
	}
	return nil
}

// satisfies reports whether the log has an input that a rule needs.
func (l *weblog) satisfies(need string) bool {
	headers := headersOf(need)
	switch {
	case headers != nil:
		return slices.ContainsFunc(headers, l.Has)
	case strings.HasPrefix(need, "query:"):
		return l.Has("target")
	case isSettlement(need):
		return true // a note says that it is not known
	case need == "route":
		return len(l.flags.routes) > 0
	}
	return l.Has(need)
}

// isSettlement reports whether a need is the real cost of a request.
func isSettlement(need string) bool {
	return need == "settled" || need == "usage" || strings.HasPrefix(need, "answer:")
}

// each calls do with each request, until an error.
func (l *weblog) each(do func(*accesslog.Entry) error) error {
	for {
		e, err := l.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Chain != "" && slices.ContainsFunc(l.naming, func(header string) bool { return header != forwardedFor }) {
			return fmt.Errorf("%q is a list of addresses in the client's place: which is the client depends on your proxies, which --trust names, or proxies in the rules", e.Chain)
		}
		l.unmet = slices.DeleteFunc(l.unmet, func(of string) bool { return l.hasIn(e, of) })
		if err := do(e); err != nil {
			return err
		}
	}
}

// hasIn reports whether a request has an input of a rule, or whether that is unknown.
func (l *weblog) hasIn(e *accesslog.Entry, of string) bool {
	switch of {
	case "user":
		return e.User != ""
	case "tier":
		return e.Tier != ""
	case "host":
		return e.Host != ""
	}
	headers := headersOf(of)
	return headers == nil || slices.ContainsFunc(headers, func(name string) bool {
		i := slices.Index(l.Headers(), name)
		return i >= 0 && e.Headers != nil && e.Headers[i] != ""
	})
}

// lacksClients returns an error if the proxies of a rules file sent requests without naming their clients,
// because the log does not have the header for that.
func (l *weblog) lacksClients(file int, unnamed int64) error {
	header := l.naming[file]
	if unnamed == 0 || l.Has(header) || l.flags.partial {
		return nil
	}
	return fmt.Errorf("a request comes from a proxy that the rules trust, and the log does not have %s, which names its client: %s, or count the proxy with --partial",
		header, whereIs(header))
}

// A finding is the first part of the results of simulate and recommend.
type finding struct {
	Verdict string          `json:"verdict"`
	Log     accesslog.Stats `json:"log"`
	Notes   []string        `json:"notes"`
	detail  string
}

// found returns the finding after a log was read. answered is the number of 429s in the log.
func (l *weblog) found(verdict, detail string, notes []string, by simulate.Peers, answered int64) finding {
	stats := l.Stats()
	notes = append([]string{}, notes...)
	for _, of := range l.unmet {
		note := "No request in the log has a " + of
		if place := l.flags.mapped[of]; place != "" {
			note += ": at " + place + " there is none"
		}
		notes = append(notes, note+".")
	}
	return finding{verdict, stats, append(append(notes, l.clients(by)...), readings(&stats, answered)...), detail}
}

// clients returns notes on who the clients of the log are.
func (l *weblog) clients(by simulate.Peers) (notes []string) {
	if l.flags.format == "" && l.Stats().Format == "main" && slices.Contains(l.naming, forwardedFor) {
		notes = append(notes, "The field behind the user agent is read as X-Forwarded-For, as in nginx's format main.")
	}
	if by.Unnamed > 0 {
		notes = append(notes, operate.Count(by.Unnamed, "request comes", "requests come")+" from a trusted proxy that does not name the client: the proxy is counted.")
	}
	if by.Unread > 0 {
		notes = append(notes, operate.Count(by.Unread, "request has", "requests have")+" X-Forwarded-For, which is not read: the TCP peer is counted. If the peers are your proxies, name them with --trust, or in the rules under proxies.")
	}
	return notes
}

// write writes the finding as text.
func (f *finding) write(table io.Writer) {
	fmt.Fprintf(table, "%s\n%s\n", f.Verdict, f.detail)
	for _, note := range f.Notes {
		fmt.Fprintln(table, "note:", note)
	}
	fmt.Fprintln(table)
}
