package limitertest

import (
	"fmt"
	"time"
	_ "time/tzdata" // as every store has to know the time zones of limits

	"github.com/weirgo/weir/limiter"
)

// calendars are about limits whose windows are days, weeks, months and years somewhere.
var calendars = []testCase{
	{
		name: "a window of a calendar is as long as it is there",
		why:  "Days have 23 to 25 hours where clocks are set, and months 28 to 31 days: what was used comes back when the window ends, to the microsecond, and not after a length that is always the same.",
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
					t.retry(q, key, 5)
				}
			}
		},
	},
	{
		name: "what was used of a calendar's window is returned to that window alone",
		why:  "The window of a charge is found by its time, whatever the window's length.",
		run: func(t *trial) {
			q := t.quota(limiter.Monthly(10).In("Europe/Berlin"))
			t.begin(q, 28*24)
			at := t.take(q, "key", 4).At
			t.refund(limiter.Charge{Quota: q, Key: "key", Cost: 3, At: at})
			t.remaining(q, "key", 9, "after 3 of 4 were refunded in their month")
			t.sleep(t.look(q, "key").ResetAfter)
			t.take(q, "key", 4)
			t.refund(limiter.Charge{Quota: q, Key: "key", Cost: 1, At: at})
			t.remaining(q, "key", 6, "after a unit of the month before was refunded")
		},
	},
	{
		name: "what is owed is the next of a calendar's windows'",
		why:  "A debt is counted in the window that follows, and not in the one behind that.",
		run: func(t *trial) {
			q := t.quota(limiter.Daily(10).In("Europe/Berlin"))
			t.begin(q, 23)
			t.take(q, "key", 10)
			t.take(q, "other", 10)
			t.owe(limiter.Charge{Quota: q, Key: "key", Cost: 4}, limiter.Charge{Quota: q, Key: "other", Cost: 4})
			d := t.refuse(q, "key", 7)
			if d.ResetAfter != d.RetryAfter || d.NextAfter >= d.ResetAfter {
				t.broken("a key that owes 4 of 10 a day: RetryAfter %v, NextAfter %v, ResetAfter %v, want the first and last the same", d.RetryAfter, d.NextAfter, d.ResetAfter)
			}
			t.sleep(d.NextAfter)
			t.remaining(q, "key", 6, "on the day after 4 were owed")
			t.sleep(d.ResetAfter - d.NextAfter - tick)
			t.remaining(q, "key", 6, "at the end of that day")
			t.sleep(tick)
			t.remaining(q, "key", 10, "on the second day")
			t.remaining(q, "other", 10, "of a key that was not asked for meanwhile")
		},
	},
	{
		name: "a limit that changes within a day keeps what was used of it",
		why:  "A plan is changed in the middle of a day or a month: what was used of it stays used, under more, under less, in another time zone, and of another period.",
		run: func(t *trial) {
			before := t.quota(limiter.Daily(1000).In("Europe/Berlin"))
			start, end := t.begin(before, 24)
			t.sleep(time.Duration(end-start) / 2 * tick)
			for _, to := range []limiter.Limit{
				limiter.Daily(2000).In("Europe/Berlin"),
				limiter.Daily(900).In("Europe/Berlin"),
				limiter.Daily(2000).In("Asia/Kolkata"),
				limiter.Weekly(5000).In("Europe/Berlin"),
				limiter.Monthly(30_000),
				limiter.PerDay(2000),
				limiter.PerDay(2000).With(limiter.FixedWindow),
			} {
				key := to.String()
				t.take(before, key, 300)
				after := t.quota(to)
				t.remaining(after, key, to.Events-300, "when the limit has become "+to.String())
				t.take(after, key, 200)
				t.remaining(before, key, 500, "when it is what it was before")
				t.take(before, key, 100)
				t.remaining(after, key, to.Events-600, "when it has become "+to.String()+" again")
			}
			for _, from := range []limiter.Limit{limiter.PerDay(1000), limiter.PerDay(1000).With(limiter.FixedWindow)} {
				key := "from " + from.String()
				t.take(t.quota(from), key, 300)
				t.remaining(before, key, 700, "when the limit was "+from.String())
				t.take(before, key, 100)
				t.remaining(before, key, 600, "after 100 more")
			}
		},
	},
	{
		name: "the limits of a rule may be of a calendar and not",
		why:  "All of them have room, or nothing is taken; each comes back in its own time.",
		run: func(t *trial) {
			limits := []limiter.Limit{limiter.PerMinute(20), limiter.Daily(40).In("Europe/Berlin"), limiter.Monthly(50)}
			quotas, err := limiter.NewQuotas("several", "", limits)
			if err != nil {
				t.Fatal(err)
			}
			t.begin(t.quota(limiter.Monthly(1)), 30*24)
			charges := func(cost int64) (all []limiter.Charge) {
				for _, q := range quotas {
					all = append(all, limiter.Charge{Quota: q, Key: "key", Cost: cost})
				}
				return all
			}
			for _, step := range []struct {
				later     time.Duration
				cost      int64
				remaining [3]int64
			}{
				{0, 20, [3]int64{0, 20, 30}},
				{2 * time.Minute, 20, [3]int64{0, 0, 10}},
				{2 * time.Minute, 1, [3]int64{20, 0, 10}}, // refused by the day
				{26 * time.Hour, 10, [3]int64{10, 30, 0}},
				{26 * time.Hour, 1, [3]int64{20, 40, 0}}, // refused by the month
				{29 * 24 * time.Hour, 20, [3]int64{0, 20, 30}},
			} {
				t.sleep(step.later)
				for i, d := range t.decide(charges(step.cost)...) {
					if d.Remaining != step.remaining[i] {
						t.broken("%d of %v remain after %v more and a cost of %d, want %d", d.Remaining, limits[i], step.later, step.cost, step.remaining[i])
					}
				}
			}
		},
	},
}

// now is the store's time, which it tells of charges.
func (t *trial) now(q *limiter.Quota) int64 {
	t.Helper()
	at := t.look(q, "a key to ask for the time").At
	if at < 0 { // of counters beside the store's own
		return -at
	}
	return at
}

// begin sleeps until a window of so many hours begins.
func (t *trial) begin(q *limiter.Quota, hours float64) (start, end int64) {
	t.Helper()
	start, end = t.next(q, hours)
	t.sleep(time.Duration(start-t.now(q)) * tick)
	return start, end
}

// next is when the next window of so many hours begins and ends.
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
