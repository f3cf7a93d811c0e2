package sloglimit

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// A Logger is a [middleware.Observer] that logs refusals.
type Logger struct {
	options Options
	digests keyfunc.Digester

	mu     sync.Mutex
	bursts map[id]*burst
	keys   int      // how many bursts have a key
	queue  []*burst // in the order in which they are due, as all wait equally long
	timer  *time.Timer
}

// A refusal is a request that was refused, by one of its rules.
type refusal struct {
	code, rule, tier, key string
	result                *middleware.RuleResult // of a limit
	retryAfter            time.Duration
	digested              bool // the key is a digest already
}

// An id identifies a burst. Clients choose their keys, so keys are hashed under a seed.
type id struct {
	code, rule, tier string
	hash             uint64 // of the key; 0: without a key
	crowd            bool   // of all keys beyond MaxKeys
}

var seed = maphash.MakeSeed()

// A burst counts the refusals of one key by one rule, since its last record.
type burst struct {
	id
	key string // as it is logged
	due time.Time

	requests     uint64
	limit, route string // of the first of them
	retryAfter   time.Duration
}

// noRetry is longer than any client waits: limiter.Never, or a permanent ban.
const noRetry = 100 * 366 * 24 * time.Hour

// note counts a refusal, and logs it if it is the first of its burst.
func (l *Logger) note(r *http.Request, f refusal) {
	which := id{code: f.code, rule: f.rule, tier: f.tier}
	if f.key != "" {
		which.hash = maphash.String(seed, f.key)
	}
	if first, ok := l.count(which, r, &f); ok {
		l.write(first) // without the lock: a handler may be slow, or log a request of its own
	}
}

// count counts a refusal. If it is the first of its burst, count returns what to log of it.
func (l *Logger) count(which id, r *http.Request, f *refusal) (first burst, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.bursts[which]
	isKey := f.key != ""
	if !known && isKey && l.keys >= l.options.MaxKeys {
		isKey, which.hash, which.crowd = false, 0, true
		b, known = l.bursts[which]
	}
	if known {
		b.add(r, f)
		return burst{}, false
	}
	b = &burst{id: which, due: time.Now().Add(l.options.Interval)}
	if isKey {
		b.key = l.show(f)
		l.keys++
	}
	l.bursts[which] = b
	l.queue = append(l.queue, b)
	if len(l.queue) == 1 {
		l.timer = time.AfterFunc(l.options.Interval, l.wake)
	}
	first = *b
	first.add(r, f)
	return first, true
}

// add counts a refusal. The first refusal sets the attributes.
func (b *burst) add(r *http.Request, f *refusal) {
	b.requests++
	if b.requests > 1 {
		return
	}
	b.route, b.limit, b.retryAfter = r.Pattern, "", f.retryAfter
	switch {
	case f.result == nil:
	case f.result.IsConcurrency():
		b.limit = fmt.Sprintf("%d at once", f.result.Decision.Limit)
	default:
		b.limit = f.result.Binding().String()
	}
	if b.retryAfter > noRetry {
		b.retryAfter = 0
	}
}

// show returns a key as it is logged.
func (l *Logger) show(f *refusal) string {
	if f.digested || l.options.ShowKeys {
		return string([]byte(f.key[:min(len(f.key), 128)])) // a copy, so that the request's memory is freed
	}
	return l.digests.Digest(f.key).String()
}

// wake logs the bursts that are due, and ends those without new refusals.
func (l *Logger) wake() { l.flush(false) }

// Flush logs the refusals since the last records, and stops the timer. Call it before the program
// ends.
func (l *Logger) Flush() { l.flush(true) }

func (l *Logger) flush(all bool) {
	for _, b := range l.due(all) {
		l.write(b)
	}
}

// due returns the bursts that are due, as they are to be logged, and sets the timer for the next.
func (l *Logger) due(all bool) (bursts []burst) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		return nil
	}
	l.timer.Stop()
	now := time.Now()
	n := 0
	for ; n < len(l.queue) && (all || !l.queue[n].due.After(now)); n++ {
		b := l.queue[n]
		if b.requests > 0 {
			bursts = append(bursts, *b)
		}
		if all || b.requests == 0 {
			l.end(b)
			continue
		}
		b.requests, b.due = 0, now.Add(l.options.Interval)
		l.queue = append(l.queue, b)
	}
	clear(l.queue[:n])
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue, l.timer = nil, nil
		return bursts
	}
	l.timer = time.AfterFunc(time.Until(l.queue[0].due), l.wake)
	return bursts
}

// end removes a burst. The next refusal begins a new one.
func (l *Logger) end(b *burst) {
	delete(l.bursts, b.id)
	if b.key != "" {
		l.keys--
	}
}
