package main

import (
	"encoding/json"
	"io"
	"regexp"
	"text/tabwriter"
	"time"
)

// What commands write as JSON has one form: names in snake_case; durations in seconds, as
// numbers, in fields that end with _seconds; times in RFC 3339, in UTC; shares from 0 to 1; and
// what there is not is left out, or an empty list.

func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// seconds is a duration in JSON, to the microsecond.
type seconds float64

func inSeconds(d time.Duration) seconds { return seconds(d.Round(time.Microsecond).Seconds()) }

// short is it for people.
func (s seconds) short() time.Duration {
	return round(time.Duration(float64(s) * float64(time.Second)))
}

func round(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// now is the time in JSON: to the second.
func now() time.Time { return inUTC(time.Now()) }

func inUTC(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// ratio is a share from 0 on.
func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(int64(1e4*float64(part)/float64(whole))) / 1e4
}

func percent(part, whole int64) int64 { return int64(100 * float64(part) / float64(whole)) }

func newTable(s *session) *tabwriter.Writer { return tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0) }

// packages are what errors of Weir's packages begin with, which tells the caller of a command
// nothing.
var packages = regexp.MustCompile(`(^|: |\n)(limiter|keyfunc|middleware|rules|bans|failover|redisbans|redisrules|redisstore): `)

// inWords is the text of an error without names of packages.
func inWords(err error) string { return packages.ReplaceAllString(err.Error(), "$1") }
