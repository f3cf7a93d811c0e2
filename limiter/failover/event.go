package failover

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// An Event says that the policies have come into force, or no longer are.
type Event struct {
	// Degraded says which of the two.
	Degraded bool

	// Part is the part of the store that it is about, as the store numbers them; 0 for a
	// store that has one. Of a server that has several parts it is the first that failed.
	Part int

	// Server is the address of that server, or of those that the part is on, as far as the
	// store knows it.
	Server string

	// Err is what the server or the network said last.
	Err error

	// Unusable says that by Err the server cannot do what the store needs, such as run a
	// script: a wrong configuration, which does not pass by itself as outages do.
	Unusable bool

	// For is how long it was until the first part of the server answered; zero while Degraded.
	For time.Duration
}

// log is what is done with events by default. That a server is unusable has been said.
func (e Event) log() {
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
	down    []downServer
	unfit   time.Time // when a server was last found unusable; zero: in no outage
	unfits  uint64    // the parts that have policies in force for that
}

// A downServer is one whose policies are in force for some parts.
type downServer struct {
	server string // its address, or those that the part is on
	part   int    // the first
	parts  uint64 // that have not answered since
	began  time.Time
	isBack bool // a part has answered: that the others do is no news
}

// isSame reports whether two texts have an address in common.
func isSame(a, b string) bool {
	others := strings.Split(b, ", ")
	return a != "" && slices.ContainsFunc(strings.Split(a, ", "), func(addr string) bool { return slices.Contains(others, addr) })
}

// tell has an event told. What the store finds out about it may take a second, for each of
// the parts of a server that is gone, so it is found out at once.
func (n *news) tell(e notice) {
	e.at = time.Now()
	if n.diagnose != nil {
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
		if n.isOfServer(&e) {
			n.remember(Told{e.Event, e.at})
			n.hook(e.Event)
		}
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
		n.mended(bit)
	}
}

func (n *news) mended(parts uint64) {
	if n.unfits &^= parts; n.unfits == 0 {
		n.unfit = time.Time{}
	}
}

// isOfServer reports whether e begins or ends the outage of a server, and not only of one more of
// its parts: one that hangs has a third of all. The first part to answer ends it, as others may
// have no request to find that out for long. A server without a name has one part.
func (n *news) isOfServer(e *notice) bool {
	bit := uint64(1) << e.Part
	i := slices.IndexFunc(n.down, func(o downServer) bool { return o.parts&bit != 0 || e.Degraded && isSame(o.server, e.Server) })
	if i < 0 {
		if e.Degraded {
			n.down = append(n.down, downServer{server: e.Server, part: e.Part, parts: bit, began: e.at})
		}
		return true
	}
	o := &n.down[i]
	if e.Degraded {
		isNew := o.isBack
		if isNew {
			o.server, o.part, o.began, o.isBack = e.Server, e.Part, e.at, false
		}
		o.parts |= bit
		return isNew
	}
	isEnd := !o.isBack
	if isEnd {
		e.Part, e.For = o.part, e.at.Sub(o.began)
		o.isBack = true
		n.mended(o.parts)
	}
	if o.parts &^= bit; o.parts == 0 {
		n.down = slices.Delete(n.down, i, i+1)
	}
	return isEnd
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
	for known, last := range n.failing {
		if isSame(known, name) && now.Sub(last) < quiet {
			return
		}
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
