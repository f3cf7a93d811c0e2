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

	sender  redis.UniversalClient // Client, or a copy with other timeouts
	split   *atomic.Bool          // shared with copies
	checked *atomic.Bool          // CheckRoute was called
}

// NewTransport returns a Transport for a client that CheckClient accepts. With oneTag, a script can use
// keys of one tag only, as in a Cluster.
func NewTransport(client redis.UniversalClient, oneTag bool) *Transport {
	t := &Transport{Client: client, sender: client, split: new(atomic.Bool), checked: new(atomic.Bool)}
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
func (t *Transport) CheckRoute(r *Run, prefix string, log *slog.Logger) {
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
func (r *Run) hasTags() bool {
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
		r := NewRun(routeScript, names)
		r.WithSource = true
		if t.Send(ctx, r); r.Err() != nil && !errors.Is(r.Err(), redis.Nil) {
			return 0, r.Err()
		}
		pipeline := t.sender.Pipeline()
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

// FirstKey is the index of the first key in a Run's Arguments.
const FirstKey = 3

// NewRun returns a Run with these keys and arguments.
func NewRun(s *Script, keys []string, args ...any) *Run {
	r := &Run{Script: s, Arguments: make([]any, FirstKey, FirstKey+len(keys)+len(args))}
	r.Arguments[FirstKey-1] = len(keys)
	for _, key := range keys {
		r.Arguments = append(r.Arguments, key)
	}
	r.Arguments = append(r.Arguments, args...)
	return r
}

// Send sends runs, in one round trip to each server. It sends those again that Redis did not run: with their
// source if Redis lacked it, and after a pause while Redis cannot run them, until ctx ends or Patience does. Each
// holds its reply or error.
func (t *Transport) Send(ctx context.Context, runs ...*Run) {
	t.sendOnce(ctx, runs)
	for pause := time.Millisecond; ; {
		var again []*Run
		waits := false
		for _, r := range runs {
			switch err := r.Err(); {
			case err == nil:
			case strings.HasPrefix(err.Error(), "NOSCRIPT") && !r.WithSource:
				r.WithSource = true
				again = append(again, r)
			case isNotRun(err) && pause < Patience/2:
				waits = true
				again = append(again, r)
			}
		}
		if len(again) == 0 {
			return
		}
		if waits {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
				pause *= 2
			}
		}
		runs = again
		t.sendOnce(ctx, runs)
	}
}

func (t *Transport) sendOnce(ctx context.Context, runs []*Run) {
	var clock []any
	if t.TestClock != nil {
		clock = t.TestClock()
	}
	for _, r := range runs {
		r.Script.put(r.Arguments, r.WithSource)
		r.Cmd = redis.NewCmd(ctx, append(r.Arguments[:len(r.Arguments):len(r.Arguments)], clock...)...)
	}
	if len(runs) == 1 {
		_ = t.sender.Process(ctx, runs[0])
		return
	}
	pipeline := t.sender.Pipeline()
	for _, r := range runs {
		_ = pipeline.Process(ctx, r)
	}
	_, _ = pipeline.Exec(ctx)
}

// Connect waits until a server of the client answers.
func (t *Transport) Connect(ctx context.Context) error { return t.sender.Time(ctx).Err() }

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
