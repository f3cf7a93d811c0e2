package wire

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Transport sends scripts to Redis, through any client of go-redis.
type Transport struct {
	Client redis.UniversalClient

	// TestClock, in tests only, is the server's time as arguments of scripts.
	TestClock func() []any

	split   *atomic.Bool // shared with copies
	checked *atomic.Bool // CheckRoute was called
}

// NewTransport returns a Transport for a client that CheckClient accepts. With oneTag, a script can use
// keys of one tag only, as in a Cluster.
func NewTransport(client redis.UniversalClient, oneTag bool) *Transport {
	t := &Transport{Client: client, split: new(atomic.Bool), checked: new(atomic.Bool)}
	_, isCluster := client.(*redis.ClusterClient)
	t.split.Store(isCluster || oneTag)
	return t
}

// IsSplit reports whether a script can use keys of one tag only.
func (t *Transport) IsSplit() bool { return t.split.Load() }

// CheckRoute finds out in the background whether the client is for a proxy that sends each script to one
// of several servers, by its first key. If so, CheckRoute logs that, and from then on IsSplit is true. It
// does so once, after r was the first script with keys of several tags, or again if there was no answer. The names that it writes begin
// with prefix. A nil log is slog.Default.
func (t *Transport) CheckRoute(r *Request, prefix string, log *slog.Logger) {
	if t.checked.Load() || t.IsSplit() || !r.hasTags() || t.checked.Swap(true) {
		return
	}
	go func() {
		switch n, err := t.reached(prefix); {
		case err != nil && !IsAnswer(err):
			t.checked.Store(false) // the next script tries again
		case err == nil && n < routeKeys:
			t.split.Store(true)
			cmp.Or(log, slog.Default()).Error("weir: a proxy sends scripts to one of several servers by their first key, so limits were too high; set OneTag in the options of redisstore",
				"code", "weir-proxy-splits")
		}
	}()
}

// hasTags reports whether r's keys have several tags.
func (r *Request) hasTags() bool {
	count, _ := r.Arguments[FirstKey-1].(int)
	keys := r.Arguments[FirstKey : FirstKey+count]
	tagOf := func(key any) string {
		tag, _, _ := strings.Cut(key.(string), "}")
		return tag
	}
	return slices.ContainsFunc(keys, func(key any) bool { return tagOf(key) != tagOf(keys[0]) })
}

const routeKeys = 16

var routeScript = NewScript("for i = 1, #KEYS do redis.call('SET', KEYS[i], '', 'PX', '2000') end")

// reached writes keys of different tags in one script, and returns how many of them commands of their own
// find, or an error if that is none.
func (t *Transport) reached(prefix string) (n int64, _ error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return Call(ctx, func(ctx context.Context) (int64, error) {
		var names []string
		for range routeKeys {
			names = append(names, prefix+":{"+rand.Text()+"}::route")
		}
		r := NewRequest(routeScript, names)
		r.WithSource = true
		if t.Send(ctx, []*Request{r}); r.Err() != nil && !errors.Is(r.Err(), redis.Nil) {
			return 0, r.Err()
		}
		pipeline := t.Client.Pipeline()
		var found []*redis.IntCmd
		for _, name := range names {
			found = append(found, pipeline.Exists(ctx, name))
		}
		if _, err := pipeline.Exec(ctx); err != nil {
			return 0, err
		}
		for _, f := range found {
			n += f.Val()
		}
		if n == 0 { // the server lost them all
			return 0, ErrAnswer
		}
		return n, nil
	})
}

// FirstKey is the index of the first key in a Request's Arguments.
const FirstKey = 3

// NewRequest returns a Request with these keys and arguments.
func NewRequest(s *Script, keys []string, args ...any) *Request {
	r := &Request{Script: s, Arguments: make([]any, FirstKey, FirstKey+len(keys)+len(args)+1)} // and Bytes
	r.Arguments[FirstKey-1] = len(keys)
	for _, key := range keys {
		r.Arguments = append(r.Arguments, key)
	}
	r.Arguments = append(r.Arguments, args...)
	return r
}

// Amend changes r so that it can be sent again, if err says that Redis lacked the script's source or
// some of the keys. It reports whether it did.
func (r *Request) Amend(err error) bool {
	switch {
	case err == nil:
		return false
	case isUnknown(err) && !r.WithSource:
		r.WithSource = true
	case isTryAgain(err) && !r.Alone:
		r.Alone = true
	default:
		return false
	}
	return true
}

// Run sends requests, and sends those again that Amend changes.
func (t *Transport) Run(ctx context.Context, requests ...*Request) {
	for rest := slices.Clone(requests); len(rest) > 0; {
		t.Send(ctx, rest)
		rest = slices.DeleteFunc(rest, func(r *Request) bool { return !r.Amend(r.Err()) })
	}
}

// Send sends requests, in one round trip to each server. Each holds its answer or error.
func (t *Transport) Send(ctx context.Context, requests []*Request) {
	var clock []any
	if t.TestClock != nil {
		clock = t.TestClock()
	}
	if len(requests) == 1 {
		r := requests[0]
		_ = t.Client.Process(ctx, r.command(ctx, false, clock))
		r.conclude()
		return
	}
	pipeline := t.Client.Pipeline()
	for _, r := range requests {
		if command := r.command(ctx, !r.Alone, clock); r.Alone {
			_ = t.Client.Process(ctx, command)
		} else {
			_ = pipeline.Process(ctx, command)
		}
	}
	_, _ = pipeline.Exec(ctx)
	for _, r := range requests {
		r.conclude()
	}
}

// isUnknown reports whether the server lacks the script's source.
func isUnknown(err error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// isTryAgain reports whether the keys are on two nodes, as their slot is being moved.
func isTryAgain(err error) bool { return strings.HasPrefix(err.Error(), "TRYAGAIN") }

// IsAnswer reports whether err came from Redis itself, or is nil.
func IsAnswer(err error) bool {
	said := redis.Error(nil)
	return err == nil || errors.As(err, &said)
}

// Patience is how long a call waits for Redis if its context has no deadline.
const Patience = time.Second

// Call calls do, and returns when do returns or ctx ends. Then do may still run: go-redis keeps the
// deadline of a context only if its options say so.
func Call[T any](ctx context.Context, do func(context.Context) (T, error)) (answer T, err error) {
	if _, has := ctx.Deadline(); !has {
		limited, cancel := context.WithTimeoutCause(ctx, Patience, &silence{in: Patience})
		defer cancel()
		ctx = limited
	}
	if ctx.Err() != nil {
		return answer, context.Cause(ctx)
	}
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	go func() {
		answer, err := do(ctx)
		done <- result{answer, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
}
