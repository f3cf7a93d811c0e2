package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/middleware/bans"
)

// An Overload bounds how many requests are in flight, by what the service can do, and
// refuses those beyond it. Package shed has one.
type Overload interface {
	// Admit returns the place of a request in flight, for which it may have waited. Nil: the
	// request is to be refused, and the client to stay away for so long, or it is gone.
	Admit(r *http.Request) (p Place, retryAfter time.Duration)
}

// A Place is that of a request in flight, from when it is admitted until its handler returns.
// Streams and Waits are called while the request is locked: they must not block, nor ask anything of
// the request or its RateLimit.
type Place interface {
	// Streams says that the answer is being sent while the handler goes on: it was flushed or,
	// if detached, its connection was taken over.
	Streams(detached bool)

	// Waits says that the handler begins to wait for its client, or has ceased to: for more of the
	// request's body, or to take more of the answer. A handler may do so in several goroutines.
	Waits(begins bool)

	// Leave says that the handler has returned, or has panicked, or was never asked. It is
	// called once, and nothing is after it.
	Leave()
}

// OverloadOptions are what a rules file can say of an [Overload], for the constructor that
// the application gives package rules. Zero fields are the defaults of what it makes.
type OverloadOptions struct {
	Priority []string                 // tiers, those first whose requests are admitted first
	MaxWait  time.Duration            // how long a request may wait for its place under overload
	PerRoute bool                     // each route has a bound of its own
	Exempt   func(*http.Request) bool // which requests take no place; nil: none
}

// statusShed is what decideObserved says of a request that Config.Overload has refused.
const statusShed = 0

// overloadOf is what r needs a place of, or nil: it has one already. Endless reports that it needs
// one that nothing would tell when to return.
func (set *ruleset) overloadOf(r *http.Request, how how) (overload Overload, endless bool) {
	if set.Overload == nil {
		return nil, false
	}
	for e := endingOf(r.Context()); e != nil; e = endingOf(e.Context) {
		if e.place != nil && e.set.Overload == set.Overload {
			return nil, false
		}
	}
	switch {
	case how.ends:
	case endsByServer(r.Context()):
		set.notices.vacated.warn(set.Logger, "weir-no-end",
			"weir: Config.Overload is set, and requests are checked without telling how they end, so that the place of one whose client leaves is free while its handler goes on; use RateLimit.Begin in place of Check")
	default:
		set.notices.unplaced.warn(set.Logger, "weir-overload-without-end",
			"weir: Config.Overload is set, and nothing tells how requests end, so that they are refused; use RateLimit.Begin in place of Check")
		return nil, true
	}
	return set.Overload, false
}

// occupy has e hold a place. Where e is not told how the request ends, that is until the server
// ends the context.
func (e *ending) occupy(place Place, how how) {
	e.place = place
	if !how.ends {
		context.AfterFunc(e.Context, func() {
			e.release()
			place.Leave()
		})
	}
}

// admit takes a place for a request that has passed its rules, once its turn has come, and
// returns 200. What it was charged is returned if it gets none: statusShed, or 499 if the
// client is gone.
func (l *RateLimit) admit(set *ruleset, r *http.Request, s *decided, overload Overload) (status int, place Place, retryAfter time.Duration) {
	ctx := r.Context()
	if d := s.delay(); d > 0 && !l.delayed(ctx, d) {
		l.giveBack(ctx, set, s)
		return statusClientClosedRequest, nil, 0
	}
	if place, retryAfter = overload.Admit(r); place != nil {
		return http.StatusOK, place, 0
	}
	l.giveBack(ctx, set, s)
	if isGone(ctx) {
		return statusClientClosedRequest, nil, 0
	}
	return statusShed, nil, retryAfter
}

// giveBack is undo, also for a client that is gone.
func (l *RateLimit) giveBack(ctx context.Context, set *ruleset, s *decided) {
	ctx, cancel := uncancelled(ctx)
	defer cancel()
	l.undo(ctx, set, s)
}

// admitUncharged is check for a request that no rule is for.
func (l *RateLimit) admitUncharged(set *ruleset, w http.ResponseWriter, r *http.Request, how how, told *Result) (*http.Request, *ending) {
	place, retryAfter := set.Overload.Admit(r)
	switch {
	case place != nil:
		observed := false
		defer func() {
			if !observed { // the observer panics
				place.Leave()
			}
		}()
		set.observe(r, OutcomeAllowed, bans.Ban{})
		observed = true
		behind, end, _ := l.await(set, r, how, nil, &decided{}, nil)
		end.occupy(place, how)
		return behind, end
	case isGone(r.Context()):
		set.refuse(w, r, nil, refusal{status: statusClientClosedRequest}, told)
	default:
		set.observe(r, OutcomeShed, bans.Ban{})
		set.refuse(w, r, nil, refusal{status: http.StatusServiceUnavailable, shed: true, retryAfter: retryAfter}, told)
	}
	return nil, nil
}

// Streams implements [response.Watcher]: a handler that goes on when it has returned, as within an
// http.TimeoutHandler, has no place any more.
func (e *ending) Streams(detached bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.place != nil && !e.ended {
		e.place.Streams(detached)
	}
}

// Waits implements [response.Watcher].
func (e *ending) Waits(begins bool) {
	if e.place == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.place.Waits(begins)
	}
}

// Body implements [response.Watcher].
func (e *ending) Body() *response.Body { return &e.body }
