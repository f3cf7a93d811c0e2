package limiter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/invalid"
)

// Parse reads a limit written as text and checks it:
//
//	100/1m                     100 in a sliding minute
//	10/s burst 20              a token bucket; a burst makes it one
//	1000/h token-bucket        a token bucket with a burst of 1000
//	5/10m sliding-log          exact
//	1_000_000/30d              underscores may group digits
//	1000/day                   in any 24 hours
//	1000 daily                 in a day of the calendar, from midnight to midnight UTC
//	1000 daily Europe/Berlin   from midnight to midnight in that time zone
//	1_000_000 monthly          in a month of the calendar
//	10_000 weekly from sunday  weeks begin on monday by default
//
// The period after a slash is a length: a unit (s, m, h, d, or sec, min, second, minute, hour, day,
// week) or a number with a unit (ms, us and sums such as 1h30m too). A limit may end with "burst" and a
// number, and with the name of an algorithm, in either order. "gcra" is another name for token-bucket.
//
// The words daily, weekly, monthly and yearly are periods of the calendar ([Daily]). They have no slash.
// A time zone with its IANA name may follow.
func Parse(text string) (Limit, error) {
	l, err := parse(text)
	if err == nil {
		err = l.Validate()
	}
	if err != nil {
		return Limit{}, invalid.New("limiter", "parse %q: %w", shorten(text), err)
	}
	return l, nil
}

func parse(text string) (Limit, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Limit{}, fmt.Errorf("it is empty, want something like 100/1m")
	}
	count, period, isLength := strings.Cut(words[0], "/")
	if !isLength && (len(words) == 1 || calendarNamed(words[1]) == noUnit) {
		return Limit{}, fmt.Errorf("it does not begin with events/period, such as 100/1m, " +
			"or with events and a calendar, such as 100 daily")
	}
	events, err := parseCount("events", count)
	if err != nil {
		return Limit{}, err
	}
	var l Limit
	var rest []string
	if isLength {
		l.Events, rest = events, words[1:]
		l.Per, err = parsePeriod(period)
		if err == nil && len(rest) > 0 && (strings.EqualFold(rest[0], "from") || isZone(rest[0])) {
			err = fmt.Errorf("is it a length or a calendar? Write %[1]s/%[2]s for any such length, or a calendar without a slash, "+
				"as in %[1]s daily Europe/Berlin or %[1]s weekly from sunday", shorten(count), shorten(period))
		}
	} else {
		l, rest, err = parseCalendar(events, words[1], words[2:])
	}
	if err != nil {
		return Limit{}, err
	}

	var burst int64
	named := false
	for len(rest) > 0 {
		switch {
		case strings.EqualFold(rest[0], "burst") && burst != 0:
			return Limit{}, fmt.Errorf("burst is given twice")
		case strings.EqualFold(rest[0], "burst") && len(rest) == 1:
			return Limit{}, fmt.Errorf("burst has no number after it")
		case strings.EqualFold(rest[0], "burst"):
			if burst, err = parseCount("burst", rest[1]); err != nil {
				return Limit{}, err
			}
			if burst == 0 {
				return Limit{}, fmt.Errorf("burst is 0: it must be at least 1")
			}
			rest = rest[2:]
		case named:
			return Limit{}, fmt.Errorf("%q comes after an algorithm was named already", shorten(rest[0]))
		default:
			if err := l.Algorithm.UnmarshalText([]byte(rest[0])); err != nil {
				return Limit{}, fmt.Errorf("%q is neither burst nor one of %s", shorten(rest[0]), algorithmNames())
			}
			named = true
			rest = rest[1:]
		}
	}
	switch {
	case burst != 0 && named:
		l.Burst = burst
	case burst != 0:
		l = l.WithBurst(burst)
	}
	return l, nil
}

// parseCalendar reads a calendar, which goes on in the words behind it: "from" with a day of the week,
// and a time zone.
func parseCalendar(events int64, word string, words []string) (l Limit, rest []string, _ error) {
	l = calendarLimit(events, calendar{unit: calendarNamed(word)})
	if l.calendar.unit == week {
		l = Weekly(events)
	}
	if len(words) > 0 && strings.EqualFold(words[0], "from") {
		if len(words) == 1 {
			return l, nil, fmt.Errorf("from has no day after it, such as monday")
		}
		from, ok := parseWeekday(words[1])
		switch {
		case l.calendar.unit != week:
			return l, nil, fmt.Errorf("from %s is for weekly, and not for %s", shorten(words[1]), word)
		case !ok:
			return l, nil, fmt.Errorf("from is %q: it must be a day of the week, such as monday", shorten(words[1]))
		}
		l, words = l.From(from), words[2:]
	}
	if len(words) > 0 && isZone(words[0]) {
		l, words = l.In(words[0]), words[1:]
	}
	return l, words, nil
}

