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

// state is known as the script has it, in milliseconds from now.
type state struct {
	Ends     int64  `json:"ends"`  // 0: never
	Since    int64  `json:"since"` // 0: not known
	Remember int64  `json:"remember"`
	Times    int    `json:"times"`
	Rule     string `json:"rule"`
	By       string `json:"by"`
	Reason   string `json:"reason"`
}

func (r *remote) request(op string, args ...any) *wire.Request {
	return wire.NewRequest(script, r.names, append([]any{op, r.channel, r.max}, args...)...)
}

// put is a request to have a ban in Redis. Its answer is what holds there.
func (r *remote) put(k known, isNewer bool) *wire.Request {
	b := k.ban
	text, _ := json.Marshal(state{ // which cannot fail
		Ends: fromNow(b.Until), Since: fromNow(b.Since), Remember: k.remember.Milliseconds(),
		Times: b.Times, Rule: b.Rule, By: b.By, Reason: b.Reason,
	})
	newer := "0"
	if isNewer {
		newer = "1"
	}
	return r.request("put", b.Key, newer, string(text))
}

// escalate is a request to ban a key unless it is already. Its answer is what holds there.
func (r *remote) escalate(tag, rule string, e bans.Escalation) *wire.Request {
	factor := strconv.FormatFloat(e.Factor, 'g', -1, 64)
	return r.request("escalate", tag, rule, e.Ban.Milliseconds(), factor, e.Max.Milliseconds())
}

// send has Redis run the script, within [wire.Patience]. A request has its own error.
func (r *remote) send(ctx context.Context, requests ...*wire.Request) error {
	ctx, cancel := context.WithTimeout(ctx, wire.Patience)
	defer cancel()
	_, err := wire.Call(ctx, func(ctx context.Context) (struct{}, error) {
		r.Run(ctx, requests...)
		return struct{}{}, nil
	})
	return r.failed(err)
}

// answer is what the script said to a request that was sent.
func (r *remote) answer(request *wire.Request) ([]string, error) {
	said, err := request.Strings()
	if err != nil && strings.Contains(err.Error(), "WEIRFULL") {
		return nil, bans.ErrFull
	}
	return said, r.failed(err)
}

// failed is why a call came to nothing.
func (r *remote) failed(err error) error { return r.Failed("redisbans", err, 0) }

// held is what the script said that holds of a digest.
func (r *remote) held(tag string, request *wire.Request) (known, error) {
	said, err := r.answer(request)
	if err != nil {
		return known{}, err
	}
	return read(append([]string{tag}, said...))
}

// read is what the script says of a digest: tag and state.
func read(said []string) (k known, err error) {
	if len(said) != 2 {
		return k, misspoken(said)
	}
	if _, ok := keyfunc.ParseDigest(said[0]); !ok {
		return k, misspoken(said)
	}
	k.ban.Key = said[0]
	if k.lifted = said[1] == ""; k.lifted {
		return k, nil
	}
	var s state
	if err := json.Unmarshal([]byte(said[1]), &s); err != nil {
		return k, misspoken(said)
	}
	k.ban = bans.Ban{Key: k.ban.Key, Rule: s.Rule, Until: at(s.Ends), Times: s.Times, Since: at(s.Since), Reason: s.Reason, By: s.By}
	k.remember = time.Duration(s.Remember) * time.Millisecond
	return k, nil
}

func misspoken(said []string) error {
	return fmt.Errorf("redisbans: the script of bans answers %.200q", said)
}

// fromNow is a time in milliseconds from now, rounded up; at is the time. 0 is none.
func fromNow(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	ms := math.Ceil(float64(time.Until(t)) / float64(time.Millisecond))
	return cmp.Or(int64(ms), -1)
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(ms) * time.Millisecond)
}

// A page is some of the list, or of what has changed.
type page struct {
	born  string // which list it is
	seen  string // the last change that is read then
	next  string // a cursor; "0": this was the last page
	gap   string // "anew" or "lost": what was seen is no longer there
	knows []known
}

// page reads from a cursor or, if that is empty, what has changed.
func (r *remote) page(ctx context.Context, seen, born, cursor string) (p page, err error) {
	request := r.request("read", seen, born, cursor)
	if err := r.send(ctx, request); err != nil {
		return p, err
	}
	said, err := r.answer(request)
	if err != nil {
		return p, err
	}
	if len(said) < 4 || len(said)%2 != 0 {
		return p, misspoken(said)
	}
	p = page{born: said[0], seen: said[1], next: said[2], gap: said[3]}
	for said := range slices.Chunk(said[4:], 2) {
		k, err := read(said)
		if err != nil {
			return p, err
		}
		p.knows = append(p.knows, k)
	}
	return p, nil
}
