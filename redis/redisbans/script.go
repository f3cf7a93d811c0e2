package redisbans

import (
	"context"
	_ "embed"
	"errors"
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

// format is the version of what is in Redis: the list, its queues, and its messages. It is
// part of all names, so that processes of two versions of Weir on one Redis leave each other's
// lists alone. Whoever changes what is written changes it.
const format = "1"

// under begins the names of a list. The braces put all of it in one slot of a Cluster.
func under(prefix, format string) string { return prefix + ":" + format + ":{bans}:" }

// A remote is the list itself, in Redis.
type remote struct {
	*wire.Transport
	names   []string
	channel string
	max     int
}

// newRemote is the list whose names begin like that.
func newRemote(client redis.UniversalClient, prefix string, max int) *remote {
	return &remote{
		Transport: wire.NewTransport(client),
		names:     []string{prefix + "list", prefix + "escalated", prefix + "byhand", prefix + "remembered"},
		channel:   prefix + "changes",
		max:       max,
	}
}

// A reply is what the script says.
type reply struct {
	version, now int64  // now in milliseconds, on Redis's clock
	ends         int64  // of the ban: 0 if it has no end
	remember     int64  // milliseconds
	times        int    //
	rule         string //
	tag          string // that was known, and is forgotten
	lifted       bool   // as its ban was in force
}

// change is what the answer says about a digest, on this process's clock.
func (a *reply) change(tag string) change {
	c := change{
		version:  a.version,
		ban:      bans.Ban{Key: tag, Rule: a.rule, Times: a.times},
		remember: time.Duration(a.remember) * time.Millisecond,
	}
	if a.ends != 0 {
		c.ban.Until = time.Now().Add(time.Duration(a.ends-a.now) * time.Millisecond)
	}
	return c
}

func (r *remote) ban(ctx context.Context, tag string, d time.Duration) (reply, error) {
	return r.change(ctx, "ban", tag, milliseconds(d))
}

func (r *remote) escalate(ctx context.Context, tag, rule string, e bans.Escalation) (reply, error) {
	return r.change(ctx, "escalate", tag, rule, milliseconds(e.Ban), strconv.FormatFloat(e.Factor, 'g', -1, 64), milliseconds(e.Max))
}

// change is for what is answered by the state of a key.
func (r *remote) change(ctx context.Context, op string, args ...any) (a reply, err error) {
	answer, err := r.run(ctx, op, args...)
	if err != nil {
		return a, err
	}
	if len(answer) != 3 || !a.stamp(answer) || !a.parse(answer[2]) {
		return a, fmt.Errorf("redisbans: the script of bans answers %.200q", answer)
	}
	return a, nil
}

func (r *remote) unban(ctx context.Context, tags []string) (a reply, err error) {
	args := make([]any, len(tags))
	for i, tag := range tags {
		args[i] = tag
	}
	answer, err := r.run(ctx, "unban", args...)
	if err != nil {
		return a, err
	}
	if len(answer) < 2 || !a.stamp(answer) {
		return a, fmt.Errorf("redisbans: the script of bans answers %.200q", answer)
	}
	if len(answer) > 3 {
		a.tag, a.lifted = answer[2], answer[3] == "1"
	}
	return a, nil
}

// mergeArgs is how many describe a ban.
const mergeArgs = 6

func appendMerge(args []any, tag string, p *pending) []any {
	left, newer := "", ""
	if !p.ban.Until.IsZero() {
		left = milliseconds(time.Until(p.ban.Until))
	}
	if p.newer {
		newer = "1"
	}
	return append(args, tag, left, milliseconds(p.remember), strconv.Itoa(p.ban.Times), p.ban.Rule, newer)
}

// merge answers with the state of each digest that args describe, in their order.
func (r *remote) merge(ctx context.Context, args []any) (stamp reply, states []string, err error) {
	answer, err := r.run(ctx, "merge", args...)
	if err != nil {
		return stamp, nil, err
	}
	if len(answer) != 2+len(args)/mergeArgs || !stamp.stamp(answer) {
		return stamp, nil, fmt.Errorf("redisbans: the script of bans answers %.200q", answer)
	}
	return stamp, answer[2:], nil
}

// A page is a part of the list. Without a cursor there is none: the process knows it.
type page struct {
	version, now int64
	cursor       string
	entries      []string // digest and state in turns
}

func (r *remote) read(ctx context.Context, seen int64, cursor string) (p page, err error) {
	answer, err := r.run(ctx, "read", strconv.FormatInt(seen, 10), cursor)
	if err != nil {
		return p, err
	}
	var a reply
	if len(answer) < 2 || !a.stamp(answer) {
		return p, fmt.Errorf("redisbans: the script of bans answers %.200q", answer)
	}
	p.version, p.now = a.version, a.now
	if len(answer) > 2 {
		p.cursor, p.entries = answer[2], answer[3:]
	}
	return p, nil
}

// stamp reads what every answer begins with.
func (a *reply) stamp(answer []string) bool {
	var err, err2 error
	a.version, err = strconv.ParseInt(answer[0], 10, 64)
	a.now, err2 = strconv.ParseInt(answer[1], 10, 64)
	return err == nil && err2 == nil
}

// parse reads the state of a key.
func (a *reply) parse(state string) bool {
	fields := strings.SplitN(state, " ", 4)
	if len(fields) != 4 {
		return false
	}
	var errs [3]error
	a.ends, errs[0] = strconv.ParseInt(fields[0], 10, 64)
	a.remember, errs[1] = strconv.ParseInt(fields[1], 10, 64)
	a.times, errs[2] = strconv.Atoi(fields[2])
	a.rule = fields[3]
	return errors.Join(errs[:]...) == nil
}

// A message is what the channel hears of a change.
type message struct {
	before int64 // the version that it changed
	tag    string
	change
}

func parseMessage(text string) (m message, ok bool) {
	fields := strings.SplitN(text, " ", 5)
	if len(fields) != 5 {
		return m, false
	}
	if _, ok := keyfunc.ParseDigest(fields[3]); !ok {
		return m, false
	}
	before, err := strconv.ParseInt(fields[0], 10, 64)
	a := reply{}
	if err != nil || !a.stamp(fields[1:3]) {
		return m, false
	}
	tag := fields[3]
	if fields[4] == "" {
		return message{before, tag, change{version: a.version, lifted: true}}, true
	}
	if !a.parse(fields[4]) {
		return m, false
	}
	return message{before, tag, a.change(tag)}, true
}

// run has Redis run the script.
func (r *remote) run(ctx context.Context, op string, args ...any) ([]string, error) {
	answer, err := wire.Call(ctx, func(ctx context.Context) ([]string, error) {
		request := wire.NewRequest(script, r.names, append([]any{op, r.channel, r.max}, args...)...)
		r.Run(ctx, request)
		return request.Strings()
	})
	switch {
	case err == nil:
		return answer, nil
	case strings.Contains(err.Error(), "WEIRFULL"):
		return nil, bans.ErrFull
	}
	return nil, r.failed(err)
}

// failed is why a call came to nothing.
func (r *remote) failed(err error) error { return r.Failed("redisbans", err, 0) }
