package redisbans

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/middleware/bans"
)

const (
	// retryAfter is how soon the list asks a Redis again that did not answer.
	retryAfter = time.Second

	// mostChanges bounds the unsent bans of an exchange, and the changes of callers.
	mostChanges = 100
)

// An outcome is what the list has of a key after a change. After unban, lifted reports whether there
// was a ban.
type outcome struct {
	known
	err error
}

// ask makes a change, or with the Op read waits until the copy is up to date. Callers that come
// during an exchange with Redis share the next exchange. If ctx has no deadline, ask has patience for two.
func (l *List) ask(ctx context.Context, c *change) (known, error) {
	limited := ctx
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, 2*l.redis.patience)
		defer cancel()
	}
	c.done = make(chan outcome, 1)
	if ctx.Err() == nil {
		l.mu.Lock()
		l.asked = append(l.asked, c)
		l.mu.Unlock()
	}
	for limited.Err() == nil {
		select {
		case o := <-c.done:
			return o.known, o.err
		case l.exchange <- struct{}{}:
			if len(c.done) > 0 {
				<-l.exchange
			} else {
				go l.catchUp() // for other callers too, so this caller may leave
			}
		case <-limited.Done():
		}
	}
	return known{}, l.redis.failed(context.Cause(limited))
}

// follow keeps the copy of the list up to date.
func (l *List) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l.exchange <- struct{}{}:
		}
		wake, wait := l.wake, l.poll
		if l.catchUp() != nil {
			wake, wait = nil, min(l.poll, retryAfter) // an outage's bans do not wake it
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-time.After(wait):
		}
	}
}

// catchUp exchanges changes with Redis until neither side has more. The caller has filled l.exchange.
func (l *List) catchUp() (err error) {
	defer func() { <-l.exchange }()
	l.mu.Lock()
	l.scan = l.scan || l.gone() != l.missed // the copy had no room for the bans of an outage
	l.mu.Unlock()
	var refused error
	for isDone := false; !isDone && err == nil; {
		changes := l.next()
		var a *answer
		if a, err = l.redis.exchange(context.Background(), l.at, changes); err != nil {
			l.end(changes, err)
		} else if isDone, refused = l.settle(changes, a); l.ended() != nil {
			err = errEnded
		}
	}
	if err == nil {
		err = refused
	}
	switch {
	case err == nil:
		l.goUp()
	case err != errEnded:
		l.goDown(err)
		l.nudge()
	}
	for _, c := range l.reads {
		c.done <- outcome{err: err}
	}
	l.reads = nil
	return err
}

// next returns the changes of the next exchange: unsent bans, and those that callers wait for.
func (l *List) next() (changes []*change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scan {
		l.scan, l.at.cursor = false, "0"
	}
	for _, c := range l.unsent {
		if len(changes) == mostChanges {
			break
		}
		changes = append(changes, c)
	}
	n := min(len(l.asked), mostChanges)
	for _, c := range l.asked[:n] {
		if c.Op == "read" {
			l.reads = append(l.reads, c)
		} else {
			changes = append(changes, c)
		}
	}
	l.asked = slices.Delete(l.asked, 0, n)
	return changes
}

// end ends the calls of an exchange that failed, and calls that came meanwhile: Redis is down.
func (l *List) end(changes []*change, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goDown(err)
	for _, c := range slices.Concat(changes, l.asked) {
		if c.done != nil {
			c.done <- outcome{err: err}
		}
	}
	l.asked = nil
}

// settle applies an answer. It reports whether neither side has more, and returns why Redis refused
// an unsent ban. Such a Redis, without memory say, can still be read.
func (l *List) settle(changes []*change, a *answer) (isDone bool, refused error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range changes {
		if c.done == nil && l.unsent[c.Tag] != c { // there is a newer one
			continue
		}
		k, err := l.settleOne(c, a, a.answers[i])
		switch {
		case c.done != nil:
			c.done <- outcome{k, err}
		case errors.Is(err, bans.ErrFull): // the ban holds in this process only
			delete(l.unsent, c.Tag)
			l.logFull("weir: the list of bans in Redis is full, so a ban applies in this process only", err)
		case err != nil:
			refused = err
		}
	}
	if l.scan = l.scan || a.gap; !a.gap {
		isDone = l.turn(a) && (refused != nil || len(l.unsent) == 0)
	}
	return isDone, refused
}

// settleOne applies the answer to one change.
func (l *List) settleOne(c *change, a *answer, text string) (k known, err error) {
	said, failed := strings.CutPrefix(text, "!")
	switch {
	case failed:
		return k, l.redis.failed(errors.New(said))
	case text == "full":
		return k, bans.ErrFull
	case c.Op != "unban":
		k = a.read(c.Tag, text)
		delete(l.unsent, c.Tag)
		l.apply(k)
	case text == "": // Redis has no ban, but this process may
		k.lifted = l.forget(c.Tag, c.Other)
	default:
		k.lifted = text[0] == '1'
		l.forget(text[1:])
	}
	return k, err
}

// turn applies a page, and reports whether it was the last page.
func (l *List) turn(a *answer) (isLast bool) {
	if a.strange > 0 && !l.hasStrange {
		l.hasStrange = true
		l.log.Warn("weir: the list of bans in Redis has fields that are not digests, so Weir did not write them; they ban nobody. Remove them, and ban keys with weir ban",
			"code", "weir-bans-strange", "hash", l.redis.names[0], "fields", a.strange)
	}
	for _, k := range a.page {
		if l.unsent[k.ban.Key] == nil {
			l.apply(k)
		}
	}
	isLast = a.cursor == "0"
	if l.at.cursor == "" || l.at.cursor == "0" { // changes during a scan are read after the scan
		l.at.seen = a.seen
	}
	if l.at.cursor == "" {
		return isLast
	}
	if l.at.cursor = a.cursor; isLast {
		l.at.cursor, l.missed = "", l.gone() // another scan would find no more room
	}
	return false
}
