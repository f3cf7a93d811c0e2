package failover

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// An Event is the beginning or the end of an outage.
type Event struct {
	// Degraded reports that an outage began: the policies decide from now on. If it is false, the
	// server answers again.
	Degraded bool

	// At is when the Store noticed it.
	At time.Time

	// Part is the number by which the store knows the server ([Servers]), or 0 for a store with one
	// server. If one server has several numbers, Part is the number that failed first.
	Part int

	// Server is the address of the server, if the store knows it, or several addresses.
	Server string

	// Err is what the server or the network said last.
	Err error

	// Unusable says that the server cannot do what the store needs, such as run a script. This
	// is a wrong configuration, and it does not pass by itself as outages do.
	Unusable bool

	// For is how long the outage lasted, until the server answered again. It is zero while
	// Degraded.
	For time.Duration
}

// log is the default for OnDegraded.
func (e Event) log() {
	if e.Degraded {
		slog.Warn("weir: the store's server fails, so the rules' OnOutage policies decide",
			e.attrs("weir-degraded", slog.Any("error", e.Err))...)
	} else {
		slog.Info("weir: the store's server is back", e.attrs("weir-recovered", slog.Duration("after", e.For))...)
	}
}

// logFirst logs the first failure in a while.
func (e Event) logFirst() {
	cause := slog.Any("error", e.Err)
	if e.Unusable {
		slog.Error("weir: the store's server cannot do what Weir needs: a wrong configuration; until it is fixed the rules' OnOutage policies decide",
			e.attrs("weir-store-unusable", cause)...)
	} else {
		slog.Warn("weir: a call to the store's server failed: the rules' OnOutage policies decide", e.attrs("weir-call-failed", cause)...)
	}
}

// attrs returns the attributes of every record about e, and last. The number of a part tells an
// operator nothing if the server has a name, or if there is one server.
func (e Event) attrs(code string, last slog.Attr) []any {
	attrs := []any{slog.String("code", code)}
	switch {
	case e.Server != "":
		attrs = append(attrs, slog.String("server", e.Server))
	case e.Part > 0:
		attrs = append(attrs, slog.Int("part", e.Part))
	}
	return append(attrs, last)
}

// A notice is an event for the hook, or a first failure, which is logged with or without a
// hook.
type notice struct {
	Event
	isFirst bool // a failure, the first in a while
	part    *part
}

// quiet is the time without a failure after which a failure counts as the first.
const quiet = time.Minute

// news calls the hook for events in their order, in a goroutine that ends after the last event.
// So the order needs no lock around the hook, and no request waits for it.
type news struct {
	hook     func(Event)
	diagnose func(part int, err error) (server string, _ error) // the store's

	mu      sync.Mutex
	waiting []notice
	telling bool
	told    []Event // the last ones: see Stats.Events

	reports map[string]*report // by server; only the goroutine that tells uses it
}

// A report is what was reported about a server.
type report struct {
	failed, unusable time.Time // when a first failure was last heard of, and one as unusable
	outage           Event     // its beginning
	parts            uint64    // that are known to be degraded in it; 0: the server is up
}

// tell queues a notice.
func (n *news) tell(e notice) {
	e.At = time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, e)
	if !n.telling {
		n.telling = true
		go n.tellAll()
	}
}

func (n *news) tellAll() {
	for {
		n.mu.Lock()
		if len(n.waiting) == 0 {
			n.telling, n.waiting = false, nil
			n.mu.Unlock()
			return
		}
		e := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.mu.Unlock()
		n.tellOne(&e)
	}
}

// tellOne reports one notice. A panic of the hook does not end the program. A diagnosis may
// take a second, so it is made once for a server and not for each of its parts.
func (n *news) tellOne(e *notice) {
	defer func() {
		if r := recover(); r != nil {
			slog.Error("weir: OnDegraded panicked", "code", "weir-hook-panic", "panic", fmt.Sprint(r))
		}
	}()
	e.Server, _ = n.examine(e.Part, nil)
	e.Unusable = isUnusable(e.Err)
	if !n.isNews(e) {
		return
	}
	if e.isFirst || e.Degraded {
		_, e.Err = n.examine(e.Part, e.Err)
		e.part.learn(e.Err)
	}
	if e.isFirst {
		e.logFirst()
		return
	}
	n.remember(e.Event)
	n.hook(e.Event)
}

// isNews reports whether e says something new about its server: a failure of its kind that is the
// first in a while, or the beginning or the end of an outage. A server that hangs may have a third
// of all parts. The first part that answers ends the outage, because other parts may get no
// request for long.
func (n *news) isNews(e *notice) bool {
	if !e.isFirst && !e.Degraded {
		return n.isEnd(e)
	}
	r := n.reportOn(cmp.Or(e.Server, fmt.Sprint(e.Part)))
	if e.isFirst {
		last := &r.failed
		if e.Unusable {
			last = &r.unusable
		}
		isFirst := e.At.Sub(*last) >= quiet
		*last = e.At
		return isFirst
	}
	isBeginning := r.parts == 0
	if isBeginning {
		r.outage = e.Event
	}
	r.parts |= 1 << e.Part
	return isBeginning
}

// isEnd is isNews for a part that answers. The server that answers may be another one, which took
// over.
func (n *news) isEnd(e *notice) bool {
	for name, r := range n.reports {
		if r.parts&(1<<e.Part) != 0 {
			e.Part, e.For = r.outage.Part, e.At.Sub(r.outage.At)
			delete(n.reports, name) // what fails next is another outage
			return true
		}
	}
	return false // another part answered before
}

// reportOn returns what was reported about a server.
func (n *news) reportOn(server string) *report {
	const most = 1024 // servers come and go
	if len(n.reports) >= most {
		maps.DeleteFunc(n.reports, func(_ string, r *report) bool { return r.parts == 0 })
	}
	if n.reports[server] == nil {
		n.reports[server] = &report{}
	}
	return n.reports[server]
}

// remember keeps the last events.
func (n *news) remember(e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.told) == eventsKept {
		n.told = slices.Delete(n.told, 0, 1)
	}
	n.told = append(n.told, e)
}

const eventsKept = 16

func (n *news) events() []Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.told)
}

// examine asks the store for the address of a server, and for more about its failure.
func (n *news) examine(part int, err error) (server string, found error) {
	if panicked := survive(func() error { server, found = n.diagnose(part, err); return nil }); panicked != nil || found == nil {
		found = err
	}
	return server, found
}
