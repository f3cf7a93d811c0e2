package dashboard

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	streamLife = 5 * time.Minute  // after which a browser comes again, and Authorize is asked again
	writeWait  = 10 * time.Second // for a browser that reads slowly
)

// A viewer has the page open, or waits for another's stream to end.
type viewer struct {
	acts      bool          // may do more than look
	displaced chan struct{} // closed when a newer viewer has its place
}

// viewers are those of all streams. Of what is served at once, slots are the bound: one that
// was displaced keeps its slot until its last write is over.
type viewers struct {
	slots chan struct{}

	mu   sync.Mutex
	list []*viewer // the oldest first; as many as there are slots at most
}

func newViewers(most int) *viewers { return &viewers{slots: make(chan struct{}, most)} }

// full reports whether the next viewer displaces one, or finds no place.
func (v *viewers) full() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.list) == cap(v.slots)
}

// enter gives a viewer a place. If there is none, it displaces the oldest viewer that may only
// look or, if all may act and this one too, the oldest of all.
func (v *viewers) enter(acts bool) (*viewer, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.list) == cap(v.slots) {
		oldest := slices.IndexFunc(v.list, func(other *viewer) bool { return !other.acts })
		if oldest < 0 && !acts {
			return nil, false
		}
		oldest = max(oldest, 0)
		close(v.list[oldest].displaced)
		v.list = slices.Delete(v.list, oldest, oldest+1)
	}
	entered := &viewer{acts, make(chan struct{})}
	v.list = append(v.list, entered)
	return entered, true
}

// leave is for every viewer that entered.
func (v *viewers) leave(gone *viewer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = slices.DeleteFunc(v.list, func(other *viewer) bool { return other == gone })
}

// mayAct asks Authorize whether the viewer might also act.
func (d *Dashboard) mayAct(r *http.Request) bool {
	act := r.WithContext(r.Context())
	act.Method = http.MethodPost
	return d.options.Authorize(act)
}

// noPlace is the answer to a page for which there is none.
func noPlace(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "60")
	http.Error(w, "As many pages are open as may be (dashboard.Options.MaxStreams).", http.StatusServiceUnavailable)
}

// closedEvent tells a page that a newer one has its place. It does not come back by itself at
// once: two pages would displace each other for ever. A client that does waits for a minute.
const closedEvent = "retry: 60000\nevent: closed\ndata: {}\n\n"

// stream sends the state, and then what is new, once a second, until the request ends or a
// newer stream takes its place. All of it happens in the request's goroutine.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request) {
	acts := d.mayAct(r)
	viewer, ok := d.viewers.enter(acts)
	if !ok {
		noPlace(w)
		return
	}
	defer d.viewers.leave(viewer)
	select {
	case d.viewers.slots <- struct{}{}:
		defer func() { <-d.viewers.slots }()
	case <-viewer.displaced:
		noPlace(w)
		return
	case <-r.Context().Done():
		return
	case <-d.closed:
		return
	}

	answer := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // or nginx would keep the stream to itself
	if err := answer.Flush(); errors.Is(err, http.ErrNotSupported) {
		http.Error(w, "A middleware in front of this page takes its stream away: its ResponseWriter can't flush.", http.StatusInternalServerError)
		return
	}
	defer answer.SetWriteDeadline(time.Time{}) // the connection may serve others

	end := time.NewTimer(streamLife)
	defer end.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	version, second := 0, int64(-1)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-d.closed:
			return
		case <-end.C:
			return
		case <-viewer.displaced:
			_ = answer.SetWriteDeadline(time.Now().Add(writeWait))
			_, _ = io.WriteString(w, closedEvent)
			_ = answer.Flush()
			return
		case <-next.C:
		}
		var event []byte
		event, version, second = d.event(version, second, acts)
		_ = answer.SetWriteDeadline(time.Now().Add(writeWait)) // where it can be set
		if _, err := w.Write(event); err != nil {
			return
		}
		if answer.Flush() != nil {
			return
		}
		next.Reset(d.untilNext())
	}
}

// untilNext is when the next second begins.
func (d *Dashboard) untilNext() time.Duration {
	return time.Second - time.Since(d.start)%time.Second + time.Millisecond
}

// event is what a page that knows the rows of that version and the counts up to that
// second is to be told.
func (d *Dashboard) event(version int, second int64, acts bool) (event []byte, _ int, _ int64) {
	l := d.look()
	defer l.Unlock()
	name, data := "tick", l.tick
	if l.version != version || l.state.Second > second+1 {
		name, data = "state", d.marshal(l.state, acts)
	}
	var b bytes.Buffer
	b.Grow(len(data) + 64)
	b.WriteString("retry: 1000\nevent: " + name + "\ndata: ")
	b.Write(data) // which has no line break, being JSON
	b.WriteString("\n\n")
	return b.Bytes(), l.version, l.state.Second
}
