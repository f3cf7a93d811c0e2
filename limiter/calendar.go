package limiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A calendar makes the period of a FixedWindow a day, week, month or year of a time zone. These
// differ in length. The zero calendar is none.
type calendar struct {
	unit unit
	from time.Weekday // on which weeks begin
	zone string       // empty: UTC
}

type unit uint8

const (
	noUnit unit = iota
	day
	week
	month
	year
)

// calendarUnits has the names and Per of each unit, and the length that a limit without calendar would have.
var calendarUnits = [...]struct {
	name, word string
	per        time.Duration
	length     string
}{
	day:   {"day", "daily", 24 * time.Hour, "24h"},
	week:  {"week", "weekly", 7 * 24 * time.Hour, "7d"},
	month: {"month", "monthly", 31 * 24 * time.Hour, "30d"},
	year:  {"year", "yearly", 366 * 24 * time.Hour, "365d"},
}

// calendarNamed returns the unit whose calendar has that word, or noUnit.
func calendarNamed(word string) unit {
	for u := day; u <= year; u++ {
		if calendarUnits[u].word == word {
			return u
		}
	}
	return noUnit
}

// Daily is a limit of events in a day from midnight to midnight, in UTC unless [Limit.In] sets a time
// zone. It counts like PerDay(events).With(FixedWindow).
func Daily(events int64) Limit { return calendarLimit(events, calendar{unit: day}) }

// Weekly is a limit of events in a calendar week. The week begins on Monday unless [Limit.From] sets
// another day. It is in UTC unless [Limit.In] sets a time zone.
func Weekly(events int64) Limit {
	return calendarLimit(events, calendar{unit: week, from: time.Monday})
}

// Monthly is a limit of events in a month of the calendar, in UTC unless [Limit.In] sets a time zone:
//
//	limiter.Monthly(1_000_000)
//	limiter.Monthly(1_000_000).In("Europe/Berlin")
func Monthly(events int64) Limit { return calendarLimit(events, calendar{unit: month}) }

// Yearly is a limit of events in a year of the calendar, in UTC unless [Limit.In] sets a time zone.
func Yearly(events int64) Limit { return calendarLimit(events, calendar{unit: year}) }

func calendarLimit(events int64, c calendar) Limit {
	return Limit{Events: events, Per: calendarUnits[c.unit].per, Algorithm: FixedWindow, calendar: c}
}

// In returns l in a time zone with that IANA name, such as "Europe/Berlin". An empty name is
// UTC. It is for limits of [Daily], [Weekly], [Monthly] and [Yearly]. [Limit.Validate] reports
// an unknown zone. If the system may have no zone data, import time/tzdata.
func (l Limit) In(zone string) Limit {
	switch {
	case l.calendar.unit == noUnit:
		zone = cmp.Or(zone, time.UTC.String()) // Validate refuses the zone of a limit without calendar
	case zone == time.UTC.String():
		zone = ""
	}
	l.calendar.zone = zone
	return l
}

// From returns l with weeks that begin on that day. It is for limits of [Weekly].
func (l Limit) From(day time.Weekday) Limit {
	l.calendar.from = day
	if l.calendar.unit != week {
		l.calendar.from = -1 // Validate refuses it; Sunday is 0
	}
	return l
}

// Calendar returns the period of a limit of [Daily], [Weekly], [Monthly] or [Yearly] as text:
// "daily Europe/Berlin", "weekly from monday", "monthly". For other limits it is empty.
func (l Limit) Calendar() string {
	if l.calendar.unit == noUnit {
		return ""
	}
	return l.calendar.String()
}

func (c calendar) String() string {
	text := calendarUnits[c.unit].word
	if c.unit == week {
		text += " from " + strings.ToLower(c.from.String())
	}
	if c.zone != "" {
		text += " " + c.zone
	}
	return text
}

// checkCalendar reports what is wrong with the calendar of l.
func (l Limit) checkCalendar(report func(field, reason string, args ...any)) {
	c := l.calendar
	switch {
	case c == calendar{}:
		return
	case c.unit == noUnit:
		report("Per", "%v: a time zone and a first day need Daily, Weekly, Monthly or Yearly", l.Per)
		return
	case l.Per != calendarUnits[c.unit].per:
		report("Per", "%v: of a calendar %s it must be %v", l.Per, calendarUnits[c.unit].name, calendarUnits[c.unit].per)
	case l.Algorithm != FixedWindow:
		report("Algorithm", "%v: a calendar %s needs %v", l.Algorithm, calendarUnits[c.unit].name, FixedWindow)
	}
	if c.unit != week && c.from != 0 || c.from < time.Sunday || c.from > time.Saturday {
		report("the first day", "none that a calendar %s can be from: only Weekly limits are From one of the seven days", calendarUnits[c.unit].name)
	}
	if _, err := zoneNamed(c.zone); err != nil {
		report("the time zone", "%w", err)
	}
}