// isZone reports whether a word is meant as a time zone: each but a few old ones is "UTC" or has a slash.
func isZone(word string) bool {
	if word == time.UTC.String() || strings.Contains(word, "/") {
		return true
	}
	var a Algorithm
	if strings.EqualFold(word, "burst") || strings.EqualFold(word, "from") || a.UnmarshalText([]byte(word)) == nil {
		return false
	}
	_, err := zoneNamed(word)
	return err == nil
}

func parseWeekday(word string) (time.Weekday, bool) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if strings.EqualFold(word, d.String()) {
			return d, true
		}
	}
	return 0, false
}

// shorten keeps a hostile text out of logs, and its beginning in them.
func shorten(text string) string {
	const enough = 64
	if len(text) <= enough {
		return text
	}
	return text[:enough] + "..."
}

func parseCount(what, digits string) (int64, error) {
	plain := strings.ReplaceAll(digits, "_", "")
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") ||
		plain == "" || strings.Trim(plain, "0123456789") != "" {
		return 0, fmt.Errorf("%s is %q: it must be a whole number", what, shorten(digits))
	}
	n, err := strconv.ParseInt(plain, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: it must be a whole number below 2^63", what, shorten(digits))
	}
	return n, nil
}

// units are the periods that go without a number, longest first for formatPeriod.
var units = []struct {
	short  string
	words  []string
	length time.Duration
}{
	{"d", []string{"day"}, 24 * time.Hour},
	{"h", []string{"hour"}, time.Hour},
	{"m", []string{"min", "minute"}, time.Minute},
	{"s", []string{"sec", "second"}, time.Second},
	{"ms", []string{"millisecond"}, time.Millisecond},
	{"us", []string{"microsecond"}, time.Microsecond},
}

// ParsePeriod reads a length as [Parse] does: 60s, 1m, 1h30m, 30d, hour, week. It is from a
// microsecond to 366 days.
func ParsePeriod(text string) (time.Duration, error) {
	d, err := parsePeriod(text)
	if err != nil {
		return 0, invalid.New("limiter", "%w", err)
	}
	if err := checkPeriod(d); err != nil {
		return 0, invalid.New("limiter", "period %q is %w", shorten(text), err)
	}
	return d, nil
}

func parsePeriod(text string) (time.Duration, error) {
	for _, unit := range units {
		if text == unit.short || slices.Contains(unit.words, text) {
			return unit.length, nil
		}
	}
	if text == calendarUnits[week].name {
		return calendarUnits[week].per, nil
	}
	for u := day; u <= year; u++ {
		if n := calendarUnits[u]; text == n.name || text == n.word {
			return 0, fmt.Errorf("period %q is of the calendar: write %s without a slash, or a length such as %s", text, n.word, n.length)
		}
	}
	// time.ParseDuration knows no days: whole ones may stand in front.
	rest := text
	var days time.Duration
	if number, after, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("period %q: days must be a whole number up to 366", shorten(text))
		}
		days, rest = time.Duration(n)*24*time.Hour, after
	}
	if rest == "" && days != 0 {
		return days, nil
	}
	if strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, fmt.Errorf("period %q has a sign", shorten(text))
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, fmt.Errorf("period %q is not a duration such as 10s, 1m, 24h or 30d", shorten(text))
	}
	if d > maxPeriod {
		d = maxPeriod + 1 // Validate names the bound; the sum must not overflow
	}
	return days + d, nil
}

// String writes l so that [Parse] reads it back: 100/1m, 10/1s token-bucket burst 20,
// 1000 monthly Europe/Berlin.
func (l Limit) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(l.Events, 10))
	usual := SlidingWindow
	if c := l.Calendar(); c != "" {
		usual = FixedWindow
		b.WriteString(" " + c)
	} else {
		b.WriteString("/" + formatPeriod(l.Per))
	}
	if l.Algorithm != usual {
		b.WriteByte(' ')
		b.WriteString(l.Algorithm.String())
	}
	if l.Burst != 0 {
		b.WriteString(" burst ")
		b.WriteString(strconv.FormatInt(l.Burst, 10))
	}
	return b.String()
}

func formatPeriod(d time.Duration) string {
	if d <= 0 || d%time.Microsecond != 0 {
		return d.String() // not a valid period, shown as it is
	}
	var b strings.Builder
	for _, unit := range units {
		if n := d / unit.length; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteString(unit.short)
			d -= n * unit.length
		}
	}
	return b.String()
}

// MarshalText writes l as String does. A limit that is not valid is an error.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads what [Parse] reads, so that a Limit can be a flag
// (flag.TextVar), an environment variable or a field in YAML or JSON.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}
