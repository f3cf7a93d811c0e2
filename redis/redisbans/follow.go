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
			if !ok { // the client was closed, or a Ring has other shards now
				_ = subscription.Close()
				subscription, messages = nil, nil
			} else if !isFailing {
				_ = catchUp()
			}
		case answer := <-l.wake:
			if answer != nil {
				answer <- catchUp()
			} else if !isFailing { // else not for every ban of an outage
				_ = catchUp()
			}
		case <-timer.C:
			_ = catchUp()
		}
	}
}

// catchUp brings to Redis what it does not know, and reads what this process does not.
func (l *List) catchUp(ctx context.Context) error {
	undelivered := l.deliver(ctx)
	if undelivered != nil && !wire.IsAnswer(undelivered) {
		return undelivered // there is no server to ask either
	}
	if lost := l.local.Load().Stats(); lost.Evicted+lost.Forgotten > 0 {
		l.anew.Store(true) // an outage was too much for the copy
	}
	r := reading{to: l.local.Load()}
	for !r.isDone {
		if l.anew.Swap(false) {
			fresh, err := newCopy(l.redis.max)
			if err != nil {
				return err
			}
			r = reading{to: fresh, cursor: "0"}
		}
		gap, err := l.read(ctx, &r)
		if gap == "lost" {
			l.restore()
			err = l.deliver(ctx)
		}
		if gap != "" || err != nil && r.to != l.local.Load() {
			l.anew.Store(true)
		}
		if err != nil {
			return errors.Join(undelivered, err)
		}
	}
	return undelivered
}

// A reading is how far the list has been read.
type reading struct {
	to     *bans.Memory // the copy in use, or a fresh one, which is in use when the reading is done
	cursor string       // in the whole list; empty: what has changed is read, which is last
	isDone bool
}

// read reads a page.
func (l *List) read(ctx context.Context, r *reading) (gap string, _ error) {
	l.exchange.Lock()
	defer l.exchange.Unlock()
	p, err := l.redis.page(ctx, l.seen, l.born, r.cursor)
	if err != nil || p.gap != "" {
		return p.gap, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range p.knows {
		if _, ok := l.unsent[k.ban.Key]; !ok {
			l.apply(r.to, k)
		}
	}
	if r.cursor == "" || r.cursor == "0" { // what changes during a scan is read after it
		l.seen, l.born = p.seen, p.born
	}
	isLast := p.next == "0"
	if r.isDone = isLast && r.cursor == ""; r.isDone && r.to != l.local.Load() {
		for _, u := range l.unsent {
			l.apply(r.to, u.known)
		}
		l.local.Store(r.to)
	}
	if isLast {
		r.cursor = ""
	} else if r.cursor != "" {
		r.cursor = p.next
	}
	return "", nil
}

// restore is for a Redis that has lost bans: everything that is known here is brought to it.
func (l *List) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.local.Load().Each(func(ban bans.Ban, remember time.Duration) {
		if _, ok := l.unsent[ban.Key]; !ok {
			l.unsent[ban.Key] = unsent{known: known{ban: ban, remember: remember}}
		}
	})
}

// mostDelivered is how many bans a round trip brings to Redis.
const mostDelivered = 100

// deliver brings bans to Redis that it does not know of, and learns what holds there.
func (l *List) deliver(ctx context.Context) (err error) {
	for more := true; more && err == nil; {
		more, err = l.deliverSome(ctx)
	}
	return err
}

func (l *List) deliverSome(ctx context.Context) (more bool, err error) {
	l.exchange.Lock()
	defer l.exchange.Unlock()
	var batch []unsent
	var requests []*wire.Request
	l.mu.Lock()
	for _, u := range l.unsent {
		if len(batch) == mostDelivered {
			break
		}
		batch, requests = append(batch, u), append(requests, l.redis.put(u.known, u.isNewer))
	}
	l.mu.Unlock()
	if len(batch) == 0 {
		return false, nil
	}
	if err := l.redis.send(ctx, requests...); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, u := range batch {
		k, err := l.redis.held(u.ban.Key, requests[i])
		if err != nil && !errors.Is(err, bans.ErrFull) {
			return false, err
		}
		if l.unsent[u.ban.Key] != u { // there is a newer one
			continue
		}
		delete(l.unsent, u.ban.Key)
		if err != nil { // it holds here alone
			l.logFull(err)
		} else if !k.lifted { // else it is over
			l.apply(l.local.Load(), k)
		}
	}
	return true, nil
}
