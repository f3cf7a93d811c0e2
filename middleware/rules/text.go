package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	netw "github.com/weirgo/weir/internal/network"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// The types of this file read themselves from one word or text.

// limitText is a limit as text.
type limitText struct {
	limiter.Limit
	named bool // the text names the algorithm
}

func (l *limitText) UnmarshalText(text []byte) error {
	l.named = slices.ContainsFunc(strings.Fields(string(text)), func(word string) bool {
		return new(limiter.Algorithm).UnmarshalText([]byte(word)) == nil
	})
	return inWords(l.Limit.UnmarshalText(text))
}

// period is a time span.
type period struct{ time.Duration }

func (p *period) UnmarshalText(text []byte) (err error) {
	given := string(text)
	if given != "" && strings.Trim(given, "0123456789_") == "" {
		seconds, err := yamlfile.ParseInteger(given)
		if err != nil {
			return fmt.Errorf("%.64q is not a whole number of seconds, nor a duration such as 10s, 1m, 24h or 30d", text)
		}
		given = strconv.FormatInt(seconds, 10) + "s"
	}
	p.Duration, err = limiter.ParsePeriod(given)
	return inWords(err)
}

// stopAbove is a period, or off, which is negative.
type stopAbove struct{ time.Duration }

func (s *stopAbove) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		s.Duration = -1
		return nil
	}
	var p period
	if err := p.UnmarshalText(text); err != nil {
		return fmt.Errorf("%w, or off", err)
	}
	s.Duration = p.Duration
	return nil
}

// window is a length, or a day, week, month or year of the calendar.
type window struct{ of limiter.Limit }

// calendars are the words for windows of the calendar.
var calendars = []string{"daily", "weekly", "monthly", "yearly"}

func (w *window) UnmarshalText(text []byte) (err error) {
	var p period
	switch word, _, isLonger := strings.Cut(string(text), " "); {
	case slices.Contains(calendars, word):
		w.of, err = limiter.Parse("1 " + string(text))
		return inWords(err)
	case isLonger && slices.Contains([]string{"day", "week", "month", "year"}, word):
		if err = p.UnmarshalText([]byte(word)); err == nil {
			err = fmt.Errorf("is it a length or a calendar? Write %s for any such length, or a calendar such as daily Europe/Berlin or weekly from sunday", word)
		}
		return err
	}
	err = p.UnmarshalText(text)
	w.of.Per = p.Duration
	return err
}

// inFile is the text of another package's error, with the names that a file uses.
func inFile(err error) string { return invalid.Text(err, inSnake) }

// renamed are fields and options of other packages that have another name in a file, or none.
var renamed = map[string]string{
	"Events": "requests", "Per": "window", "Units": "cost", "Reserve": "cost", "Afterwards": "when", "Outcomes": "of",
	"SoftAt": "soft", "Options": "", "Config": "", "Prefix": "limit", "Delta": "reset", "TrustHeader": "header", "TrustProxies": "trusted",
	"TrustForwarded": "forwarded", "TrustUnixSocket": "unix_socket",
}

// inSnake returns what a file calls a field: escalate.max for Escalate.Max.
func inSnake(field string) string { return strings.Join(namesInFile(field), ".") }

func namesInFile(field string) (names []string) {
	field, _, _ = strings.Cut(field, "(") // an option's argument
	for name := range strings.SplitSeq(field, ".") {
		if other, ok := renamed[name]; ok {
			name = other
		}
		if name != "" {
			names = append(names, strings.ToLower(innerCapital.ReplaceAllString(name, "${1}_$2")))
		}
	}
	return names
}

var innerCapital = regexp.MustCompile(`([a-z])([A-Z])`)

// inWords is an error with that text, or nil.
func inWords(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(inFile(err))
}

// algorithm is one by its name.
type algorithm struct{ limiter.Algorithm }

var algorithms = []string{
	"sliding_window", "token_bucket", "leaky_bucket", "fixed_window", "sliding_log",
	"sliding_window_counter", "sliding_window_log", "gcra",
}

func (a *algorithm) UnmarshalText(text []byte) error {
	if a.Algorithm.UnmarshalText(text) != nil {
		return fmt.Errorf("%.64q is not an algorithm: %s", text, yamlfile.Suggest(string(text), algorithms))
	}
	return nil
}

