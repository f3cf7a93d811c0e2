package accesslog

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// A format says how lines are written.
type format struct {
	name string // several formats may share a name; the log's lines decide

	text    string   // as a log_format
	more    bool     // lines may have further text
	columns *columns // of W3C's extended format; nil: another format
	mark    string   // a column that no other server's logs have; "": not required
	object  string   // of JSON: fields and their paths, as in Options.Map; the last path counts
	header  string   // of JSON: the path of the header *

	// begins says that the time of a line is the request's beginning. False: it is the time of the answer.
	begins bool

	// speaks reports whether a line that the format reads speaks for it (1), against it (-1) or neither (0).
	// If other formats are possible, a format needs a line that speaks for it. Nil: all do.
	speaks func(line string) int
}

// anything is the name of the format for JSON objects with any members.
const anything = "json"

const (
	common   = `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combined = common + ` "$http_referer" "$http_user_agent"`

	// haproxy is HAProxy's httplog. Captured headers, which stand before the request, have no quotes.
	haproxy = `$weir_address_port [$time_local] $frontend $backend $tr/$tw/$tc/$response/$weir_milliseconds ` +
		`$status $bytes $request_cookie $response_cookie $state $connections $queues $captured"$request"`
)

// formats are the formats with names. If several fit a log, the first is used that reads more than half as many
// lines as any other.
var formats = []format{
	{name: "traefik", text: combined + ` $count "$router" "$server" ${weir_milliseconds}ms`, begins: true},
	{name: "main", text: combined + ` "$http_x_forwarded_for"`, more: true, speaks: endsWithAddresses},
	{name: "lighttpd", text: "$remote_addr $host" + strings.TrimPrefix(combined, "$remote_addr $ident"), more: true, speaks: hasHost},
	{name: "combined", text: combined, more: true},
	{name: "combined", text: "$vhost " + combined, more: true, speaks: beginsWithName},
	{name: "common", text: common, more: true},
	{name: "alb", more: true, text: `$type $time_iso8601 $elb $remote_addr $target ` +
		`$request_time $request_time $request_time $status $target_status $received $sent "$request" "$http_user_agent"`},
	{name: "squid", text: "$msec $weir_milliseconds $remote_addr $result/$status $body_bytes_sent $request_method $request_uri $ident_user $hierarchy/$server $type", more: true},
	{name: "haproxy", text: "${syslog}haproxy[$pid]: " + haproxy, more: true, begins: true},
	{name: "haproxy", text: haproxy, more: true, begins: true},
	{name: "zoraxy", text: `${go_log}[$date $time] [router:$router] [origin:$host] [client: $remote_addr] ` +
		`[useragent: $http_user_agent] $request_method $request_uri $status`},
	{name: "iis", columns: iis, mark: "sc-win32-status"},
	{name: "cloudfront", columns: cloudFront, mark: "x-edge-location"},
	{name: "caddy", object: `logger=$.logger time=$.ts took_s=$.duration status=$.status client=$.request.remote_ip ` +
		`client=$.request.remote_addr client=$.request.client_ip method=$.request.method target=$.request.uri ` +
		`host=$.request.host`, header: `$.request.headers["*"]`},
	{name: "traefik", begins: true, object: `time=$.StartUTC took_ns=$.Duration status=$.DownstreamStatus ` +
		`client=$.ClientAddr client=$.ClientHost method=$.RequestMethod target=$.RequestPath host=$.RequestAddr`,
		header: "$.request_*"},
	{name: anything, object: "time=$.timestamp time=$.@timestamp time=$.ts client=$.remote_ip " +
		"client=$.client_ip method=$.method target=$.path target=$.uri", header: "$.http_*"}, // and variables
}

// quoted is a field in quotes. Servers write a quote in it as \" or \x22.
const quoted = `"((?:[^"\\]|\\.)*)"`

var mainLine = regexp.MustCompile(`^[^"]*` + quoted + ` \d+ [\d-]+ ` + quoted + ` ` + quoted + ` ` + quoted + `(?: |$)`)

// endsWithAddresses is for lines of nginx's packaged format: the field behind the user agent is
// X-Forwarded-For, which the last proxy ends with its caller's address. An address with a port may be
// that of the upstream server.
func endsWithAddresses(line string) int {
	field := mainLine.FindStringSubmatch(line)
	if field == nil {
		return -1
	}
	last := strings.TrimSpace(field[4][strings.LastIndexByte(field[4], ',')+1:])
	switch _, err := netip.ParseAddr(last); {
	case err == nil:
		return 1
	case last == "-":
		return 0
	}
	return -1
}

// hasHost is for lines whose second field is the host that was asked for, in place of the user by ident, who is never
// known. It may be an address, but not in all.
func hasHost(line string) int {
	client, rest, _ := strings.Cut(line, " ")
	host, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	switch _, isAddress := addressOf(host); {
	case host == "-", strings.HasSuffix(client, ","): // of a list of addresses
		return -1
	case isAddress:
		return 0
	}
	return 1
}

// beginsWithName is for lines that begin with a virtual host, which may be an address, but not in all.
func beginsWithName(line string) int {
	host, _, _ := strings.Cut(line, " ")
	if _, isAddress := addressOf(host); isAddress {
		return 0
	}
	return 1
}

// Formats returns the names of the known formats.
func Formats() (names []string) {
	for i := range formats {
		names = append(names, formats[i].name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// candidates returns parsers for the formats that a log may have.
func candidates(o Options) ([]*parser, error) {
	these := slices.Clone(formats)
	switch {
	case o.Format == "":
	case strings.ContainsAny(o.Format, "$ "):
		these = []format{{name: "its own", text: strings.TrimSpace(o.Format), more: true}}
	default:
		these = slices.DeleteFunc(these, func(f format) bool { return f.name != o.Format })
		if len(these) == 0 {
			return nil, fmt.Errorf("there is no format %q: want one of %s, or a log_format as nginx has it", o.Format, strings.Join(Formats(), ", "))
		}
		if len(these) == 1 {
			these[0].speaks, these[0].mark = nil, ""
		}
	}
	var found []*parser
	var errs []error
	for i := range these {
		p, err := newParser(&these[i], o)
		if err == nil && p.columns == nil && !p.has["time"] {
			err = errors.New("the format has no time: want $time_local, $time_iso8601, $msec or $date and $time, or say where it is")
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, p)
	}
	if found == nil {
		return nil, errs[0]
	}
	return found, nil
}
