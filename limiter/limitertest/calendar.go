package limitertest

import (
	"fmt"
	"time"
	_ "time/tzdata" // as every store has to know the time zones of limits

	"github.com/weirgo/weir/limiter"
)

// calendars test limits whose windows are days, weeks, months and years in a time zone.
var calendars = []testCase{
	{
		name: "a calendar window has its real length",
		why:  "Days have 23 to 25 hours where clocks change, and months 28 to 31 days. Units return when the real window ends, to the microsecond.",
		run: func(t *trial) {
			for _, tt := range []struct {
				limit limiter.Limit
				hours []float64 // of windows to look for
			}{
				{limiter.Daily(5), []float64{24}},
				{limiter.Daily(5).In("Europe/Berlin"), []float64{23, 25}},
				{limiter.Daily(5).In("Africa/Cairo"), []float64{23, 25}}, // at midnight
				{limiter.Daily(5).In("Australia/Lord_Howe"), []float64{23.5, 24.5}},
				{limiter.Weekly(5).From(time.Saturday).In("Europe/Berlin"), []float64{7*24 - 1, 7*24 + 1}},
				{limiter.Monthly(5), []float64{28 * 24, 30 * 24, 31 * 24}},
				{limiter.Monthly(5).In("Europe/Berlin"), []float64{31*24 - 1, 28 * 24, 31*24 + 1}},
				{limiter.Yearly(5).In("Asia/Kolkata"), []float64{365 * 24}},
			} {
				q := t.named(tt.limit.Calendar(), "", tt.limit)
				for _, hours := range tt.hours {
					key := fmt.Sprint(hours)
					start, end := t.next(q, hours)
					t.sleep(time.Duration(start-t.now(q))*tick - tick)
					if d := t.take(q, "before "+key, 5); d.ResetAfter != tick || d.NextAfter != tick {
						t.broken("under %v, 1µs before its window ends, ResetAfter is %v and NextAfter %v, want 1µs", tt.limit, d.ResetAfter, d.NextAfter)
					}
					t.sleep(tick)
					t.remaining(q, "before "+key, 5, "when its window has ended")
					d := t.take(q, key, 5)
					if want := time.Duration(end-start) * tick; d.ResetAfter != want || d.NextAfter != want {
						t.broken("under %v, when a window of %v hours begins, ResetAfter is %v and NextAfter %v, want %v", tt.limit, hours, d.ResetAfter, d.NextAfter, want)
					}
					t.sleep(d.ResetAfter / 2 / tick * tick)
					t.retry(limiter.Charge{Quota: q, Key: key, Cost: 5})
				}
			}
		},
	},
}

// now returns the store's time.
func (t *trial) now(q *limiter.Quota) int64 {
	t.Helper()
	return t.look(q, "a key to ask for the time").Receipt.At
}

// begin sleeps until a window of that many hours begins.
func (t *trial) begin(q *limiter.Quota, hours float64) {
	t.Helper()
	start, _ := t.next(q, hours)
	t.sleep(time.Duration(start-t.now(q)) * tick)
}

// next returns when the next window of that many hours begins and ends.
func (t *trial) next(q *limiter.Quota, hours float64) (start, end int64) {
	t.Helper()
	_, end = q.WindowAt(t.now(q))
	for range 2000 {
		start, end = q.WindowAt(end)
		if float64(end-start) == hours*3.6e9 {
			return start, end
		}
	}
	t.Fatalf("limitertest: no window of %v has %v hours", q.Limit(), hours)
	return 0, 0
}
