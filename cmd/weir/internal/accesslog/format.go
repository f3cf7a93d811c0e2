package accesslog

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A format says how lines are written.
type format struct {
	name   string // several formats may share a name; the log's lines decide
	text   string // as a log_format
	more   bool   // lines may have further text
	object string // of JSON: fields and their paths, as in Options.Map; the last path counts
	header string // of JSON: the path of the header *

	begins bool // the time of a line is the request's beginning, and not the time of the answer
	utc    bool // times without a zone are in UTC, and lines that begin with # are about the log

	escaped bool // values are percent-encoded, those with % again

	// If proof is not empty, other formats read the lines, too: the format needs a line whose virtual host (vhost) or
	// host is no address, or whose X-Forwarded-For ends with an address.
	proof string
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
	{name: "main", text: combined + ` "$http_x_forwarded_for"`, more: true, proof: forwardedFor},
	{name: "lighttpd", more: true, proof: "host",
		text: "$remote_addr $host" + strings.TrimPrefix(combined, "$remote_addr $ident")},
	{name: "combined", text: combined, more: true},
	{name: "combined", text: "$vhost " + combined, more: true, proof: "vhost"},
	{name: "common", text: common, more: true},
	{name: "alb", more: true, text: `$type $time_iso8601 $elb $remote_addr $target ` +
		`$request_time $request_time $request_time $status $target_status $received $sent "$request" "$http_user_agent"`},
	{name: "squid", text: "$msec $weir_milliseconds $remote_addr $result/$status $body_bytes_sent $request_method $request_uri $ident_user $hierarchy/$server $type", more: true},
	{name: "haproxy", text: "${syslog}haproxy[$pid]: " + haproxy, more: true, begins: true},
	{name: "haproxy", text: haproxy, more: true, begins: true},
	{name: "zoraxy", text: `${go_log}[$date $time] [router:$router] [origin:$host] [client: $remote_addr] ` +
		`[useragent: $http_user_agent] $request_method $request_uri $status`},
	{name: "iis", utc: true, text: `$date $time $server_ip $request_method $request_uri $weir_query $port $username ` +
		`$remote_addr $agent $referer $status $substatus $win32_status $weir_milliseconds`},
	{name: "cloudfront", utc: true, escaped: true, text: strings.ReplaceAll(`$date $time $edge $bytes $remote_addr `+
		`$request_method $distribution $request_uri $status $http_referer $http_user_agent $weir_query $cookie $result $id `+
		`$host $protocol $received $request_time $http_x_forwarded_for $ssl`, " ", "\t")},
	{name: "caddy", object: `logger=$.logger time=$.ts took_s=$.duration status=$.status client=$.request.remote_ip ` +
		`client=$.request.remote_addr client=$.request.client_ip method=$.request.method target=$.request.uri ` +
		`host=$.request.host`, header: `$.request.headers["*"]`},
	{name: "traefik", begins: true, object: `time=$.StartUTC took_ns=$.Duration status=$.DownstreamStatus ` +
		`client=$.ClientAddr client=$.ClientHost method=$.RequestMethod target=$.RequestPath host=$.RequestAddr`,
		header: "$.request_*"},
	{name: anything, object: "time=$.timestamp time=$.@timestamp time=$.ts client=$.remote_ip " +
		"client=$.client_ip method=$.method target=$.path target=$.uri", header: "$.http_*"}, // and variables
}

// speaks reports whether an entry that the parser read speaks for its format (1), against it (-1) or neither (0).
func (p *parser) speaks(e *Entry) int {
	value := e.Host
	switch p.proof {
	case "":
		return 1
	case "vhost":
		value = p.vhost
	case forwardedFor: // of nginx's packaged format; an address with a port may be the upstream server's
		if e.Headers == nil || e.Headers[p.forwarded] == "" {
			return 0
		}
		list := e.Headers[p.forwarded]
		if _, err := netip.ParseAddr(strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])); err != nil {
			return -1
		}
		return 1
	}
	switch _, isAddress := addressOf(value); {
	case value == "":
		return -1
	case isAddress:
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
			these[0].proof = ""
		}
	}
	var found []*parser
	var errs []error
	for i := range these {
		p, err := newParser(&these[i], o)
		if err == nil && !p.has["time"] {
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
