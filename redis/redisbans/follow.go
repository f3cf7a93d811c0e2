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

// follow keeps the copy of the list up to date. Nothing else reads the list, or hears of
// changes, so versions are seen in their order.
func (l *List) follow(ctx context.Context) {
	var subscription *redis.PubSub
	var messages <-chan any
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
				messages = subscription.ChannelWithSubscriptions(redis.WithChannelSize(1000))
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
		case message, ok := <-messages:
			if !ok {
				messages = nil // the client was closed
			}
			switch m := message.(type) {
			case *redis.Message:
				l.hear(m.Payload)
			case *redis.Subscription:
				// A new connection. What was said before was not heard.
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

// maxTold is how many digests are in told at most before the list is read instead.
const maxTold = 10_000

// hear makes what a message says known here.
func (l *List) hear(text string) {
	before, c, ok := parseMessage(text)
	if !ok {
		return // not from a List
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.version <= l.seen {
		return
	}
	l.learn(c)
	if before != l.seen || len(l.told) > maxTold {
		l.seen = unread // a message was lost, or answers kept too many in mind
		l.nudge()
		return
	}
	l.seen = c.version
	if l.calls.Load() == 0 && l.seen >= l.newest {
		clear(l.told)
	}
}

// unread is a version that no list has.
const unread = -1

// catchUp brings to Redis what it does not know, and reads what this process does not.
func (l *List) catchUp(ctx context.Context) error {
	undelivered := l.deliver(ctx)
	if said := redis.Error(nil); undelivered != nil && !errors.As(undelivered, &said) {
		return undelivered // there is no server to ask either
	}
	l.mu.Lock()
	seen := l.seen
	if lost := l.local.Load().Stats(); lost.Evicted+lost.Forgotten > 0 {
		seen = unread // an outage was too much for the copy
	}
	l.mu.Unlock()
	page, err := l.redis.read(ctx, seen, "0")
	if err != nil {
		return err
	}
	if page.version == 0 && seen != 0 { // the list is lost
		if err := l.restore(ctx); err != nil {
			return err
		}
		if page, err = l.redis.read(ctx, 0, "0"); err != nil {
			return err
		}
	}
	if page.cursor != "" {
		err = l.readAll(ctx, page)
	}
	return errors.Join(undelivered, err)
}

// readAll reads the list from its first page on, into a new copy. Of what is changed
// meanwhile there are messages, or there is another version afterwards.
func (l *List) readAll(ctx context.Context, page page) error {
	fresh, err := newCopy(l.redis.max)
	if err != nil {
		return err
	}
	version := page.version
	for {
		for i := 0; i+1 < len(page.rest); i += 2 {
			if c, ok := page.change(page.rest[i], page.rest[i+1]); ok {
				l.apply(fresh, c)
			}
		}
		if page.cursor == "0" {
			break
		}
		if page, err = l.redis.read(ctx, version, page.cursor); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace(fresh, version)
	return nil
}

// replace puts a copy of that version in place of the one that is in use.
func (l *List) replace(fresh *bans.Memory, version int64) {
	for tag, c := range l.told {
		if c.version > version {
			l.apply(fresh, c)
		} else {
			delete(l.told, tag)
		}
	}
	for _, p := range l.pending {
		l.apply(fresh, p.change)
	}
	l.local.Store(fresh)
	l.seen, l.read = version, version
}

// restore is for a Redis that lost the list: everything that is known here is pending.
func (l *List) restore(ctx context.Context) error {
	l.mu.Lock()
	l.local.Load().Each(func(ban bans.Ban, remember time.Duration) {
		if _, ok := l.pending[ban.Key]; !ok {
			l.pending[ban.Key] = pending{change: change{ban: ban, remember: remember}}
		}
	})
	l.seen, l.read = 0, 0
	clear(l.told)
	l.mu.Unlock()
	return l.deliver(ctx)
}

// maxMerged is how many bans a script brings to Redis.
const maxMerged = 100

// deliver brings the bans to Redis that are pending, and learns what holds there.
func (l *List) deliver(ctx context.Context) error {
	l.calls.Add(1)
	defer l.calls.Add(-1)
	for {
		batch, args := l.gather()
		if len(batch) == 0 {
			return nil
		}
		a, err := l.redis.merge(ctx, args)
		if err != nil {
			return err
		}
		l.delivered(batch, a)
	}
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
		if c, ok := a.change(tag, a.rest[i]); ok && !c.lifted {
			l.accept(c)
		} else {
			delete(l.pending, tag) // Redis has no room: it holds here alone
		}
	}
}
