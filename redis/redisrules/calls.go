package redisrules

import (
	"context"
	"fmt"
)

var errNoAnswer = fmt.Errorf("there is no answer within %v: %w", patience, context.DeadlineExceeded)

// calls are made one at a time and may outlast their callers: go-redis heeds the deadline
// of a context only if its options say so.
type calls chan struct{}

func newCalls() calls { return make(calls, 1) }

// within calls do, and waits for it as long as the context allows, or for patience where it
// has no deadline.
func (c calls) within(ctx context.Context, do func(context.Context) ([]byte, error)) ([]byte, error) {
	if _, has := ctx.Deadline(); !has {
		limited, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
		defer cancel()
		ctx = limited
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case c <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type answer struct {
		text []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		defer func() { <-c }()
		text, err := do(ctx)
		answered <- answer{text, err}
	}()
	select {
	case a := <-answered:
		return a.text, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
