package dashboard

import (
	"bytes"
	"errors"
	"net/http"
	"time"
)

const (
	streamLife = 5 * time.Minute  // after which a browser comes again, and is asked who it is
	writeWait  = 10 * time.Second // for a browser that reads slowly
)

// stream sends the state, and then what is new, once a second, until the request ends. All
// of it happens in the request's goroutine.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request) {
	if d.streams.Add(1) > int64(d.options.MaxStreams) {
		d.streams.Add(-1)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "As many pages are open as may be (dashboard.Options.MaxStreams).", http.StatusServiceUnavailable)
		return
	}
	defer d.streams.Add(-1)

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
		case <-next.C:
		}
		var event []byte
		event, version, second = d.event(version, second)
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
func (d *Dashboard) event(version int, second int64) (event []byte, _ int, _ int64) {
	l := d.look()
	defer l.Unlock()
	name, data := "tick", l.tick
	if l.version != version || l.state.Second > second+1 {
		name, data = "state", d.marshal(l.state)
	}
	var b bytes.Buffer
	b.Grow(len(data) + 64)
	b.WriteString("retry: 1000\nevent: " + name + "\ndata: ")
	b.Write(data) // which has no line break, being JSON
	b.WriteString("\n\n")
	return b.Bytes(), l.version, l.state.Second
}
