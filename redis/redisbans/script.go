package redisbans

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
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
const format = "3"

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

// known is what is known of a key. Its ban's Key is the digest.
type known struct {
	ban      bans.Ban
	remember time.Duration
	lifted   bool // the ban, and what led to it, is forgotten
}

// A state is what the script has of a key. Its times are in milliseconds: Redis's own, or from now
// on the way to Redis.
type state struct {
	Ends     int64  `json:"ends"`  // 0: never
	Since    int64  `json:"since"` // 0: not known
	Remember int64  `json:"remember"`
	Times    int    `json:"times"`
	Rule     string `json:"rule"`
	By       string `json:"by"`
	Reason   string `json:"reason"`
}

// A change is what a process wants of the list: bans.lua says what the ops do.
type change struct {
	Op  string `json:"op"` // put, escalate, unban, or read: no change
	Tag string `json:"tag"`

	known known // of put
	state       // made of it when the change is sent; the rule of escalate
	Newer bool  `json:"newer"` // than any ban that Redis has: by hand

	First  int64   `json:"first,omitempty"` // of escalate, and what follows
	Factor float64 `json:"factor,omitempty"`
	Max    int64   `json:"max,omitempty"`

	Other string `json:"other,omitempty"` // of unban: the key itself, where it can be a digest

	done chan outcome // nil: no caller waits
}

// put is a change that has a ban in Redis.
func put(k known, isNewer bool) *change {
	return &change{Op: "put", Tag: k.ban.Key, known: k, Newer: isNewer}
}

// A position is how far a process has read.
type position struct {
	born   string // which list it was
	seen   string // the last change
	cursor string // of a scan of the whole list, "0" at its beginning; "": changes are read
}

// An answer is what the script says to changes, and a page of the list.
type answer struct {
	position        // after the page; its cursor is "0" after the last page
	gap      string // "anew" or "lost": the position cannot be read from, so there is no page
	answers  []string
	page     []known

	now      int64     // Redis's time, in milliseconds
	received time.Time // when it was that time there
}

// exchange makes changes in Redis, and reads a page from a position, within [wire.Patience].
func (r *remote) exchange(ctx context.Context, from position, changes []*change) (*answer, error) {
	args := []any{r.channel, r.max, from.born, from.seen, from.cursor}
	for _, c := range changes {
		if b := c.known.ban; c.Op == "put" {
			c.state = state{
				Ends: fromNow(b.Until), Since: fromNow(b.Since), Remember: c.known.remember.Milliseconds(),
				Times: b.Times, Rule: b.Rule, By: b.By, Reason: b.Reason,
			}
		}
		text, err := json.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("redisbans: %w", err)
		}
		args = append(args, string(text))
	}
	request := wire.NewRequest(script, r.names, args...)
	ctx, cancel := context.WithTimeout(ctx, wire.Patience)
	defer cancel()
	_, err := wire.Call(ctx, func(ctx context.Context) (struct{}, error) {
		r.Run(ctx, request)
		return struct{}{}, nil
	})
	var said []string
	if err == nil {
		said, err = request.Strings()
	}
	if err != nil {
		return nil, r.failed(err)
	}
	const header = 5
	if len(said) < header+len(changes) || (len(said)-header-len(changes))%2 != 0 {
		return nil, misspoken(said)
	}
	a := &answer{position: position{said[1], said[2], said[3]}, gap: said[4], received: time.Now()}
	if a.now, err = strconv.ParseInt(said[0], 10, 64); err != nil {
		return nil, misspoken(said)
	}
	a.answers, said = said[header:header+len(changes)], said[header+len(changes):]
	for of := range slices.Chunk(said, 2) {
		k, err := a.read(of[0], of[1])
		if err != nil {
			return nil, err
		}
		a.page = append(a.page, k)
	}
	return a, nil
}

// failed is why a call came to nothing.
func (r *remote) failed(err error) error { return r.Failed("redisbans", err, 0) }

// read is what the script knows of a digest.
func (a *answer) read(tag, text string) (k known, err error) {
	if _, ok := keyfunc.ParseDigest(tag); !ok {
		return k, misspoken([]string{tag, text})
	}
	k.ban.Key = tag
	if k.lifted = text == ""; k.lifted {
		return k, nil
	}
	var s state
	if json.Unmarshal([]byte(text), &s) != nil {
		k.lifted = true // the script takes a ban that it cannot read for none, too
		return k, nil
	}
	k.ban = bans.Ban{Key: tag, Rule: s.Rule, Until: a.at(s.Ends), Times: s.Times, Since: a.at(s.Since), Reason: s.Reason, By: s.By}
	k.remember = time.Duration(s.Remember) * time.Millisecond
	return k, nil
}

// at is a time of Redis's; 0 is none.
func (a *answer) at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return a.received.Add(time.Duration(ms-a.now) * time.Millisecond)
}

func misspoken(said []string) error {
	return fmt.Errorf("redisbans: the script of bans answers %.200q", said)
}

// fromNow is a time in milliseconds from now, rounded up; 0 is none.
func fromNow(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	ms := math.Ceil(float64(time.Until(t)) / float64(time.Millisecond))
	return cmp.Or(int64(ms), -1)
}