// zones caches the zones that exist.
var zones sync.Map

// ofTheSystem has names of files beside the zones that are not zones.
var ofTheSystem = []string{time.Local.String(), "localtime", "posixrules", "posix", "right"}

// zoneNamed returns the zone of that name. Its error begins with the name.
func zoneNamed(name string) (*time.Location, error) {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	if top, _, _ := strings.Cut(name, "/"); slices.Contains(ofTheSystem, top) {
		return nil, fmt.Errorf("%q: it differs between processes, so name the time zone", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		if _, none := time.LoadLocation("America/New_York"); none != nil {
			return nil, fmt.Errorf(`%q: this system has no time zone data; import _ "time/tzdata" in the program`, shorten(name))
		}
		return nil, fmt.Errorf("%q: there is no such time zone, want a name such as Europe/Berlin", shorten(name))
	}
	zones.Store(name, zone)
	return zone, nil
}

// calendarWindows are the windows of a calendar. Each begins where the previous window ends, at a whole
// second. All times are in microseconds since 1970.
type calendarWindows struct {
	calendar
	zone *time.Location

	last atomic.Pointer[calendarWindow] // that was asked for
}

// A calendarWindow is a window, with its neighbors.
type calendarWindow struct {
	began                  int64 // the start of the previous window
	start, end, followedTo int64 // followedTo is the end of the next window
}

func newCalendarWindows(c calendar) *calendarWindows {
	zone, _ := zoneNamed(c.zone) // Validate has checked it
	return &calendarWindows{calendar: c, zone: zone}
}

// at returns the window of a time. It caches the latest window.
func (c *calendarWindows) at(t int64) *calendarWindow {
	if w := c.last.Load(); w != nil && w.start <= t && t < w.end {
		return w
	}
	return c.find(t)
}

func (c *calendarWindows) find(t int64) *calendarWindow {
	w, index := &calendarWindow{}, c.indexOf(time.UnixMicro(t).In(c.zone).Date()) // the number since 1970
	for w.end = c.start(index + 1); w.end <= t; w.end = c.start(index + 1) {
		index++ // clocks were set back over midnight: the day had begun
	}
	w.start = c.start(index)
	w.began, w.followedTo = w.start, w.end
	for before := index - 1; w.began == w.start; before-- { // of a day that there was not, it is the same
		w.began = c.start(before)
	}
	for next := index + 2; w.followedTo == w.end; next++ {
		w.followedTo = c.start(next)
	}
	c.last.Store(w)
	return w
}

// firstDay returns the day, counted from Thursday 1970-01-01, on which the first week begins.
func (c *calendarWindows) firstDay() int { return (int(c.from-time.Thursday) + 7) % 7 }

// indexOf returns the number of a date's window.
func (c *calendarWindows) indexOf(y int, m time.Month, d int) int64 {
	days := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60)
	switch c.unit {
	case year:
		return int64(y) - 1970
	case month:
		return 12*(int64(y)-1970) + int64(m) - 1
	case week:
		days -= int64(c.firstDay())
		return (days - (days%7+7)%7) / 7
	}
	return days
}

// start returns the start of the window with that number.
func (c *calendarWindows) start(index int64) int64 {
	i := int(index)
	switch c.unit {
	case year:
		return c.midnight(1970+i, 1, 1)
	case month:
		return c.midnight(1970, time.Month(1+i), 1)
	case week:
		return c.midnight(1970, 1, 1+c.firstDay()+7*i)
	}
	return c.midnight(1970, 1, 1+i)
}

// midnight returns when a day begins: the first time on its date or a later one. Where clocks change at
// night, midnight may be skipped or repeated, and [time.Date] does not define the result.
func (c *calendarWindows) midnight(y int, m time.Month, d int) int64 {
	const second = 1_000_000
	t := time.Date(y, m, d, 0, 0, 0, 0, c.zone)
	want := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() // local time, as if it were UTC
	_, offset := t.Zone()
	from, to := t.ZoneBounds()
	switch shown := t.Unix() + int64(offset); {
	case shown > want: // set forward over midnight, and t is behind that
		return from.Unix() * second
	case shown < want:
		return to.Unix() * second
	}
	if !from.IsZero() {
		_, before := from.Add(-time.Second).Zone()
		if first := want - int64(before); first < from.Unix() { // the clock is set back over midnight
			return first * second
		}
	}
	return t.Unix() * second
}

// WindowAt returns when the window that contains at begins and ends. All times are in microseconds
// since 1970. Windows of a calendar limit differ in length. For algorithms without windows (buckets, a
// log) both are 0.
func (q *Quota) WindowAt(at int64) (start, end int64) {
	if q.window > 0 && !q.logs {
		_, start, end, _ = q.windowsAround(q.usage(at, 0, 0))
	}
	return start, end
}
