package redisbans

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/internal/wire"
)

//go:embed bans.lua
var source string

var script = wire.NewScript(source)

// format is the version of what is in Redis. It is part of all names, so that processes of two
// versions of Weir on one Redis leave each other's lists alone. A change of what is written
// changes it.
const format = "2"

// under begins the names of a list. The braces put all of it in one slot of a Cluster.
func under(prefix, format string) string { return prefix + ":" + format + ":{bans}:" }

// A remote is the list itself, in Redis.
type remote struct {
	*wire.Transport
	names   []string
	channel string
	max     int
}

// newRemote is the list with names that begin like that.
func newRemote(client redis.UniversalClient, prefix string, max int) *remote {
	return &remote{
		Transport: wire.NewTransport(client),
		names:     []string{prefix + "list", prefix + "changes", prefix + "ends"},
		channel:   prefix + "changed",
		max:       max,
	}
}

// A change is what is known of a key since a version of the list.
type change struct {
	version  int64
	ban      bans.Ban // its Key is the digest
	remember time.Duration
	lifted   bool // the ban, and what led to it, is forgotten
}

// An answer is what the script says: the list's version, the time on Redis's clock in
// milliseconds, and what else the operation answers.
type answer struct {
	version, now int64
	rest         []string
}

// run has Redis run the script.
func (r *remote) run(ctx context.Context, op string, args ...any) (a answer, err error) {
	said, err := wire.Call(ctx, func(ctx context.Context) ([]string, error) {
		request := wire.NewRequest(script, r.names, append([]any{op, r.channel, r.max}, args...)...)
		r.Run(ctx, request)
		return request.Strings()
	})
	switch {
	case err != nil && strings.Contains(err.Error(), "WEIRFULL"):
		return a, bans.ErrFull
	case err != nil:
		return a, r.failed(err)
	case len(said) < 2 || !numbers(said[:2], &a.version, &a.now):
		return a, misspoken(said)
	}
	a.rest = said[2:]
	return a, nil
}

// failed is why a call came to nothing.
func (r *remote) failed(err error) error { return r.Failed("redisbans", err, 0) }

func misspoken(said []string) error {
	return fmt.Errorf("redisbans: the script of bans answers %.200q", said)
}

// numbers reads fields that are all numbers.
func numbers(fields []string, into ...*int64) bool {
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return false
		}
		*into[i] = n
	}
	return true
}

// mark is before each of the notes at the end of a state. None of them has it in itself.
const mark = "\x1f"

func noteText(b bans.Ban) string { return b.By + mark + b.Reason }

// change is what a says of a digest, on this process's clock: its state in the list is "ends
// remember times rule", with since, by and reason behind marks, all times in milliseconds, and
// nothing if it is not there.
func (a *answer) change(tag, state string) (c change, ok bool) {
	if _, ok := keyfunc.ParseDigest(tag); !ok {
		return c, false
	}
	c = change{version: a.version, ban: bans.Ban{Key: tag}, lifted: state == ""}
	if c.lifted {
		return c, true
	}
	fields := strings.SplitN(state, " ", 4)
	var ends, remember, times int64
	if len(fields) != 4 || !numbers(fields[:3], &ends, &remember, &times) {
		return c, false
	}
	parts := strings.Split(fields[3], mark)
	n := len(parts) - 3 // the rule may have marks too
	if n < 1 {
		return c, false
	}
	c.remember = time.Duration(remember) * time.Millisecond
	begun := parts[n]
	c.ban.Rule, c.ban.Times, c.ban.By, c.ban.Reason = strings.Join(parts[:n], mark), int(times), parts[n+1], parts[n+2]
	here := func(ms int64) time.Time { return time.Now().Add(time.Duration(ms-a.now) * time.Millisecond) }
	if ends != 0 {
		c.ban.Until = here(ends)
	}
	if since, err := strconv.ParseInt(begun, 10, 64); err == nil {
		c.ban.Since = here(since)
	}
	return c, true
}

// ban is what holds of a key after an operation that bans it.
func (r *remote) ban(ctx context.Context, op, tag string, args ...any) (change, error) {
	a, err := r.run(ctx, op, append([]any{tag}, args...)...)
	if err != nil {
		return change{}, err
	}
	if len(a.rest) == 1 && a.rest[0] != "" {
		if c, ok := a.change(tag, a.rest[0]); ok {
			return c, nil
		}
	}
	return change{}, misspoken(a.rest)
}

// mergeArgs is how many describe a ban.
const mergeArgs = 8

func appendMerge(args []any, p pending) []any {
	left, newer, ago := "", "", ""
	if !p.ban.Until.IsZero() {
		left = milliseconds(time.Until(p.ban.Until))
	}
	if p.newer {
		newer = "1"
	}
	if !p.ban.Since.IsZero() {
		ago = milliseconds(time.Since(p.ban.Since))
	}
	return append(args, p.ban.Key, left, milliseconds(p.remember), strconv.Itoa(p.ban.Times), p.ban.Rule, newer, ago, noteText(p.ban))
}

// merge answers with the state of each digest that args describe, in their order.
func (r *remote) merge(ctx context.Context, args []any) (answer, error) {
	a, err := r.run(ctx, "merge", args...)
	if err == nil && len(a.rest) != len(args)/mergeArgs {
		err = misspoken(a.rest)
	}
	return a, err
}

// A page is what has changed since a version.
type page struct {
	version int64
	born    string // which list it is
	isLost  bool   // what was seen is no longer in Redis
	isAnew  bool   // what was lifted since then is not known: all has to be read
	changes []change
}

// fullPage is how many changes a page has at most.
const fullPage = 500

func (r *remote) read(ctx context.Context, seen int64, born string) (p page, err error) {
	a, err := r.run(ctx, "read", strconv.FormatInt(seen, 10), born)
	if err != nil {
		return p, err
	}
	if len(a.rest) < 3 || len(a.rest)%3 != 0 {
		return p, misspoken(a.rest)
	}
	p = page{version: a.version, born: a.rest[0], isLost: a.rest[1] == "1", isAnew: a.rest[2] == "1"}
	for i := 3; i < len(a.rest); i += 3 {
		c, ok := a.change(a.rest[i], a.rest[i+2])
		if !ok || !numbers(a.rest[i+1:i+2], &c.version) {
			return p, misspoken(a.rest[i : i+3])
		}
		p.changes = append(p.changes, c)
	}
	return p, nil
}

// milliseconds is d for Redis, rounded up.
func milliseconds(d time.Duration) string {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}
