package redisbans

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/redis/internal/wire"
)

// retryAfter is how long Redis is left alone that gave no answer.
const retryAfter = time.Second

// follow keeps the copy of the list up to date: every poll, and when a message says that there was a
// change. Nothing else reads the list. A message that is lost costs a poll.
func (l *List) follow(ctx context.Context) {
	var subscription *redis.PubSub
	var messages <-chan *redis.Message
	defer func() {
		if subscription != nil {
			_ = subscription.Close()
		}
	}()
	timer := time.NewTimer(l.poll)
	defer timer.Stop()
	isFailing := false
	catchUp := func() error {
		var err error
		if subscription == nil {
			if subscription, err = wire.Subscribe(ctx, l.redis.Client, l.redis.channel); err == nil {
				messages = subscription.Channel()
			}
		}
		if err == nil {
			err = l.catchUp(ctx)
		}
		err = l.redis.failed(err)
		if ctx.Err() != nil {
			return err
		}
		if isFailing = err != nil; isFailing {
			l.goDown(err)
			timer.Reset(min(l.poll, retryAfter))
		} else {
			l.goUp()
			timer.Reset(l.poll)
		}
		return err
	}
	_ = catchUp() // which has said what is wrong, here and below
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-messages:
			for len(messages) > 0 {
				<-messages
			}
			if !ok {
				messages = nil // the client was closed
			} else if !isFailing {
				_ = catchUp()
			}
		case <-l.nudges:
			if !isFailing { // else not for every ban of an outage
				_ = catchUp()
			}
		case answer := <-l.asked:
			answer <- catchUp()
		case <-timer.C:
			_ = catchUp()
		}
	}
}

// catchUp brings to Redis what it does not know, and reads what this process does not.
func (l *List) catchUp(ctx context.Context) error {
	undelivered := l.deliver(ctx)
	if said := redis.Error(nil); undelivered != nil && !errors.As(undelivered, &said) {
		return undelivered // there is no server to ask either
	}
	if lost := l.local.Load().Stats(); lost.Evicted+lost.Forgotten > 0 {
		l.anew.Store(true) // an outage was too much for the copy
	}
	var fresh *bans.Memory // that is read from the beginning
	for {
		seen, newest := l.versions()
		if l.anew.Swap(false) || fresh == nil && seen == 0 && newest > 0 {
			empty, err := newCopy(l.redis.max)
			if err != nil {
				return err
			}
			fresh, seen = empty, 0
			l.forget()
		}
		l.exchange.Lock()
		p, err := l.redis.read(ctx, seen, l.born)
		isLost := p.isLost || p.version < newest
		isLast := err == nil && !isLost && (!p.isAnew || fresh != nil) && l.take(p, fresh)
		l.exchange.Unlock()
		switch {
		case err != nil:
			if fresh != nil {
				l.anew.Store(true)
			}
			return errors.Join(undelivered, err)
		case isLost:
			l.anew.Store(true)
			l.forget()
			if err := l.restore(ctx); err != nil {
				return err
			}
		case p.isAnew && fresh == nil:
			l.anew.Store(true)
		case isLast:
			return undelivered
		}
	}
}

// versions are the version that was read, and the highest that Redis has said there is.
func (l *List) versions() (seen, newest int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest = l.seen
	for _, c := range l.told {
		newest = max(newest, c.version)
	}
	return l.seen, newest
}

// forget has the list read from the beginning.
func (l *List) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.born = 0, ""
}

// take makes a page known, in a fresh copy or in the one that is in use, and reports whether it is
// the last. What Redis has answered to this process since is newer.
func (l *List) take(p page, fresh *bans.Memory) (isLast bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.local.Load()
	if fresh != nil {
		to = fresh
	}
	for _, c := range p.changes {
		if l.told[c.ban.Key].version <= p.version {
			l.apply(to, c)
		}
		l.seen = c.version
	}
	l.born = p.born
	if len(p.changes) == fullPage {
		return false
	}
	l.seen = p.version
	for tag, c := range l.told {
		if c.version <= l.seen {
			delete(l.told, tag)
		}
	}
	if fresh != nil {
		for _, c := range l.told {
			l.apply(fresh, c)
		}
		for _, p := range l.pending {
			l.apply(fresh, p.change)
		}
		l.local.Store(fresh)
	}
	return true
}

// restore is for a Redis that lost the list: everything that is known here is pending.
func (l *List) restore(ctx context.Context) error {
	l.mu.Lock()
	l.local.Load().Each(func(ban bans.Ban, remember time.Duration) {
		if _, ok := l.pending[ban.Key]; !ok {
			l.pending[ban.Key] = pending{change: change{ban: ban, remember: remember}}
		}
	})
	clear(l.told)
	l.mu.Unlock()
	return l.deliver(ctx)
}

// maxMerged is how many bans a script brings to Redis.
const maxMerged = 100

// deliver brings the bans to Redis that are pending, and learns what holds there.
func (l *List) deliver(ctx context.Context) error {
	for {
		if more, err := l.deliverSome(ctx); !more || err != nil {
			return err
		}
	}
}

func (l *List) deliverSome(ctx context.Context) (more bool, err error) {
	l.exchange.Lock()
	defer l.exchange.Unlock()
	batch, args := l.gather()
	if len(batch) == 0 {
		return false, nil
	}
	a, err := l.redis.merge(ctx, args)
	if err != nil {
		return false, err
	}
	l.delivered(batch, a)
	return true, nil
}

// gather is what one script is to bring to Redis.
func (l *List) gather() (batch []pending, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tag, p := range l.pending {
		if end := p.ban.Until; !end.IsZero() && time.Until(end.Add(p.remember)) <= 0 {
			delete(l.pending, tag)
			continue
		}
		if len(batch) == maxMerged {
			break
		}
		batch, args = append(batch, p), appendMerge(args, p)
	}
	return batch, args
}

func (l *List) delivered(batch []pending, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range batch {
		tag := p.ban.Key
		if l.pending[tag] != p { // there is a newer one
			continue
		}
		delete(l.pending, tag)
		if c, ok := a.change(tag, a.rest[i]); ok && !c.lifted { // else Redis has no room: it holds here alone
			l.accept(c)
		}
	}
}
