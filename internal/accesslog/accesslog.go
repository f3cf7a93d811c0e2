// Package accesslog has requests for tests to replay: made up ones, and those in the access
// logs of web servers.
package accesslog

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Entry is a line in Apache's combined format.
type Entry struct {
	Client    string // address
	Time      time.Time
	Method    string
	Target    string // path and query, as it was sent
	Status    int
	UserAgent string
}

// Read reads a log and returns its entries in the order of their times. A server writes
// a line when it has answered, and so a little out of order. Entries of the same second
// stay in the order of the log.
func Read(r io.Reader) ([]Entry, error) {
	var entries []Entry
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return nil, fmt.Errorf("accesslog: %w", err)
			}
			break
		}
		entry, err := parse(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("accesslog: line %d: %w", len(entries)+1, err)
		}
		entries = append(entries, entry)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return entries, nil
}

// parse reads a line such as
//
//	192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 12 "referer" "agent"
func parse(line string) (Entry, error) {
	fields, err := split(line)
	if err != nil {
		return Entry{}, err
	}
	if len(fields) != 9 {
		return Entry{}, fmt.Errorf("it has %d fields, want 9: %.100q", len(fields), line)
	}
	at, timeErr := time.Parse("02/Jan/2006:15:04:05 -0700", fields[3])
	status, statusErr := strconv.Atoi(fields[5])
	if err := cmp.Or(timeErr, statusErr); err != nil {
		return Entry{}, err
	}
	request := strings.Fields(fields[4])
	if len(request) != 3 {
		return Entry{}, fmt.Errorf("%.100q is no request line", fields[4])
	}
	return Entry{
		Client: fields[0], Time: at, Method: request[0], Target: request[1],
		Status: status, UserAgent: fields[8],
	}, nil
}

// split splits at spaces outside of brackets and quotes, and takes those off. A quote
// that is open at the end of the line was cut off there, and ends with it.
func split(line string) ([]string, error) {
	var fields []string
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		var field string
		switch line[0] {
		case '[':
			field, line, _ = strings.Cut(line[1:], "]")
		case '"':
			// Apache escapes quotes within as \", as Go does.
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				line += `"`
				quoted = line
			}
			line = line[len(quoted):]
			if field, err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("%.100s is no quoted text", quoted)
			}
		default:
			field, line, _ = strings.Cut(line, " ")
		}
		fields = append(fields, field)
	}
	return fields, nil
}
