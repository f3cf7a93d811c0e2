package wire

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// What is in this file rests on how go-redis works inside, beyond its documentation. The tests in
// goredis_test.go hold each of these facts, and run with the oldest version in go.mod and the newest:
//
//   - A copy that WithTimeout makes shares the connections, and reads its own Options for each command.
//   - A client that NewFailoverClient has made has no address in Options.Addr: its dialer asks sentinels.
//   - A command's arguments are marshaled when it is written to a connection, which was made before.
//   - Where ContextTimeoutEnabled is set, a context is asked for its deadline at each step.
//   - When a command is written again, Err still has what the server answered to it before.
//   - A Cluster repeats a whole pipeline if the answer to its first command may be tried again.
//   - If an answer is lost, a Cluster sends the whole pipeline again, whatever their options say.
//   - A connection is closed if an answer begins with READONLY, and no other of the pool.

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
	if o.TLSConfig != nil || address(o) == "" {
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

// address returns the address of a client's server, or "" if its dialer has to ask for that.
func address(o *redis.Options) string {
	if _, _, err := net.SplitHostPort(o.Addr); err != nil && o.Network != "unix" {
		return ""
	}
	return o.Addr
}

// A Request is one run of a script, and then its answer.
type Request struct {
	*redis.Cmd // after Send

	Script     *Script
	Arguments  []any   // two that Send fills in, the number of keys, the keys, the arguments
	Bytes      []byte  // the last argument, unless nil
	Flight     *Flight // to tell when Bytes is written, unless nil
	WithSource bool    // send the script's source, not its hash
	Alone      bool    // not in a pipeline
	Once       bool    // if the answer is lost, do not send Bytes again: they would count twice

	last     lastArgument
	hides    bool // TRYAGAIN
	tryAgain error
}

// command makes r a command of go-redis. A request in a pipeline hides TRYAGAIN, which a Cluster answers
// to a script whose keys are on two nodes while a slot is being moved: otherwise go-redis would repeat
// the whole pipeline, though other commands have been run. Amend has it sent again alone.
func (r *Request) command(ctx context.Context, inPipeline bool, more []any) redis.Cmder {
	r.Script.put(r.Arguments, r.WithSource)
	args := r.Arguments
	if r.Bytes != nil {
		r.last = lastArgument{of: r}
		args = append(args, &r.last)
	}
	if more != nil {
		args = append(args[:len(args):len(args)], more...)
	}
	r.hides, r.tryAgain = inPipeline, nil
	r.Cmd = redis.NewCmd(ctx, args...)
	return r
}

// SetErr implements [redis.Cmder]. go-redis calls it with each answer, and with the error of a command
// without one.
func (r *Request) SetErr(err error) {
	r.tryAgain = nil
	if r.hides && err != nil && isTryAgain(err) {
		r.tryAgain, err = err, nil
	}
	r.Cmd.SetErr(err)
}

// conclude sets the error of a request that was sent. An answer stays one, though go-redis was kept from
// repeating the pipeline.
func (r *Request) conclude() {
	switch {
	case r.tryAgain != nil:
		r.Cmd.SetErr(r.tryAgain)
	case !errors.Is(r.Err(), errWritten):
	case r.Val() != nil:
		r.Cmd.SetErr(nil)
	default:
		r.Cmd.SetErr(&silence{err: errWritten})
	}
}

// errWritten keeps go-redis from writing a command again. go-redis then drops the connection, with
// everything that it had not written yet.
var errWritten = errors.New("what Redis may have counted is not sent again")

// A lastArgument is the Bytes of a request.
type lastArgument struct {
	of        *Request
	isWritten atomic.Bool
}

// MarshalBinary implements [encoding.BinaryMarshaler]. After an answer such as MOVED, Redis has not run the
// command.
func (a *lastArgument) MarshalBinary() ([]byte, error) {
	r := a.of
	if r.Once && a.isWritten.Swap(true) {
		if err := r.Err(); err == nil || !IsAnswer(err) {
			return nil, errWritten
		}
	}
	if r.Flight != nil {
		r.Flight.Write()
	}
	return r.Bytes, nil
}

// A Flight is the time of sending requests, and the context in which go-redis sends them.
type Flight struct {
	Start    time.Time
	Timeout  time.Duration // of each step of making a connection
	Patience time.Duration // for the answer, from when the requests are written: at most the timeout
	Led      bool          // a caller waits until the end

	Ended chan struct{} // closed when nobody waits for the answer any more

	written atomic.Int64 // when the requests were written, since Start; zero: they are not
	heard   atomic.Int64 // when there was an answer; zero: there is none
}

// Write notes that the requests are written at this moment. If go-redis sends them again by itself, the
// answer has no more time for that.
func (f *Flight) Write() { f.written.CompareAndSwap(0, max(1, int64(time.Since(f.Start)))) }

// Again is for requests that are about to be sent again, as the answer was no decision.
func (f *Flight) Again() { f.written.Store(0) }

// Hear notes that there is an answer at this moment.
func (f *Flight) Hear() { f.heard.Store(int64(time.Since(f.Start))) }

// Written returns how long after Start the requests were written, or 0.
func (f *Flight) Written() time.Duration { return time.Duration(f.written.Load()) }

// Took returns how long the round trip took, or 0 if that is not known.
func (f *Flight) Took() time.Duration {
	heard, written := f.heard.Load(), f.written.Load()
	if heard == 0 || written == 0 {
		return 0
	}
	return time.Duration(max(1, heard-written))
}

// Deadline implements [context.Context].
func (f *Flight) Deadline() (time.Time, bool) {
	written := f.Written()
	switch {
	case !f.Led: // no caller waits for a late answer, and yet the connection need not be made anew
		return f.Start.Add(max(Unawaited*f.Timeout, written+f.Timeout)), true
	case written != 0:
		return f.Start.Add(written + f.Patience), true
	}
	return time.Now().Add(f.Timeout), true
}

// Done implements [context.Context].
func (f *Flight) Done() <-chan struct{} { return f.Ended }

// Value implements [context.Context].
func (f *Flight) Value(any) any { return nil }

// Err implements [context.Context].
func (f *Flight) Err() error {
	select {
	case <-f.Ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TryWrite writes keys that live as long: one, or in a Cluster all. If the server answers that
// it is a replica, TryWrite writes on each idle connection, so that go-redis closes those that lead to a
// replica: the address may lead to another server since they were made.
func (t *Transport) TryWrite(ctx context.Context, life time.Duration, names ...string) error {
	var err error
	if len(names) == 1 || !t.IsSplit() {
		err = t.Client.Set(ctx, names[0], "", life).Err() // go-redis may have other connections for pipelines
	} else {
		pipeline := t.Client.Pipeline()
		for _, name := range names {
			pipeline.Set(ctx, name, "", life)
		}
		_, err = pipeline.Exec(ctx)
	}
	if err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		return err
	}
	client, ok := t.Client.(*redis.Client)
	if !ok {
		return err
	}
	var written, closed sync.WaitGroup
	n := int(client.PoolStats().IdleConns)
	written.Add(n)
	for range n {
		closed.Go(func() {
			conn := client.Conn()
			_ = conn.Set(ctx, names[0], "", life).Err()
			written.Done()
			written.Wait() // so that no two have the same connection
			_ = conn.Close()
		})
	}
	closed.Wait()
	return err
}