// The meanings of words in a file. An empty or wrong word means the zero value.
var (
	families = map[string]middleware.Dialect{"both": middleware.HeadersBoth, "draft": middleware.HeadersDraft11, "none": middleware.HeadersNone}
	modes    = map[string]middleware.Mode{"shadow": middleware.Shadow, "deny": middleware.Deny}
	bodies   = map[string]middleware.Body{"plain": middleware.BodyPlain, "ai": middleware.BodyAI}
	noKeys   = map[string]middleware.NoKey{"skip": middleware.NoKeySkip, "bad_request": middleware.NoKeyBadRequest, "unauthorized": middleware.NoKeyUnauthorized}
	outages  = map[string]limiter.Outage{"open": limiter.FailOpen, "closed": limiter.FailClosed}
)

// answers is a status or a class of statuses that counts.
type answers struct{ text string }

func (a *answers) UnmarshalText(text []byte) error {
	a.text = string(text)
	_, err := middleware.ParseCounts(a.text)
	return inWords(err)
}

func (a answers) String() string { return a.text }

// percent is from 1 to 99; 0 is off.
type percent int

func (p *percent) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(string(text), "%"))
	if err != nil || n < 1 || n > 99 || percent(n).String() != string(text) {
		return fmt.Errorf("%.64q is not a percentage from 1%% to 99%%, or off", text)
	}
	*p = percent(n)
	return nil
}

func (p percent) String() string {
	if p == 0 {
		return "off"
	}
	return strconv.Itoa(int(p)) + "%"
}

// factor is a number from 1 to 1000.
type factor struct{ float64 }

func (f *factor) UnmarshalText(text []byte) (err error) {
	f.float64, err = strconv.ParseFloat(string(text), 64)
	if err != nil || !(f.float64 >= 1 && f.float64 <= 1000) || strings.ContainsAny(string(text), "xXpP_") {
		return fmt.Errorf("%.64q is not a number from 1 to 1000", text)
	}
	return nil
}

func (f factor) String() string { return strconv.FormatFloat(f.float64, 'f', -1, 64) }

// weight is a number from 0 to a million.
type weight struct{ float64 }

func (w *weight) UnmarshalText(text []byte) (err error) {
	w.float64, err = strconv.ParseFloat(string(text), 64)
	if err != nil || !(w.float64 >= 0 && w.float64 <= 1e6) || strings.ContainsAny(string(text), "xXpP_") {
		return fmt.Errorf("%.64q is not a number from 0 to 1000000", text)
	}
	return nil
}

func (w weight) String() string { return strconv.FormatFloat(w.float64, 'f', -1, 64) }

// size is a number, which may have a unit of bytes.
type size struct{ n int64 }

func (s *size) UnmarshalText(text []byte) (err error) {
	s.n, err = yamlfile.ParseSize(string(text))
	return err
}

func (s size) String() string { return strconv.FormatInt(s.n, 10) }

// network is a CIDR, or an address.
type network struct{ netip.Prefix }

// UnmarshalText never quotes text: it may be a key that stands in a list of networks by mistake.
func (n *network) UnmarshalText(text []byte) (err error) {
	if n.Prefix, err = netw.Parse(string(text)); err != nil {
		return err
	}
	if widest := netw.Widest(n.Prefix); n.Bits() < widest {
		n.Prefix = netip.Prefix{}
		return fmt.Errorf("%w; networks wider than /%d are refused", errEveryone, widest)
	}
	return nil
}

// date is a time, or the beginning of a day in UTC.
type date struct{ time.Time }

func (d *date) UnmarshalText(text []byte) (err error) {
	if d.Time, err = time.Parse(time.DateOnly, string(text)); err != nil {
		d.Time, err = time.Parse(time.RFC3339, string(text))
	}
	if err != nil || d.Year() < 2000 {
		return fmt.Errorf("%.64q is not a date such as 2026-12-24, or a time such as 2026-12-24T18:00:00Z", text)
	}
	return nil
}

var errEveryone = errors.New("it contains nearly all addresses")
