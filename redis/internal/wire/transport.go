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

// A Transport brings scripts to Redis, through any client of go-redis.
type Transport struct {
	Client redis.UniversalClient

	// Split is set where a script reaches only keys of one tag: in a Cluster or a Ring.
	Split bool

	// TestClock is the server's time in tests that move it, as arguments of scripts.
	TestClock func() []any
}

// NewTransport returns a Transport for a client. What holds for a Ring holds for a client
// around another one too.
func NewTransport(client redis.UniversalClient) *Transport {
	_, isSingle := client.(*redis.Client)
	return &Transport{Client: client, Split: !isSingle}
}

// Settling is how many deadlines a client made by Within may take for a connection, or for an
// answer that no caller waits for any more.
const Settling = 20

// Within is the transport with that deadline on round trips, and whether its client keeps it.
//
// A client for one server can be made to, by a copy that has its connections but may lack
// its hooks, so it is used only where it has to be. Two do not keep deadlines whatever
// they are told: go-redis dials TLS without one, and asks sentinels without one.
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
	client = client.WithTimeout(Settling * timeout) // contexts have shorter ones
	client.Options().ContextTimeoutEnabled = true
	// A take that is sent again may count twice, and a refused connection is known at once.
	client.Options().MaxRetries = 0
	other := *t
	other.Client = client
	return &other, true
}

// Bounded is Within where that can be had. Elsewhere a client for one server at least waits no
// longer than that for bytes to arrive.
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

// sentinelAddr is the address of a client of redis.NewFailoverClient's.
const sentinelAddr = "FailoverClient"

// FirstKey is where in a Request's Args the keys begin.
const FirstKey = 3

// A Request is a run of a script, and what came of it.
type Request struct {
	Script     *Script
	Args       []any // two that are filled in, the number of keys, keys, arguments
	WithSource bool  // Redis has to be told the script
	Alone      bool  // not in a pipeline
	Once       bool  // not sent again after an answer was lost, as it would count twice

	answer command
}

// NewRequest is a Request without more to it.
func NewRequest(s *Script, keys []string, args ...any) *Request {
	r := &Request{Script: s, Args: make([]any, FirstKey, FirstKey+len(keys)+len(args))}
	r.Args[FirstKey-1] = len(keys)
	for _, key := range keys {
		r.Args = append(r.Args, key)
	}
	r.Args = append(r.Args, args...)
	return r
}

// Err is why the script did not return anything, or nil.
func (r *Request) Err() error {
	if err := r.answer.tryAgain; err != nil {
		return err
	}
	return r.answer.Err()
}

// Text is what the script returned, or an error.
func (r *Request) Text() (string, error) {
	if err := r.Err(); err != nil {
		return "", err
	}
	return r.answer.Text()
}

// Strings is what the script returned, or an error.
func (r *Request) Strings() ([]string, error) {
	if err := r.Err(); err != nil {
		return nil, err
	}
	return r.answer.StringSlice()
}

// Numbers is what the script returned, or an error.
func (r *Request) Numbers() ([]int64, error) {
	if err := r.Err(); err != nil {
		return nil, err
	}
	return r.answer.Int64Slice()
}

// Amend changes r so that it succeeds where Redis did not run it for want of its source, or of
// some of its keys, and reports whether that was the error.
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

// Run sends requests, and again those that can be amended.
func (t *Transport) Run(ctx context.Context, requests ...*Request) {
	for rest := slices.Clone(requests); len(rest) > 0; {
		t.Send(ctx, rest)
		rest = slices.DeleteFunc(rest, func(r *Request) bool { return !r.Amend(r.Err()) })
	}
}

// Send brings requests to Redis, in one round trip for each server.
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
	// A command has its error, here and below.
	if len(requests) == 1 {
		_ = t.Client.Process(ctx, &requests[0].answer)
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
}

// A command is one of several that go out together, or one that must not be sent twice.
//
// A Cluster asks for a script to be tried again while of its keys' slot some are on one node and
// some on another. go-redis then repeats all that went to the node, if it was the first, though
// others have been run; or none. So it does not get to know, and the script is tried again alone:
// then go-redis knows, and repeats that one.
//
// If an answer is lost, clients for a Cluster and a Ring send a command again, and with it all
// that went to the node, whatever their options say. See [once].
type command struct {
	*redis.Cmd
	isAlone    bool
	tryAgain   error
	answered   bool        // Redis has run it
	unanswered atomic.Bool // it is written, and Redis has not said that it did not run it
}

// SetErr is called with every answer, and with what became of what was not answered.
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

// errSentBefore is for a command that go-redis was about to send again.
var errSentBefore = errors.New("no answer from Redis, and what may have been counted is not sent again")

// A once is an argument that go-redis cannot write twice, unless Redis has said in between that it
// did not run the command, but moved it to another node, say. go-redis drops the connection, and
// with it what it had not written yet.
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

// isUnknown reports that the server has not seen the script, or not since it was restarted.
func isUnknown(err error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// isTryAgain reports that the keys' slot is being moved, and they are not all on one node.
func isTryAgain(err error) bool { return strings.HasPrefix(err.Error(), "TRYAGAIN") }

// IsAnswer tells an answer, if only an error, from none.
func IsAnswer(err error) bool {
	said := redis.Error(nil)
	return err == nil || errors.As(err, &said)
}

// Patience is how long a call waits for Redis where its context has no deadline.
const Patience = time.Second

// Call calls do and returns when that does or ctx ends: go-redis heeds the deadline of a
// context only if its options say so, and do may outlast its caller.
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
