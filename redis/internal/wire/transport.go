package wire

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Transport sends scripts to Redis, through any client of go-redis.
type Transport struct {
	Client redis.UniversalClient

	// Split says that a script can use keys of one tag only, as in a Cluster or a Ring.
	Split bool

	// TestClock, in tests only, is the server's time as arguments of scripts.
	TestClock func() []any
}

// NewTransport returns a Transport for a client. It treats a type that it does not know as a Ring.
func NewTransport(client redis.UniversalClient) *Transport {
	_, isSingle := client.(*redis.Client)
	return &Transport{Client: client, Split: !isSingle}
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
