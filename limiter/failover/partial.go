package failover

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// partial watches for an outage that is not total: calls fail, but not so many in a row that
// a breaker opens. It costs a call nothing that does not fail. A timer runs from the first
// failure on until there are no more.
type partial struct {
	missed atomic.Uint64 // decisions at which the server failed that was known to be up
	told   atomic.Bool   // it is one, and the hook has been told

	mu                    sync.Mutex
	running               bool
	began                 time.Time // of what is summed up
	beforeMiss, beforeHit uint64    // the counts then
	since                 time.Time // when it was told
}

const (
	partialEvery  = 10 * time.Second // how often failures are summed up
	partialSpan   = time.Minute      // for how long, at most, where they are few
	partialShare  = 0.05             // of the decisions, from which on it is told
	partialOver   = 0.01             // below which it has ended
	partialMisses = 5                // fewer are not told
)

// miss books a decision at which the server failed.
func (p *partial) miss(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		p.running = true
		p.start(s)
		time.AfterFunc(partialEvery, func() { p.look(s) })
	}
	p.missed.Add(1)
}

// forget is for a breaker that opens: the failures that opened it are told of with that.
func (p *partial) forget(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start(s)
}

// start begins to sum up anew. It needs the lock.
func (p *partial) start(s *Store) {
	p.began, p.beforeMiss, p.beforeHit = time.Now(), p.missed.Load(), s.counters.decided.Load()
}

// look tells of the beginning and the end of a partial outage.
func (p *partial) look(s *Store) {
	total, err := s.state()
	p.mu.Lock()
	defer p.mu.Unlock()
	misses := p.missed.Load() - p.beforeMiss
	calls := misses + s.counters.decided.Load() - p.beforeHit
	share := float64(misses) / float64(max(1, calls))
	told := p.told.Load()
	switch {
	case total: // which is told by itself
		p.start(s)
	case !told && misses >= partialMisses && share >= partialShare:
		p.told.Store(true)
		p.since = time.Now()
		s.news.tell(notice{Event: Event{Degraded: true, Partly: true, Share: share, Err: err}})
		p.start(s)
	case told && share < partialOver:
		p.told.Store(false)
		s.news.tell(notice{Event: Event{Partly: true, Share: share, Err: err, For: time.Since(p.since)}})
		p.running = false
	case told || time.Since(p.began) >= partialSpan:
		if p.running = told || misses > 0; p.running {
			p.start(s)
		}
	}
	if p.running {
		time.AfterFunc(partialEvery, func() { p.look(s) })
	}
}

// state tells whether a breaker is open, and the last error of all parts.
func (s *Store) state() (total bool, last error) {
	var at time.Time
	for i := range s.parts {
		p := s.parts[i].Load()
		if p == nil {
			continue
		}
		p.mu.Lock()
		total = total || !p.since.IsZero()
		if p.err != nil && !p.failed.Before(at) {
			last, at = p.err, p.failed
		}
		p.mu.Unlock()
	}
	return total, last
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
