package failover

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// An Event says that the policies have come into force, or no longer are.
type Event struct {
	// Degraded says which of the two.
	Degraded bool

	// Part is which server of the store it is about, as the store numbers them; 0 for a
	// store that has one.
	Part int

	// Err is what the server or the network said last.
	Err error

	// For is how long the policies were in force; zero while Degraded.
	For time.Duration

	// Partly says that the event is about an outage that is not total: the server answers,
	// but not to all calls, and the policies decide where it does not. Err and For are as
	// above, and Part is 0.
	Partly bool

	// Share is how many of the calls failed lately, from 0 to 1, where Partly.
	Share float64
}

// log is what is done with events by default.
func (e Event) log() {
	if e.Partly {
		e.logPartly()
		return
	}
	if e.Degraded {
		slog.Warn("weir: the store's server gives no answer, so the rules' OnOutage policies decide",
			"code", "weir-degraded", "part", e.Part, "error", e.Err)
	} else {
		slog.Info("weir: the store's server is back", "code", "weir-recovered", "part", e.Part, "after", e.For)
	}
}

// news tells a hook of events in their order, in a goroutine that ends with the last.
// So the order needs no lock around the hook, and no request waits for it.
type news struct {
	hook func(Event)

	mu      sync.Mutex
	waiting []Event
	telling bool
}

func (n *news) tell(e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, e)
	if !n.telling {
		n.telling = true
		go n.tellAll()
	}
}

func (n *news) tellAll() {
	for e, ok := n.next(); ok; e, ok = n.next() {
		n.tellOne(e)
	}
}

func (n *news) next() (e Event, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == 0 {
		n.telling, n.waiting = false, nil
		return e, false
	}
	e, n.waiting = n.waiting[0], n.waiting[1:]
	return e, true
}

// tellOne keeps a hook that panics from ending the program, of all moments in this one.
func (n *news) tellOne(e Event) {
	defer func() {
		if r := recover(); r != nil {
			slog.Error("weir: OnDegraded panicked", "code", "weir-hook-panic", "panic", fmt.Sprint(r))
		}
	}()
	n.hook(e)
}
