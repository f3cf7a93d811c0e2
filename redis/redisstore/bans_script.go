package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/internal/wire"
)

//go:embed bans.lua
var bansLua string

var bansScript = wire.NewScript(bansLua)

// bansInRedis is the list itself.
type bansInRedis struct {
	client  redis.UniversalClient
	names   []string
	channel string
	max     int
}

// newBansInRedis is the list whose names begin like that.
func newBansInRedis(client redis.UniversalClient, prefix string, max int) *bansInRedis {
	return &bansInRedis{
		client:  client,
		names:   []string{prefix + "list", prefix + "escalated", prefix + "byhand", prefix + "remembered"},
		channel: prefix + "changes",
		max:     max,
	}
}

// A bansAnswer is what the script says.
type bansAnswer struct {
	version, now int64  // now in milliseconds, on Redis's clock
	ends         int64  // of the ban: 0 if it has no end
	remember     int64  // milliseconds
	times        int    //
	rule         string //
	tag          string // that was known, and is forgotten
	lifted       bool   // as its ban was in force
}

// change is what the answer says about a digest, on this process's clock.
func (a *bansAnswer) change(tag string) bansChange {
	c := bansChange{
		version:  a.version,
		ban:      bans.Ban{Key: tag, Rule: a.rule, Times: a.times},
		remember: time.Duration(a.remember) * time.Millisecond,
	}
	if a.ends != 0 {
		c.ban.Until = time.Now().Add(time.Duration(a.ends-a.now) * time.Millisecond)
	}
	return c
}

func (r *bansInRedis) ban(ctx context.Context, tag string, d time.Duration) (bansAnswer, error) {
	return r.change(ctx, "ban", tag, milliseconds(d))
}

func (r *bansInRedis) escalate(ctx context.Context, tag, rule string, e bans.Escalation) (bansAnswer, error) {
	return r.change(ctx, "escalate", tag, rule, milliseconds(e.Ban), strconv.FormatFloat(e.Factor, 'g', -1, 64), milliseconds(e.Max))
}

// change is for what is answered by the state of a key.
func (r *bansInRedis) change(ctx context.Context, op string, args ...any) (a bansAnswer, err error) {
	answer, err := r.run(ctx, op, args...)
	if err != nil {
		return a, err
	}
	if len(answer) != 3 || !a.stamp(answer) || !a.parse(answer[2]) {
		return a, fmt.Errorf("redisstore: the script of bans answers %.200q", answer)
	}
	return a, nil
}

func (r *bansInRedis) unban(ctx context.Context, tags []string) (a bansAnswer, err error) {
	args := make([]any, len(tags))
	for i, tag := range tags {
		args[i] = tag
	}
	answer, err := r.run(ctx, "unban", args...)
	if err != nil {
		return a, err
	}
	if len(answer) < 2 || !a.stamp(answer) {
		return a, fmt.Errorf("redisstore: the script of bans answers %.200q", answer)
	}
	if len(answer) > 3 {
		a.tag, a.lifted = answer[2], answer[3] == "1"
	}
	return a, nil
}

// mergeArgs is how many describe a ban.
const mergeArgs = 6

func appendMerge(args []any, tag string, p *bansPending) []any {
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
func (r *bansInRedis) merge(ctx context.Context, args []any) (stamp bansAnswer, states []string, err error) {
	answer, err := r.run(ctx, "merge", args...)
	if err != nil {
		return stamp, nil, err
	}
	if len(answer) != 2+len(args)/mergeArgs || !stamp.stamp(answer) {
		return stamp, nil, fmt.Errorf("redisstore: the script of bans answers %.200q", answer)
	}
	return stamp, answer[2:], nil
}

// A bansPage is a part of the list. Without a cursor there is none: who asked knows it.
type bansPage struct {
	version, now int64
	cursor       string
	entries      []string // digest and state in turns
}

func (r *bansInRedis) read(ctx context.Context, seen int64, cursor string) (p bansPage, err error) {
	answer, err := r.run(ctx, "read", strconv.FormatInt(seen, 10), cursor)
	if err != nil {
		return p, err
	}
	var a bansAnswer
	if len(answer) < 2 || !a.stamp(answer) {
		return p, fmt.Errorf("redisstore: the script of bans answers %.200q", answer)
	}
	p.version, p.now = a.version, a.now
	if len(answer) > 2 {
		p.cursor, p.entries = answer[2], answer[3:]
	}
	return p, nil
}

// stamp reads what every answer begins with.
func (a *bansAnswer) stamp(answer []string) bool {
	var err, err2 error
	a.version, err = strconv.ParseInt(answer[0], 10, 64)
	a.now, err2 = strconv.ParseInt(answer[1], 10, 64)
	return err == nil && err2 == nil
}

// parse reads the state of a key.
func (a *bansAnswer) parse(state string) bool {
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

// A bansMessage is what the channel hears of a change.
type bansMessage struct {
	before int64 // the version that it changed
	tag    string
	bansChange
}

func parseBansMessage(text string) (m bansMessage, ok bool) {
	fields := strings.SplitN(text, " ", 5)
	if len(fields) != 5 || !isTag(fields[3]) {
		return m, false
	}
	before, err := strconv.ParseInt(fields[0], 10, 64)
	a := bansAnswer{}
	if err != nil || !a.stamp(fields[1:3]) {
		return m, false
	}
	tag := fields[3]
	if fields[4] == "" {
		return bansMessage{before, tag, bansChange{version: a.version, lifted: true}}, true
	}
	if !a.parse(fields[4]) {
		return m, false
	}
	return bansMessage{before, tag, a.change(tag)}, true
}

// run has Redis run the script. It returns when ctx ends, or after a second if ctx says
// nothing: go-redis waits for longer, depending on its options.
func (r *bansInRedis) run(ctx context.Context, op string, args ...any) ([]string, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, bansTimeout)
		defer cancel()
	}
	args = append([]any{op, r.channel, r.max}, args...)
	type result struct {
		answer []string
		err    error
	}
	done := make(chan result, 1)
	go func() {
		answer, err := bansScript.Run(ctx, r.client, r.names, args...).StringSlice()
		done <- result{answer, err}
	}()
	select {
	case got := <-done:
		if got.err != nil {
			if strings.Contains(got.err.Error(), "WEIRFULL") {
				return nil, bans.ErrFull
			}
			return nil, fmt.Errorf("redisstore: bans: %w", wire.Plainly(got.err))
		}
		return got.answer, nil
	case <-ctx.Done():
		return nil, noAnswer(ctx)
	}
}

func noAnswer(ctx context.Context) error {
	return fmt.Errorf("redisstore: Redis said nothing about bans: %w", ctx.Err())
}
