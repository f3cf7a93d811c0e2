package serverlimit

import (
	"net/http"
	"strings"
	"time"
)

// most is the greatest number that is believed, which is the greatest Integer of RFC 9651.
const most = 999_999_999_999_999

const yearSeconds = int64(year / time.Second)

// maxText is the length of the longest time that is read.
const maxText = 128

// A number has no sign and no exponent.
type number struct {
	whole int64         // most+1: above most
	part  time.Duration // the decimals, of a second
	step  time.Duration // the unit of its last digit, of a second
}

// readNumber reads a number at the beginning of s.
func readNumber(s string) (n number, rest string, ok bool) {
	i := 0
	for ; i < len(s) && isDigit(s[i]); i++ {
		n.whole = min(n.whole*10+int64(s[i]-'0'), most+1)
	}
	if i == 0 {
		return number{}, s, false
	}
	n.step = time.Second
	if i < len(s) && s[i] == '.' {
		for i++; i < len(s) && isDigit(s[i]); i++ {
			n.step /= 10 // 0 from the tenth on
			n.part += time.Duration(s[i]-'0') * n.step
		}
		n.step = max(n.step, time.Nanosecond)
	}
	return n, s[i:], true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// readCount reads a count, rounded down as Reddit sends 98.0, or returns Unsaid. Less than 1 is Unsaid
// too: a fraction of a quota that does not count requests is not "none".
func readCount(s string) int64 {
	n, rest, ok := readNumber(strings.Trim(s, " \t"))
	if !ok || rest != "" || n.whole > most || n.whole == 0 && n.part > 0 {
		return Unsaid
	}
	return n.whole
}

// between separates values that proxies have joined. A comma alone may separate thousands.
const between = ", "

// readCounts reads the least of several counts. It ignores parameters, such as Docker's
// (76;w=21600).
func readCounts(s string) int64 {
	n := int64(Unsaid)
	for item := range strings.SplitSeq(s, between) {
		item, _, _ = strings.Cut(item, ";")
		n = least(n, readCount(item))
	}
	return n
}

// readLimit reads a limit. In drafts up to 06 policies follow it (10, 10;w=1, 50;w=60), in Docker's
// dialect the window (100;w=21600). Policies with another limit are ignored.
func readLimit(s string) (limit int64, window time.Duration) {
	limit = Unsaid
	for item := range strings.SplitSeq(s, between) {
		item, params, policy := strings.Cut(item, ";")
		n := readCount(item)
		if !policy {
			limit = least(limit, n)
			continue
		}
		if limit == Unsaid {
			limit = n
		}
		if n == limit {
			window = max(window, windowIn(params))
		}
	}
	return limit, window
}

// windowIn is the w of parameters, which draft-polli-ratelimit-headers called window.
func windowIn(params string) time.Duration {
	for param := range strings.SplitSeq(params, ";") {
		if name, value, _ := strings.Cut(strings.Trim(param, " "), "="); name == "w" || name == "window" {
			return seconds(readCount(value))
		}
	}
	return 0
}

// seconds is n seconds; 0 if they are Unsaid or above a year.
func seconds(n int64) time.Duration {
	if n < 0 || n > yearSeconds {
		return 0
	}
	return time.Duration(n) * time.Second
}

// A span is a time to wait, and the unit that it was rounded to.
type span struct{ d, step time.Duration }

// agree is the longer of two spans, or the finer one if they agree within the unit of the coarser.
func agree(a, b span) span {
	if b.d > a.d {
		a, b = b, a
	}
	if b.d > 0 && b.step < a.step && a.d-b.d < a.step {
		return b
	}
	return a
}

// A clock converts instants into spans that begin at the response's own Date.
type clock struct {
	header http.Header
	date   time.Time // of the response; zero: missing
}

// read reads a time in any form; unit is the unit of numbers. The result may be above a year.
func (c *clock) read(s string, unit time.Duration) (span, bool) {
	s = strings.Trim(s, " \t")
	if s == "" || len(s) > maxText {
		return span{}, false
	}
	if n, rest, ok := readNumber(s); ok && rest == "" {
		return c.ofNumber(n, unit), true
	}
	if isDigit(s[0]) && !strings.Contains(s, "-") {
		d, err := time.ParseDuration(s) // 6m0s
		return span{d, precisionOf(d)}, err == nil
	}
	t, step, err := readDate(s)
	if err != nil {
		return span{}, false
	}
	at, ok := c.until(t)
	return span{at.d, max(at.step, step)}, ok
}

// ofNumber reads a number as a duration or an instant, by its size.
func (c *clock) ofNumber(n number, unit time.Duration) span {
	var instant time.Time
	switch {
	case n.whole >= 1e11 && n.whole <= most:
		instant = time.UnixMilli(n.whole) // 1973 and later
	case n.whole > yearSeconds && n.whole <= most && unit == time.Second:
		instant = time.Unix(n.whole, int64(n.part))
	}
	if !instant.IsZero() {
		if s, ok := c.until(instant); ok {
			return s
		} // else it is a very long time
	}
	if n.whole > int64(2*year/unit) {
		return span{2 * year, unit}
	}
	per := time.Second / unit
	return span{time.Duration(n.whole)*unit + n.part/per, max(n.step/per, 1)}
}

// precisionOf is the precision in which a duration seems to be written.
func precisionOf(d time.Duration) time.Duration {
	if d%time.Second == 0 {
		return time.Second
	}
	return time.Millisecond
}

// until is the time from the response until the instant t, or 0 if t has passed. It is not ok if t is
// more than a year ago by both clocks.
func (c *clock) until(t time.Time) (s span, ok bool) {
	d, step := t.Sub(c.date), time.Second // as Date is in whole seconds
	if c.date.IsZero() || d.Abs() > year {
		d, step = time.Until(t), time.Minute
	}
	return span{max(d, 0), step}, d >= -year
}

// The layouts of instants besides those of HTTP. Without a zone they are in UTC.
var (
	isoDates = []string{
		time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05",
		"2006-01-02T15:04Z07:00", "2006-01-02T15:04Z0700", "2006-01-02T15:04", // as Jira writes them
	}
	wordDates = []string{time.RFC1123Z, "Mon Jan _2 2006 15:04:05 GMT-0700"} // the latter is JavaScript's
)

// readDate reads an instant in a form of ISO 8601, as in HTTP, or as JavaScript writes it. step is its
// precision.
func readDate(s string) (t time.Time, step time.Duration, err error) {
	s, _, _ = strings.Cut(s, " (") // the zone's name
	layouts := isoDates
	if isDigit(s[0]) {
		s = strings.Replace(strings.TrimSuffix(s, " UTC"), " ", "T", 1)
		s = strings.ReplaceAll(s, " ", "") // before the zone
	} else {
		layouts = wordDates
		if day, ok := strings.CutSuffix(s, " UTC"); ok { // as Go's time.RFC1123 writes UTC
			s = day + " GMT"
		}
		if t, err = http.ParseTime(s); err == nil {
			return t, time.Second, nil
		}
	}
	for _, layout := range layouts {
		if t, err = time.Parse(layout, s); err == nil {
			if step = time.Second; !strings.Contains(layout, "15:04:05") {
				step = time.Minute
			}
			return t, step, nil
		}
	}
	return t, 0, err
}
