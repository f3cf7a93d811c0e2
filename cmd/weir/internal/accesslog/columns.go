package accesslog

import (
	"bytes"
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// columns describes a server's logs in W3C's extended format, in which times are in UTC. Lines that begin with
// #Fields name the columns.
type columns struct {
	between string            // separates columns
	own     map[string]string // variables for columns, in lower case, where they are not those of w3c
	decode  func(isHeader bool, value string) string
}

// w3c has the names of columns that mean the same for all servers.
var w3c = map[string]string{
	"c-ip": "remote_addr", "cs-method": "request_method", "cs-uri-stem": "request_uri", "cs-uri-query": "weir_query",
	"sc-status": "status", "cs-host": "host", "x-forwarded-for": "http_x_forwarded_for",
}

// iis is for IIS, which writes + for a space in headers.
var iis = &columns{
	between: " ", own: map[string]string{"time-taken": "weir_milliseconds"},
	decode: func(isHeader bool, value string) string {
		if isHeader {
			return strings.ReplaceAll(value, "+", " ")
		}
		return value
	},
}

// cloudFront is for CloudFront, which percent-encodes all values, those with % again. Its cs(Host) is the
// distribution's own name.
var cloudFront = &columns{
	between: "\t",
	own:     map[string]string{"time-taken": "request_time", "x-host-header": "host", "cs(host)": "distribution"},
	decode: func(_ bool, value string) string {
		if plain, err := url.PathUnescape(value); err == nil {
			return plain
		}
		return value
	},
}

// noColumns is a lineParser for lines whose columns are unknown. Its text says why.
type noColumns string

func (n noColumns) parse(*parser, *Entry, []byte) (at int, wrong string) { return 0, string(n) }

// directive reports whether a line is about the log itself. A #Fields line names the columns from there on.
func (p *parser) directive(line []byte) bool {
	if p.columns == nil || !bytes.HasPrefix(line, []byte("#")) {
		return false
	}
	text, ok := strings.CutPrefix(string(line), "#Fields:")
	if !ok {
		return true
	}
	columns := strings.Fields(text)
	if p.mark != "" && !slices.Contains(columns, p.mark) {
		p.lines = noColumns("has no column " + p.mark)
		return true
	}
	for i, name := range columns {
		columns[i] = "$" + p.columns.variable(strings.ToLower(name))
	}
	if err := p.readText(strings.Join(columns, p.columns.between)); err != nil {
		p.lines = noColumns(err.Error())
	}
	return true
}

var notInVariables = regexp.MustCompile(`[^a-z0-9]+`)

// variable returns the name of a column's variable. cs(X-Device) becomes http_x_device.
func (c *columns) variable(name string) string {
	if variable := cmp.Or(c.own[name], w3c[name]); variable != "" {
		return variable
	}
	if header, ok := strings.CutPrefix(name, "cs("); ok {
		name = "http-" + header
	}
	return strings.Trim(notInVariables.ReplaceAllString(name, "_"), "_")
}
