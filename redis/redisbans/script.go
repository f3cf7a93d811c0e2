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

// format is the version of what is in Redis. It is part of all names, so that two versions of Weir
// on one Redis do not read each other's lists. Whoever changes what is written changes the format.
const format = "4"

// under is how the names of a list begin. The braces put them in one slot of a Cluster.
func under(prefix, format string) string { return prefix + ":" + format + ":{bans}:" }

// A remote is the list in Redis.
type remote struct {
	*wire.Transport
	names    []string
	channel  string
	max      int
	patience time.Duration // with Redis, for one exchange
}

// newRemote returns the list whose names begin with prefix.
func newRemote(client redis.UniversalClient, prefix string, max int, patience time.Duration) *remote {
	return &remote{
		Transport: wire.NewTransport(client),
		names:     []string{prefix + "list", prefix + "changes", prefix + "ends"},
		channel:   prefix + "changed",
		max:       max,
		patience:  patience,
	}
}

// A known is what the list has of a key. The ban's Key is the digest.
type known struct {
	ban      bans.Ban
	remember time.Duration
	lifted   bool // there is nothing
}

// A state is what Redis has of a key, in JSON. Times are in milliseconds: since 1970 in Redis, and
// from now in a change.
type state struct {
	Ends     int64  `json:"ends"`  // 0: never
	Since    int64  `json:"since"` // 0: not known
	Remember int64  `json:"remember"`
	Times    int    `json:"times"`
	Rule     string `json:"rule"`
	By       string `json:"by"`
	Reason   string `json:"reason"`
}

// A change is what a process asks of the list. bans.lua says what each Op does.
type change struct {
	Op  string `json:"op"` // put, escalate or unban; read is not sent
	Tag string `json:"tag"`

	known known // of put
	state       // of put, made of known when the change is sent; of escalate, the rule
	Newer bool  `json:"newer"` // of put: the ban replaces any that Redis has

	First  int64   `json:"first,omitempty"` // of escalate, and what follows
	Factor float64 `json:"factor,omitempty"`
	Max    int64   `json:"max,omitempty"`

	Other string `json:"other,omitempty"` // of unban: the key itself, where it can be a digest

	done chan outcome // nil: no caller waits
}

// put returns a change that writes a ban.
func put(k known, isNewer bool) *change {
	return &change{Op: "put", Tag: k.ban.Key, known: k, Newer: isNewer}
}

// A position is up to where a process has read the list.
type position struct {
	seen   string // the id of the last change
	cursor string // of a scan of the whole list, first "0"; "": changes are read
}

// An answer is the script's: one for each change, and a page of the list.
type answer struct {
	position      // after the page; the cursor is "0" after the last page
	gap      bool // there is no page: Redis does not have the last change that the process has read
	answers  []string
	page     []known
	strange  int // fields of the page that are no digests, which are left out

	now      int64     // the server's time, in milliseconds since 1970
	received time.Time // the same moment by this process's clock
}

// exchange makes changes in Redis and reads a page from a position, within the patience.
func (r *remote) exchange(ctx context.Context, from position, changes []*change) (*answer, error) {
	args := []any{r.channel, r.max, from.seen, from.cursor}
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
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	_, err := wire.Call(ctx, func(ctx context.Context) (struct{}, error) {
		r.Run(ctx, request)
		return struct{}{}, nil
	})
	var said []string
	if err == nil {
		said, err = request.StringSlice()
	}
	if err != nil {
		return nil, r.failed(err)
	}
	const header = 4
	if len(said) < header+len(changes) || (len(said)-header-len(changes))%2 != 0 {
		return nil, misspoken(said)
	}
	a := &answer{position: position{said[1], said[2]}, gap: said[3] == "1", received: time.Now()}
	if a.now, err = strconv.ParseInt(said[0], 10, 64); err != nil {
		return nil, misspoken(said)
	}
	a.answers, said = said[header:header+len(changes)], said[header+len(changes):]
	for of := range slices.Chunk(said, 2) {
		if _, ok := keyfunc.ParseDigest(of[0]); ok {
			a.page = append(a.page, a.read(of[0], of[1]))
		} else {
			a.strange++
		}
	}
	return a, nil
}

// failed is err as this package returns it.
func (r *remote) failed(err error) error { return r.Failed("redisbans", err, 0) }

// read reads what Redis has of a digest.
func (a *answer) read(tag, text string) known {
	if text == "" {
		return known{ban: bans.Ban{Key: tag}, lifted: true}
	}
	var s state
	longest := bans.MaxDuration.Milliseconds()
	within := func(n, most int64) bool { return 0 <= n && n <= most } // else it could overflow, and end a ban
	if json.Unmarshal([]byte(text), &s) != nil ||
		!within(s.Ends, a.now+longest) || !within(s.Since, a.now+longest) || !within(s.Remember, longest) {
		return unreadable(tag)
	}
	return known{
		ban:      bans.Ban{Key: tag, Rule: s.Rule, Until: a.at(s.Ends), Times: s.Times, Since: a.at(s.Since), Reason: s.Reason, By: s.By},
		remember: time.Duration(s.Remember) * time.Millisecond,
	}
}

// unreadable is what holds for a digest if its state in Redis makes no sense: a permanent ban, which an
// operator sees and can lift.
func unreadable(tag string) known {
	return known{ban: bans.Ban{Key: tag, Reason: "its state in Redis cannot be read"}}
}

// at is a time of the server's by this process's clock; 0 is none.
func (a *answer) at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return a.received.Add(time.Duration(ms-a.now) * time.Millisecond)
}

func misspoken(said []string) error {
	return fmt.Errorf("redisbans: the answer is not one of bans.lua: %.200q", said)
}

// fromNow is how many milliseconds there are until t, rounded up; 0 is none.
func fromNow(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	ms := math.Ceil(float64(time.Until(t)) / float64(time.Millisecond))
	return cmp.Or(int64(ms), -1)
}
