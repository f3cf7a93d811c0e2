package accesslog

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// columns describes a server's logs in W3C's extended format. Lines that begin with #Fields name the columns.
type columns struct {
	mark    string            // a column that no other server's logs have; "": not required
	between string            // separates columns
	names   map[string]string // variables for columns, in lower case
	decode  func(of field, value string) string
}

// w3c has the names of columns that mean the same for all servers.
var w3c = map[string]string{
	"c-ip": "remote_addr", "cs-method": "request_method", "cs-uri-stem": "request_uri", "cs-uri-query": "weir_query",
	"sc-status": "status", "cs-host": "host", "x-forwarded-for": "http_x_forwarded_for",
}

// iis is for IIS, which writes + for a space in headers.
var iis = &columns{
	mark: "sc-win32-status", between: " ", names: named(map[string]string{"time-taken": "weir_milliseconds"}),
	decode: func(of field, value string) string {
		if of == fieldUserAgent || of == fieldHeader {
			return strings.ReplaceAll(value, "+", " ")
		}
		return value
	},
}

// cloudFront is for CloudFront, which percent-encodes all values, those with % again. Its cs(Host) is the
// distribution's own name.
var cloudFront = &columns{
	mark: "x-edge-location", between: "\t",
	names: named(map[string]string{"time-taken": "request_time", "x-host-header": "host", "cs(host)": "distribution"}),
	decode: func(_ field, value string) string {
		if plain, err := url.PathUnescape(value); err == nil {
			return plain
		}
		return value
	},
}

// named returns w3c and a server's own names, which win.
func named(own map[string]string) map[string]string {
	names := maps.Clone(w3c)
	maps.Copy(names, own)
	return names
}

// withoutMark returns columns for a log whose format the user named.
func (c *columns) withoutMark() *columns {
	known := *c
	known.mark = ""
	return &known
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
	fields := strings.Fields(text)
	if mark := p.columns.mark; mark != "" && !slices.Contains(fields, mark) {
		p.lines = noColumns(fmt.Sprintf("has no column %s", mark))
		return true
	}
	for i, name := range fields {
		fields[i] = "$" + p.columns.variable(strings.ToLower(name))
	}
	if err := p.readText(strings.Join(fields, p.columns.between)); err != nil {
		p.lines = noColumns(err.Error())
	}
	return true
}

var notInVariables = regexp.MustCompile(`[^a-z0-9]+`)

// variable returns the name of a column's variable. cs(X-Device) becomes http_x_device.
func (c *columns) variable(name string) string {
	if variable, ok := c.names[name]; ok {
		return variable
	}
	if header, ok := strings.CutPrefix(name, "cs("); ok {
		name = "http-" + header
	}
	return strings.Trim(notInVariables.ReplaceAllString(name, "_"), "_")
}
