package pace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/pace/serverlimit"
)

// A Transport is an http.RoundTripper that paces requests. It may be used by many goroutines at
// once, and needs no Close.
type Transport struct {
	base    http.RoundTripper
	rules   []*rule
	options Options
	digests keyfunc.Digester
	start   time.Time

	mu       sync.Mutex
	unpaced  map[string]bool // hosts that were logged
	isShared bool            // whether the last cooldown could be shared; see warnAlone
}

// NewTransport returns a Transport that sends requests through base, or an error with everything
// that is wrong with o. A nil base is http.DefaultTransport.
func NewTransport(base http.RoundTripper, o Options) (*Transport, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	t := &Transport{base: base, options: o, digests: keyfunc.NewDigester(o.Secret), start: time.Now(), unpaced: map[string]bool{}, isShared: true}
	if base == nil {
		t.base = http.DefaultTransport
	}
	var errs []error
	names := map[string]bool{}
	for i, r := range o.Rules {
		made, err := newRule(r, t)
		if err != nil {
			errs = append(errs, ofRule(i, &r, err))
			continue
		}
		if names[made.name] {
			errs = append(errs, fmt.Errorf("pace: two rules are named %q: give each a Name of its own", made.name))
		}
		names[made.name] = true
		for _, earlier := range t.rules {
			if earlier.covers(made) {
				errs = append(errs, fmt.Errorf("pace: rule %q never applies: the earlier rule %q matches all of its requests", made.name, earlier.name))
			}
		}
		t.rules = append(t.rules, made)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// Must is for a transport written in code: it panics where [NewTransport] returns an error.
func Must(t *Transport, err error) *Transport {
	if err != nil {
		panic(err)
	}
	return t
}

// now is the process's monotonic clock, in nanoseconds since t.start, plus 1.
func (t *Transport) now() int64 { return int64(time.Since(t.start)) + 1 }

// RoundTrip implements [http.RoundTripper]. It waits for the request's turn, sends the request, retries as
// Options.Retry says, and returns the last response unchanged: a refusal is a response, not an error. Read the
// response's body to its end or close it, as net/http requires too. With AtOnce an open body holds
// its slot until the request's context ends.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	r := t.ruleFor(request)
	if r == nil {
		return t.unmatched(request)
	}
	a, err := t.accountOf(r, request)
	if err != nil {
		closeBody(request)
		t.observe(Observation{Request: request, Outcome: OutcomeUndecided, Rule: r.name, Attempt: 1, Err: err})
		return nil, err
	}
	r.budget.earn()
	c := call{t: t, a: a, rule: r, ctx: request.Context(), left: t.options.MaxWait}
	return c.roundTrip(request)
}

// CloseIdleConnections closes the idle connections of the base RoundTripper.
// http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// ruleFor is the first rule that matches a request, or nil.
func (t *Transport) ruleFor(request *http.Request) *rule {
	if request.URL == nil {
		return nil // the base refuses it
	}
	name := route.Host(request.URL.Host)
	for _, r := range t.rules {
		if r.host.isFor(name, request.URL) && (r.match == nil || r.match(request)) {
			return r
		}
	}
	return nil
}

// mostUnpaced is how many unpaced hosts are logged at most.
const mostUnpaced = 16

func (t *Transport) unmatched(request *http.Request) (*http.Response, error) {
	o := Observation{Request: request, Outcome: OutcomeUnmatched, Attempt: 1}
	host := ""
	if request.URL != nil {
		host = request.URL.Host
	}
	if t.options.RefuseUnmatched {
		closeBody(request)
		o.Err = fmt.Errorf("%w: its host is %.253q", ErrNoRule, host)
	} else {
		t.warnUnpaced(request.Context(), host)
		o.Response, o.Err = t.base.RoundTrip(request)
	}
	t.observe(o)
	return o.Response, o.Err
}

func (t *Transport) warnUnpaced(ctx context.Context, host string) {
	t.mu.Lock()
	warn := !t.unpaced[host] && len(t.unpaced) < mostUnpaced
	if warn {
		t.unpaced[host] = true
	}
	t.mu.Unlock()
	if warn {
		t.options.Logger.WarnContext(ctx, "weir: requests to this host are not paced, as no rule matches them", "code", "weir-unpaced", "host", host)
	}
}

// A call is a request with all of its attempts.
type call struct {
	t    *Transport
	a    *account
	rule *rule
	ctx  context.Context

	left   time.Duration // how long it may still wait
	waited time.Duration // before this attempt
}

func (c *call) roundTrip(request *http.Request) (*http.Response, error) {
	var got answer
	attempt := request
	for n := 1; ; n++ {
		release, err := c.admit()
		if err != nil {
			closeBody(attempt)
			if c.observeUnsent(request, n, err) == OutcomeTooLong && n > 1 {
				return got.response, got.err
			}
			got.drop()
			return nil, err
		}
		next, pause := c.attempt(request, attempt, n, release, &got)
		if next == nil {
			return got.response, got.err
		}
		attempt, c.waited = next, 0
		if err := c.sleep(pause); err != nil {
			closeBody(attempt)
			got.drop()
			c.observeUnsent(request, n+1, err)
			return nil, err
		}
	}
}

// attempt sends attempt n of a request, and returns the next one, if any, and how long to wait before
// it. The slot is released now, by a panic too, or when the body of the last response ends.
func (c *call) attempt(request, attempt *http.Request, n int, release func(), got *answer) (next *http.Request, pause time.Duration) {
	isHeld := false
	defer func() {
		if !isHeld {
			release()
		}
	}()
	c.send(attempt, got)
	cooldown := c.hear(got)
	next, pause = c.next(request, got, n)
	if c.t.options.Observer != nil {
		c.t.observe(Observation{
			Request: request, Outcome: got.outcome(), Rule: c.rule.name, Key: c.a.key, Attempt: n, Waited: c.waited,
			Response: got.response, Said: got.said, Cooldown: cooldown, Retried: next != nil, Err: got.err,
		})
	}
	if next == nil && c.rule.slots != nil && got.response != nil && got.response.Body != nil && got.response.Body != http.NoBody {
		isHeld = true
		got.response.Body = until(c.ctx, got.response.Body, release)
	}
	return next, pause
}

// send sends an attempt, and reads what the response says.
func (c *call) send(attempt *http.Request, got *answer) {
	if c.rule.slots == nil {
		c.rule.inFlight.Add(1)
		defer c.rule.inFlight.Add(-1)
	}
	got.sent = c.a.cooldown.sent()
	got.response, got.err = c.t.base.RoundTrip(attempt)
	if got.said = (serverlimit.Reading{}); got.err == nil {
		got.said = read(got.response)
	}
}

// observeUnsent reports an attempt that was not sent to the Observer.
func (c *call) observeUnsent(request *http.Request, attempt int, err error) Outcome {
	o := Observation{Request: request, Outcome: OutcomeUndecided, Rule: c.rule.name, Key: c.a.key, Attempt: attempt, Waited: c.waited, Err: err}
	var tooLong *WaitError
	switch {
	case errors.As(err, &tooLong):
		o.Outcome, o.Wait = OutcomeTooLong, tooLong.Wait
	case c.ctx.Err() != nil:
		o.Outcome = OutcomeCanceled
	}
	c.t.observe(o)
	return o.Outcome
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
