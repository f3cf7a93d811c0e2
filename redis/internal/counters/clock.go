package counters

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Clock is this process's clock, corrected to the server's when a script says how wrong it is. It
// only chooses the calendar window whose numbers a request carries ([limiter.Quota.Numbers]).
type Clock struct{ ahead atomic.Int64 }

// Now is the time in microseconds since 1970.
func (c *Clock) Now() int64 { return time.Now().UnixMicro() + c.ahead.Load() }

// MostCorrections is how often a request may be encoded again for the server's time. A window may end
// while the request is on its way.
const MostCorrections = 3

// Correct reports whether err says that a request carried a window that does not contain the server's
// time. Such a script has changed nothing. Correct sets the clock to the server's time and returns it.
func (c *Clock) Correct(err error) (now int64, ok bool) {
	said, ok := err.(redis.Error)
	if !ok {
		return 0, false
	}
	_, text, ok := strings.Cut(said.Error(), "WEIROUTOFDATE ")
	if !ok {
		return 0, false
	}
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	now, err = strconv.ParseInt(text[:digits], 10, 64)
	if err != nil {
		return 0, false
	}
	c.Set(now)
	return now, true
}

// Set sets the clock.
func (c *Clock) Set(now int64) { c.ahead.Store(now - time.Now().UnixMicro()) }
