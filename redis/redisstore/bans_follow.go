package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/middleware/bans"
)

// retryAfter is how long Redis is left alone that gave no answer.
const retryAfter = time.Second

// follow keeps the copy of the list up to date. Nobody else reads the list, or hears of
// changes, so versions are seen in their order.
func (b *Bans) follow(ctx context.Context) {
	subscription := b.redis.client.Subscribe(ctx, b.redis.channel)
	defer subscription.Close()
	messages := subscription.ChannelWithSubscriptions(redis.WithChannelSize(1000))
	timer := time.NewTimer(b.poll)
	defer timer.Stop()
	isFailing := false
	catchUp := func() error {
		err := b.catchUp(ctx)
		if ctx.Err() != nil {
			return err
		}
		if isFailing = err != nil; isFailing {
			b.goDown(err)
			timer.Reset(min(b.poll, retryAfter))
		} else {
			b.goUp()
			timer.Reset(b.poll)
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
				b.hear(m.Payload)
			case *redis.Subscription:
				// A new connection. What was said before was not heard.
				_ = catchUp()
			}
		case <-b.nudges:
			if !isFailing { // else not for every ban of an outage
				_ = catchUp()
			}
		case answer := <-b.asked:
			answer <- catchUp()
		case <-timer.C:
			_ = catchUp()
		}
	}
}

// hear makes what a message says known here.
func (b *Bans) hear(text string) {
	m, ok := parseBansMessage(text)
	if !ok {
		return // not from a Bans
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.version <= b.seen {
		return
	}
	if f := b.flights[m.tag]; f != nil {
		f.version = max(f.version, m.version)
	}
	if m.version >= b.told[m.tag].version {
		b.apply(b.local.Load(), m.tag, m.bansChange)
	}
	if m.before != b.seen {
		b.nudge() // a message was lost
		return
	}
	b.seen = m.version
	if b.seen >= b.toldMax {
		clear(b.told)
	}
}

// unread is a version that no list has.
const unread = -1

// catchUp brings to Redis what it does not know, and reads what this process does not.
func (b *Bans) catchUp(ctx context.Context) error {
	undelivered := b.deliver(ctx)
	if said := redis.Error(nil); undelivered != nil && !errors.As(undelivered, &said) {
		return undelivered // there is nobody to ask either
	}
	b.mu.Lock()
	seen := b.seen
	if lost := b.local.Load().Stats(); lost.Evicted+lost.Forgotten > 0 {
		seen = unread // an outage was too much for the copy
	}
	b.mu.Unlock()
	page, err := b.redis.read(ctx, seen, "0")
	if err != nil {
		return err
	}
	if page.version == 0 && seen != 0 { // the list is lost
		if err := b.giveBack(ctx); err != nil {
			return err
		}
		if page, err = b.redis.read(ctx, 0, "0"); err != nil {
			return err
		}
	}
	if page.cursor != "" {
		err = b.readAll(ctx, page)
	}
	return errors.Join(undelivered, err)
}

// readAll reads the list from its first page on, into a new copy. Of what is changed
// meanwhile there are messages, or there is another version afterwards.
func (b *Bans) readAll(ctx context.Context, page bansPage) error {
	fresh, err := newBansCopy(b.redis.max)
	if err != nil {
		return err
	}
	version := page.version
	for {
		for i := 0; i+1 < len(page.entries); i += 2 {
			a := bansAnswer{version: page.version, now: page.now}
			if tag := page.entries[i]; isTag(tag) && a.parse(page.entries[i+1]) {
				b.apply(fresh, tag, a.change(tag))
			}
		}
		if page.cursor == "0" {
			break
		}
		if page, err = b.redis.read(ctx, version, page.cursor); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replace(fresh, version)
	return nil
}

// replace puts a copy of that version in place of the one that is in use.
func (b *Bans) replace(fresh *bans.Memory, version int64) {
	for tag, c := range b.told {
		if c.version > version {
			b.apply(fresh, tag, c)
		} else {
			delete(b.told, tag)
		}
	}
	for tag, p := range b.pending {
		b.apply(fresh, tag, bansChange{ban: p.ban, remember: p.remember})
	}
	for _, f := range b.flights {
		f.version = max(f.version, version)
	}
	b.local.Store(fresh)
	b.seen = version
}

// giveBack is for a Redis that lost the list: everything that is known here is pending.
func (b *Bans) giveBack(ctx context.Context) error {
	b.mu.Lock()
	b.local.Load().Each(func(ban bans.Ban, remember time.Duration) {
		if _, ok := b.pending[ban.Key]; !ok {
			b.pending[ban.Key] = bansPending{ban: ban, remember: remember}
		}
	})
	b.seen = 0
	clear(b.told)
	b.mu.Unlock()
	return b.deliver(ctx)
}

// maxMerged is how many bans a script brings to Redis.
const maxMerged = 100

// A bansDelivery is what a script brings to Redis.
type bansDelivery struct {
	tags    []string
	pending []bansPending
	args    []any
}

// deliver brings the bans to Redis that are pending, and learns what holds there.
func (b *Bans) deliver(ctx context.Context) error {
	for {
		d := b.gather()
		if len(d.tags) == 0 {
			return nil
		}
		stamp, states, err := b.redis.merge(ctx, d.args)
		b.delivered(d, stamp, states, err)
		if err != nil {
			return err
		}
	}
}

func (b *Bans) gather() (d bansDelivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for tag, p := range b.pending {
		if end := p.ban.Until; !end.IsZero() && time.Until(end.Add(p.remember)) <= 0 {
			delete(b.pending, tag)
			continue
		}
		if len(d.tags) == maxMerged {
			break
		}
		d.tags, d.pending, d.args = append(d.tags, tag), append(d.pending, p), appendMerge(d.args, tag, &p)
		b.departLocked(tag)
	}
	return d
}

func (b *Bans) delivered(d bansDelivery, stamp bansAnswer, states []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, tag := range d.tags {
		flight := b.land(tag)
		if err != nil || b.pending[tag] != d.pending[i] { // which is newer then
			continue
		}
		if answer := stamp; answer.parse(states[i]) {
			b.accept(tag, answer.change(tag), flight)
		} else {
			delete(b.pending, tag) // Redis has no room: it holds here alone
		}
	}
}
