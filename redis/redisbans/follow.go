package redisbans

import (
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
)

const (
	retryAfter = time.Second            // how soon the list asks a Redis again that did not answer
	inFlight   = 100 * time.Millisecond // how long the list waits for messages before it counts them as lost
)

// change makes a change in Redis and in the copy.
func (l *List) change(ctx context.Context, op, tag string, values any) (n news, lifted bool, err error) {
	n, lifted, err = l.run(ctx, op, tag, values)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, bans.ErrFull) {
			l.goDown(err)
		}
		return n, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unsent, tag)
	l.settle(n)
	return n, lifted, nil
}

// settle applies news, which may come before news of earlier versions, or after news of later ones.
func (l *List) settle(n news) {
	if n.version < max(l.version, l.ahead[n.tag]) || l.unsent[n.tag] != nil {
		return
	}
	if n.version > l.version {
		l.ahead[n.tag] = n.version
	}
	ban, remember, ok := n.read()
	if !ok {
		l.warnStrange("weir: the list of bans in Redis has states that cannot be read; they are permanent bans")
	}
	if err := l.local.Restore(ban, remember); err != nil {
		l.log.Warn("weir: this process has no room for a ban, so the ban applies in other processes only", "code", "weir-bans-full", "error", err)
	}
}

// advance is called when the copy has all news up to a version.
func (l *List) advance(version int64) {
	l.version = version
	for tag, of := range l.ahead {
		if of <= version {
			delete(l.ahead, tag)
		}
	}
}

// follow keeps the copy of the list up to date.
func (l *List) follow(ctx context.Context) {
	wake, wait := l.wake, min(l.poll, retryAfter) // by then, Redis has begun to send messages
	for {
		var caller chan error
		select {
		case <-ctx.Done():
			return
		case message := <-l.messages:
			l.hear(ctx, message)
			continue
		case caller = <-l.asked:
		case <-wake:
		case <-time.After(wait):
		}
		wake, wait = l.wake, l.poll
		unsent, err := l.send(ctx), l.update(ctx)
		switch failed := errors.Join(unsent, err); {
		case ctx.Err() != nil:
		case failed == nil:
			l.goUp()
		default:
			l.goDown(failed)
			wake, wait = nil, min(l.poll, retryAfter) // an outage's bans do not wake it
		}
		if caller != nil {
			caller <- err
		}
	}
}

// hear applies a message. If one before it is missing, the list must be read.
func (l *List) hear(ctx context.Context, message string) {
	n, err := readNews(message)
	if err == nil && n.state == none && n.version < l.version { // it was in the list, and may be again
		n, _, err = l.run(ctx, "check", n.tag, nil)
	}
	if _, ok := keyfunc.ParseDigest(n.tag); err != nil || !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(n)
	if l.isRead && l.version == n.before {
		l.advance(n.version)
	} else if l.version < n.version {
		l.nudge()
	}
}

// send sends unsent bans. A Redis that refuses them, without memory say, can still be read.
func (l *List) send(ctx context.Context) error {
	for {
		var p *put
		l.mu.Lock()
		for _, p = range l.unsent {
			break
		}
		l.mu.Unlock()
		if p == nil {
			return nil
		}
		n, _, err := l.run(ctx, "put", p.ban.Key, p.values())
		if err != nil && !errors.Is(err, bans.ErrFull) {
			return err
		}
		l.mu.Lock()
		if l.unsent[p.ban.Key] == p { // else there is a newer one
			delete(l.unsent, p.ban.Key)
			if err == nil {
				l.settle(n)
			} else {
				l.log.Warn("weir: the list of bans in Redis is full, so a ban applies in this process only", "code", "weir-bans-full", "error", err)
			}
		}
		l.mu.Unlock()
	}
}

// update reads the list, unless the copy has its version. What Redis does not have stays in the copy:
// Redis may have lost it. What was lifted has a state that says so.
func (l *List) update(ctx context.Context) error {
	now, _, err := l.run(ctx, "check", "", nil)
	if err != nil {
		return err
	}
	l.mu.Lock()
	isRead := l.isRead && l.version <= now.version // else Redis has lost versions
	l.isRead = true                                // unless mustRead is called meanwhile
	l.mu.Unlock()
	for late := time.After(inFlight); isRead && l.version < now.version; {
		select {
		case message := <-l.messages:
			l.hear(ctx, message)
		case <-late:
			isRead = false
		}
	}
	if isRead {
		return nil
	}
	list, err := l.readAll(ctx, now)
	if err != nil {
		l.mustRead()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now.version)
	for _, n := range list {
		if _, ok := keyfunc.ParseDigest(n.tag); ok {
			l.settle(n)
		} else {
			l.warnStrange("weir: the list of bans in Redis has fields that are not digests, so Weir did not write them; they ban nobody")
		}
	}
	return nil
}

// mustRead has the list read, though it may have the version of the copy.
func (l *List) mustRead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isRead = false
	l.nudge()
}

// keep has a ban written to Redis later, unless there are more than the copy can hold.
func (l *List) keep(p *put) {
	if len(l.unsent) < 2*l.max {
		l.unsent[p.ban.Key] = p
	}
	l.nudge()
}

func (l *List) nudge() {
	select {
	case l.wake <- struct{}{}:
	default: // it is full
	}
}

func (l *List) goDown(err error) {
	if !l.down.Swap(true) {
		l.log.Warn("weir: the list of bans cannot be shared through Redis, so the bans that are known here hold",
			"code", "weir-bans-stale", "error", err)
	}
	l.nudge()
}

func (l *List) goUp() {
	l.current.Store(int64(max(1, time.Since(l.start))))
	if l.down.Swap(false) {
		l.log.Info("weir: the list of bans is shared through Redis again", "code", "weir-bans-current")
	}
}

// warnStrange warns once of what Weir has not written.
func (l *List) warnStrange(message string) {
	if !l.hasWarned {
		l.hasWarned = true
		l.log.Warn(message, "code", "weir-bans-strange", "hash", l.names[0])
	}
}
