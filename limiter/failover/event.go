package failover

import (
	"fmt"
	"log/slog"
	"slices"
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

	// Server is the address of that server, or of those that the part is on, as far as the
	// store knows it.
	Server string

	// Err is what the server or the network said last.
	Err error

	// Unusable says that by Err the server cannot do what the store needs, such as run a
	// script: a wrong configuration, which does not pass by itself as outages do.
	Unusable bool

	// For is how long the policies were in force; zero while Degraded.
	For time.Duration

	// Partly says that the event is about an outage that is not total: the server answers,
	// but not to all calls, and the policies decide where it does not. Err and For are as
	// above, and Part is 0.
	Partly bool

	// Share is how many of the calls failed lately, from 0 to 1, where Partly.
	Share float64
}

// log is what is done with events by default. That a server is unusable has been said.
func (e Event) log() {
	if e.Partly {
		e.logPartly()
		return
	}
	switch {
	case !e.Degraded:
		slog.Info("weir: the store's server is back", e.attrs("weir-recovered", slog.Duration("after", e.For))...)
	case !e.Unusable:
		slog.Warn("weir: the store's server "+kindOf(e.Err).verb()+", so the rules' OnOutage policies decide",
			e.attrs("weir-degraded", slog.Any("error", e.Err))...)
	}
}

// attrs are what every record of e has, and one more.
func (e Event) attrs(code string, last slog.Attr) []any {
	attrs := []any{slog.String("code", code), slog.Int("part", e.Part)}
	if e.Server != "" {
		attrs = append(attrs, slog.String("server", e.Server))
	}
	return append(attrs, last)
}

// A Told is an event that OnDegraded was told of.
type Told struct {
	Event
	At time.Time // when it was found out
}

// A notice is an event, or what is logged whether there is a hook or not.
type notice struct {
	Event
	at    time.Time
	about subject
	part  *part
	found chan finding // nil: nothing is to be found out
}

// A finding is what a store says of a server.
type finding struct {
	server string
	err    error
}

type subject uint8

const (
	change       subject = iota // for the hook
	firstFailure                // none had failed for quiet
	wrongServer                 // an unusable one
)

// over tells that the policies are no longer in force.
func (n *notice) over() bool { return n.about == change && !n.Degraded }

// quiet is how long no call has failed before one is told of as the first.
const quiet = time.Minute

// news tells a hook of events in their order, in a goroutine that ends with the last.
// So the order needs no lock around the hook, and no request waits for it.
type news struct {
	hook     func(Event)
	diagnose func(part int, err error) (server string, _ error) // the store's, or nil

	mu      sync.Mutex
	waiting []notice
	telling bool
	told    []Told // the last ones: see Stats.Events

	// What has been said. Only the goroutine that tells touches it.
	failing map[string]time.Time // of a server, when its first failure was told
	unfit   time.Time            // when a server was last found unusable; zero: in no outage
	unfits  uint64               // the parts that have policies in force for that
}

// tell has an event told. What the store finds out about it may take a second, for each of
// the parts of a server that is gone, so it is found out at once.
func (n *news) tell(e notice) {
	e.at = time.Now()
	if n.diagnose != nil && !e.Partly {
		e.found = make(chan finding, 1)
		go func() {
			err := e.Err
			if e.over() {
				err = nil
			}
			server, err := n.examine(e.Part, err)
			e.found <- finding{server, err}
		}()
	}
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

func (n *news) next() (e notice, ok bool) {
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
func (n *news) tellOne(e notice) {
	defer func() {
		if r := recover(); r != nil {
			slog.Error("weir: OnDegraded panicked", "code", "weir-hook-panic", "panic", fmt.Sprint(r))
		}
	}()
	if e.Partly { // which is about no one server
		e.Unusable = kindOf(e.Err) == unusable
		n.remember(Told{e.Event, e.at})
		n.hook(e.Event)
		return
	}
	if e.found != nil {
		found := <-e.found
		e.Server = found.server
		if !e.over() {
			e.Err = found.err
			e.part.learn(e.Err)
		}
	}
	e.Unusable = kindOf(e.Err) == unusable
	switch e.about {
	case change:
		n.follow(&e)
		n.remember(Told{e.Event, e.at})
		n.hook(e.Event)
	case firstFailure:
		n.logFirst(e.Event)
	case wrongServer:
		isNew := n.unfits == 0 && (n.unfit.IsZero() || time.Since(n.unfit) >= quiet)
		n.unfit = time.Now()
		if isNew {
			slog.Error("weir: the store's server cannot do what Weir needs: a wrong configuration; until it is mended the rules' OnOutage policies decide",
				e.attrs("weir-store-unusable", slog.Any("error", e.Err))...)
		}
	}
}

// remember keeps the last events.
func (n *news) remember(e Told) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.told) == eventsKept {
		n.told = slices.Delete(n.told, 0, 1)
	}
	n.told = append(n.told, e)
}

const eventsKept = 16

func (n *news) events() []Told {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.told)
}

// follow keeps account of which parts are unusable, so that an outage of them is said once and
// the next one again.
func (n *news) follow(e *notice) {
	bit := uint64(1) << e.Part
	switch {
	case e.Degraded && e.Unusable:
		n.unfits |= bit
	case e.over():
		if n.unfits &^= bit; n.unfits == 0 {
			n.unfit = time.Time{}
		}
	}
}

// examine asks the store which server a failure is about and, of one that gave no answer,
// what else can be found out.
func (n *news) examine(part int, err error) (server string, found error) {
	if n.diagnose == nil {
		return "", err
	}
	if panicked := survive(func() error { server, found = n.diagnose(part, err); return nil }); panicked != nil || found == nil {
		found = err
	}
	return server, found
}

// logFirst logs the first failure of a server, which may be several parts'.
func (n *news) logFirst(e Event) {
	name := e.Server
	if name == "" {
		name = fmt.Sprint(e.Part)
	}
	now := time.Now()
	if last, ok := n.failing[name]; ok && now.Sub(last) < quiet {
		return
	}
	if n.failing == nil || len(n.failing) >= 1024 { // servers come and go
		n.failing = map[string]time.Time{}
	}
	n.failing[name] = now
	why := ""
	if k := kindOf(e.Err); k != unknown {
		why = ", as it " + k.verb()
	}
	slog.Warn("weir: a call to the store's server failed"+why+": the rules' OnOutage policies decide",
		e.attrs("weir-call-failed", slog.Any("error", e.Err))...)
}
