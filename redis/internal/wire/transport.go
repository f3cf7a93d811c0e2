package wire

import (
	"context"
	"encoding"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
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

// Unawaited is how many deadlines a client that Within has made may take to make a connection, or to
// get an answer that no caller waits for any more.
const Unawaited = 20

// Within returns a transport with that deadline on round trips, and reports whether the client keeps
// deadlines.
//
// If a client for one server ignores them, Within copies it. The copy shares the connections and may
// lack hooks. Two kinds of client cannot keep a deadline: go-redis dials TLS without one, and asks
// sentinels without one.
func (t *Transport) Within(timeout time.Duration) (_ *Transport, keeps bool) {
	client, ok := t.Client.(*redis.Client)
	if !ok {
		return t, false
	}
	o := client.Options()
	if o.TLSConfig != nil || o.Addr == sentinelAddr {
		return t, false
	}
	if o.ContextTimeoutEnabled {
		return t, true
	}
	client = client.WithTimeout(Unawaited * timeout) // contexts have shorter deadlines
	client.Options().ContextTimeoutEnabled = true
	// A take that is sent again may count twice, and a refused connection needs no second try.
	client.Options().MaxRetries = 0
	other := *t
	other.Client = client
	return &other, true
}

// Bounded is Within, and if the client cannot keep deadlines but is for one server, it waits no longer
// than the timeout for each read.
func (t *Transport) Bounded(timeout time.Duration) *Transport {
	t, _ = t.Within(timeout)
	client, ok := t.Client.(*redis.Client)
	if !ok {
		return t
	}
	other := *t
	other.Client = client.WithTimeout(timeout)
	return &other
}

// sentinelAddr is the Addr of a client that redis.NewFailoverClient has made.
const sentinelAddr = "FailoverClient"

// FirstKey is the index of the first key in a Request's Args.
const FirstKey = 3

// A Request is one run of a script, and then its answer.
type Request struct {
	Script     *Script
	Args       []any // two that Send fills in, the number of keys, the keys, the arguments
	WithSource bool  // send the script's source, not its hash
	Alone      bool  // not in a pipeline
	Once       bool  // if the answer is lost, do not send again: it would count twice

	answer command
}

// NewRequest returns a Request with these keys and arguments.
func NewRequest(s *Script, keys []string, args ...any) *Request {
	r := &Request{Script: s, Args: make([]any, FirstKey, FirstKey+len(keys)+len(args))}
	r.Args[FirstKey-1] = len(keys)
	for _, key := range keys {
		r.Args = append(r.Args, key)
	}
	r.Args = append(r.Args, args...)
	return r
}

// Err returns why there is no answer, or nil.
func (r *Request) Err() error { return r.answer.Err() }

// Text returns the answer, a string.
func (r *Request) Text() (string, error) { return r.answer.Text() }

// Strings returns the answer, an array of strings.
func (r *Request) Strings() ([]string, error) { return r.answer.StringSlice() }

// Numbers returns the answer, an array of integers.
func (r *Request) Numbers() ([]int64, error) { return r.answer.Int64Slice() }

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

// Send sends requests, in one round trip to each server.
func (t *Transport) Send(ctx context.Context, requests []*Request) {
	for _, r := range requests {
		args := r.Args
		r.Script.put(args, r.WithSource)
		r.answer = command{isAlone: r.Alone || len(requests) == 1}
		if last := len(args) - 1; r.Once {
			args = append(args[:last:last], &once{args[last], &r.answer.unanswered})
		}
		if t.TestClock != nil {
			args = append(args[:len(args):len(args)], t.TestClock()...)
		}
		r.answer.Cmd = redis.NewCmd(ctx, args...)
	}
	// Each command holds its error.
	if len(requests) == 1 {
		_ = t.Client.Process(ctx, &requests[0].answer) // which is alone: it hides nothing
		return
	}
	pipeline := t.Client.Pipeline()
	for _, r := range requests {
		if r.Alone {
			_ = t.Client.Process(ctx, &r.answer)
		} else {
			_ = pipeline.Process(ctx, &r.answer)
		}
	}
	_, _ = pipeline.Exec(ctx)
	for _, r := range requests {
		if r.answer.tryAgain != nil {
			r.answer.Cmd.SetErr(r.answer.tryAgain)
		}
	}
}

// A command corrects two habits of go-redis with commands in a pipeline.
//
// While a Cluster moves the keys of a slot, it answers TRYAGAIN to a script whose keys are on two
// nodes. If that command was the first in the pipeline, go-redis repeats the whole pipeline, though
// other commands have been run; otherwise it repeats none. So a command hides TRYAGAIN from go-redis,
// and Amend has it sent again alone. Then go-redis repeats that command only.
//
// If an answer is lost, clients for a Cluster and a Ring send the whole pipeline again, whatever their
// options say. [once] prevents that.
type command struct {
	*redis.Cmd
	isAlone    bool
	tryAgain   error
	answered   bool        // Redis has run it
	unanswered atomic.Bool // it was written, and Redis may have run it
}

// SetErr implements [redis.Cmder]. go-redis calls it with each answer, and with the error of a command
// without one.
func (c *command) SetErr(err error) {
	if errors.Is(err, errSentBefore) && (c.answered || c.Err() != nil) {
		return // there is an answer, or an error that says why there is none
	}
	c.answered = err == nil
	if err != nil && IsAnswer(err) {
		c.unanswered.Store(false)
	}
	c.tryAgain = nil
	if err != nil && isTryAgain(err) && !c.isAlone {
		c.tryAgain, err = err, nil
	}
	c.Cmd.SetErr(err)
}

// errSentBefore keeps go-redis from sending a command again.
var errSentBefore = errors.New("no answer from Redis, and what may have been counted is not sent again")

// A once is an argument that go-redis can write only once, unless Redis has answered in between that it
// did not run the command (MOVED, say). The error of the second write makes go-redis drop the
// connection, with everything that it had not written yet.
type once struct {
	argument   any
	unanswered *atomic.Bool
}

// MarshalBinary implements [encoding.BinaryMarshaler].
func (o *once) MarshalBinary() ([]byte, error) {
	if !o.unanswered.CompareAndSwap(false, true) {
		return nil, errSentBefore
	}
	if m, ok := o.argument.(encoding.BinaryMarshaler); ok {
		return m.MarshalBinary()
	}
	return o.argument.([]byte), nil
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
