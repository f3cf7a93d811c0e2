package main

import (
	"encoding/json"
	"errors"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/operate"
)

// An output writes a command's answer as text, or with --json as JSON.
//
// JSON has one form: names are in snake_case; durations are numbers of seconds, in fields that end with
// _seconds; times are in RFC 3339, in UTC; shares are from 0 to 1; missing values are left out, or are
// an empty list.
type output struct {
	to     io.Writer
	asJSON *bool
}

func (s *session) output(flags *pflag.FlagSet) *output {
	return &output{s.out, flags.Bool("json", false, "write JSON")}
}

// write writes v as JSON, or calls text with a table, in which tabs separate cells.
func (o *output) write(v any, text func(table io.Writer)) error {
	if *o.asJSON {
		encoder := json.NewEncoder(o.to)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	}
	table := tabwriter.NewWriter(o.to, 0, 0, 2, ' ', 0)
	text(table)
	return table.Flush()
}

// seconds is a duration in JSON, rounded to the microsecond.
type seconds float64

func inSeconds(d time.Duration) seconds { return seconds(d.Round(time.Microsecond).Seconds()) }

// String returns the duration for people.
func (s seconds) String() string {
	return operate.Duration(time.Duration(float64(s) * float64(time.Second)))
}

// now returns the time for JSON, to the second.
func now() time.Time { return inUTC(time.Now()) }

func inUTC(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// inWords returns the text of an error without names of packages: users of the command do not know them.
func inWords(err error) string { return invalid.Text(err, nil) }

// inWordsOrNil returns an error with that text, or nil.
func inWordsOrNil(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(inWords(err))
}
