package counters

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Clock is the server's as far as it is known: this process's, until a script says how wrong that is. It
// says which window of a calendar a script is told about ([limiter.Quota.Numbers]), no more.
type Clock struct{ ahead atomic.Int64 }

// Now is the time in microseconds since 1970.
func (c *Clock) Now() int64 { return time.Now().UnixMicro() + c.ahead.Load() }

// MostCorrections is how often a request is made anew for the server's time: a window may end
// while it is on its way.
const MostCorrections = 3

// Correct reports whether err is that a script was told about a window that the server's time is
// not in. It returns that time, and the clock then goes by it. Such a script has done nothing.
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

// Set says what time it is.
func (c *Clock) Set(now int64) { c.ahead.Store(now - time.Now().UnixMicro()) }
