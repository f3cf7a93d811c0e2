package redisbans

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/internal/wire"
)

//go:embed bans.lua
var source string

var script = wire.NewScript(source)

// format is the version of what is in Redis. It is part of all names, so that two versions of Weir
// on one Redis do not read each other's lists. Whoever changes what is written changes the format.
const format = "5"

// run runs an operation of bans.lua, which says what each does. lifted reports that unban lifted a ban.
func (l *List) run(ctx context.Context, op, tag string, values any) (n news, lifted bool, err error) {
	text, _ := json.Marshal(values) // which cannot fail
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	said, err := wire.Call(ctx, func(ctx context.Context) ([]string, error) {
		run := wire.NewRun(script, l.names, l.channel, l.max, op, tag, string(text))
		l.redis.Send(ctx, run)
		return run.StringSlice()
	})
	switch {
	case err != nil:
		return n, false, l.failed(err)
	case len(said) != 2:
		return n, false, wire.Errorf("redisbans", "the answer is not one of bans.lua: %.200q", said)
	case said[0] == "full":
		return n, false, bans.ErrFull
	}
	n, err = readNews(said[1])
	return n, said[0] == "lifted", err
}

// readAll returns the state of each digest, of some of them twice. It asks a single server: another one has
// other cursors, so that digests would be left out.
func (l *List) readAll(ctx context.Context, now news) (list []news, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*l.patience)
	defer cancel()
	list, err = wire.Call(ctx, func(ctx context.Context) (list []news, err error) {
		var client redis.Cmdable = l.redis.Client
		if cluster, ok := l.redis.Client.(*redis.ClusterClient); ok {
			if client, err = cluster.MasterForKey(ctx, l.names[0]); err != nil {
				return nil, err
			}
		}
		of := client.HScan(ctx, l.names[0], 0, "", 1000).Iterator()
		for of.Next(ctx) {
			if now.tag = of.Val(); of.Next(ctx) {
				now.state = of.Val()
				list = append(list, now)
			}
		}
		return list, of.Err()
	})
	return list, l.failed(err)
}

// failed is err as this package returns it.
func (l *List) failed(err error) error { return l.redis.Failed("redisbans", err, l.patience) }

// A news is the state of a digest in a version of the list.
type news struct {
	before, version int64 // before: of the change before
	now             int64 // the server's time, in milliseconds since 1970
	received        time.Time
	tag, state      string
}

// none is the state of a digest that is not in the list.
const none = "none"

// readNews reads what bans.lua answers and publishes.
func readNews(text string) (n news, err error) {
	of := strings.SplitN(text, " ", 5)
	if _, err := fmt.Sscan(text, &n.before, &n.version, &n.now); err != nil || len(of) != 5 {
		return n, wire.Errorf("redisbans", "this is not from bans.lua: %.200q", text)
	}
	n.received, n.tag, n.state = time.Now(), of[3], of[4]
	return n, nil
}

// at is a time of the server's by this process's clock; 0 is none.
func (n news) at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return n.received.Add(time.Duration(ms-n.now) * time.Millisecond)
}

// read returns the ban of the state, whose Key is the digest, and how long its repetitions count after its
// end. If the state makes no sense, it returns false and a permanent ban, which an operator sees and can lift.
func (n news) read() (ban bans.Ban, remember time.Duration, ok bool) {
	if n.state == none {
		return bans.Ban{Key: n.tag, Until: n.received}, 0, true
	}
	var s struct {
		Ends, Remembered, Since int64 // in milliseconds since 1970; 0 is never, unknown
		Times                   int
		Rule, By, Reason        string
	}
	err := json.Unmarshal([]byte(n.state), &s)
	_, wrong := bans.Noted(bans.Reason(s.Reason), bans.By(s.By))
	longest := bans.MaxDuration.Milliseconds()
	within := func(ms, most int64) bool { return 0 <= ms && ms <= most } // else it could overflow, and end a ban
	if err != nil || wrong != nil || s.Times < 0 ||
		!within(s.Ends, n.now+longest) || !within(s.Since, n.now+longest) || !within(s.Remembered-s.Ends, longest) {
		return bans.Ban{Key: n.tag, Reason: "its state in Redis cannot be read"}, 0, false
	}
	if s.Times > 0 { // else what is remembered is that it was lifted
		remember = time.Duration(s.Remembered-s.Ends) * time.Millisecond
	}
	return bans.Ban{Key: n.tag, Rule: s.Rule, Until: n.at(s.Ends), Times: s.Times, Since: n.at(s.Since), Reason: s.Reason, By: s.By}, remember, true
}

// A put is a ban that a process writes into the list. The ban's Key is the digest.
type put struct {
	ban      bans.Ban
	remember time.Duration
}

// values are the times from now, rounded so that no ban ends too early.
func (p *put) values() map[string]any {
	left := int64(0) // permanent
	if !p.ban.Until.IsZero() {
		left = cmp.Or(int64(math.Ceil(float64(time.Until(p.ban.Until))/float64(time.Millisecond))), -1)
	}
	return map[string]any{
		"ends": left, "age": time.Since(p.ban.Since).Milliseconds(), "remember": p.remember.Milliseconds(),
		"times": p.ban.Times, "rule": p.ban.Rule, "by": p.ban.By, "reason": p.ban.Reason,
	}
}
