package failover

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// partial watches for an outage that is not total: calls fail, but not so many in a row that
// a breaker opens. It costs a call nothing that does not fail. A timer runs from the first
// failure on until there are no more, or a breaker is open: no store that is not used any more
// has one.
type partial struct {
	missed atomic.Uint64 // decisions at which the server failed that was known to be up
	told   atomic.Bool   // it is one, and the hook has been told

	mu                    sync.Mutex
	running               bool
	open                  int       // breakers
	began                 time.Time // of what is summed up
	beforeMiss, beforeHit uint64    // the counts then
	since                 time.Time // when it was told
}

const (
	partialEvery  = 10 * time.Second // how often failures are summed up
	partialSpan   = time.Minute      // for how long, at most, where they are few
	partialEnd    = 5 * time.Minute  // for how long, at most, before the end of an outage is told
	partialShare  = 0.05             // of the decisions, from which on it is told
	partialOver   = 0.01             // below which it has ended
	partialMisses = 5                // fewer are not told
)

// miss books a decision at which the server failed.
func (p *partial) miss(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		p.start(s)
		p.run(s)
	}
	p.missed.Add(1)
}

// opened is for a breaker that opens: the failures that opened it are told of with that.
func (p *partial) opened(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
	p.start(s)
}

// closed is for a breaker that closes. What had been told before may be over too.
func (p *partial) closed(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	p.start(s)
	if p.told.Load() && !p.running {
		p.run(s)
	}
}

// run starts the timer. It needs the lock.
func (p *partial) run(s *Store) {
	p.running = true
	time.AfterFunc(partialEvery, func() { p.look(s) })
}

// start begins to sum up anew. It needs the lock.
func (p *partial) start(s *Store) {
	p.began, p.beforeMiss, p.beforeHit = time.Now(), p.missed.Load(), s.counters.decided.Load()
}

// look tells of the beginning and the end of a partial outage. Its end is told when so many
// calls have shown it that it will not be told of again at once.
func (p *partial) look(s *Store) {
	err := s.lastError()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	if p.open > 0 { // which is told by itself
		return
	}
	misses := p.missed.Load() - p.beforeMiss
	calls := misses + s.counters.decided.Load() - p.beforeHit
	share := float64(misses) / float64(max(1, calls))
	passed := time.Since(p.began)
	told := p.told.Load()
	switch {
	case !told && misses >= partialMisses && share >= partialShare:
		p.told.Store(true)
		p.since = time.Now()
		s.news.tell(notice{Event: Event{Degraded: true, Partly: true, Share: share, Err: err}})
		p.start(s)
	case told && share >= partialOver:
		p.start(s)
	case told && (float64(calls)*partialOver >= partialMisses || passed >= partialEnd):
		p.told.Store(false)
		s.news.tell(notice{Event: Event{Partly: true, Share: share, Err: err, For: time.Since(p.since)}})
		return
	case !told && passed >= partialSpan:
		if misses == 0 {
			return
		}
		p.start(s)
	}
	p.run(s)
}

// lastError is the last of all parts.
func (s *Store) lastError() (last error) {
	var at time.Time
	for i := range s.parts {
		p := s.parts[i].Load()
		if p == nil {
			continue
		}
		p.mu.Lock()
		if p.err != nil && !p.failed.Before(at) {
			last, at = p.err, p.failed
		}
		p.mu.Unlock()
	}
	return last
}

func (e Event) logPartly() {
	switch {
	case e.Degraded && e.Unusable: // which has been said
	case e.Degraded:
		slog.Warn("weir: the store's server does not answer all calls in time, so the rules' OnOutage policies decide on some",
			"code", "weir-partly-degraded", "share", e.Share, "error", e.Err)
	default:
		slog.Info("weir: the store's server answers all calls again, or nearly", "code", "weir-partly-recovered", "share", e.Share, "after", e.For)
	}
}
