package middleware

import (
	"net/http"

	"github.com/weirgo/weir/internal/answer"
	"github.com/weirgo/weir/internal/response"
)

// unknownStatus stands for a status that is unknown. Such an answer counts, and leads to no ban.
const unknownStatus = 0

// await makes v the context of its request, until the handlers have returned. It returns what they get.
func (v *visit) await(w http.ResponseWriter) (http.ResponseWriter, *http.Request) {
	v.Context = v.request.Context()
	v.handled = *v.request.WithContext(v)
	if !v.watches {
		v.answered.ResponseWriter = w // for CountAs
		return w, &v.handled
	}
	w = v.answered.Watch(w)
	if v.waiter != nil { // without a watcher, files are sent as without Weir
		v.answered.Watcher = v
	}
	response.WatchBody(&v.handled, v)
	return w, &v.handled
}

// finish ends the request.
func (v *visit) finish(status int) {
	if !v.watches {
		status = unknownStatus
	} else {
		status = answer.StatusOf(v.answered.Status(status), v.answered.Header())
	}
	parts := v.parts
	v.parts = nil // so that a copy of the Entered ends nothing again
	for _, f := range parts {
		if f.end != nil {
			status = f.end(v, status)
		}
	}
}

// Streams implements [response.Watcher].
func (v *visit) Streams(detached bool) {
	if v.waiter != nil {
		v.waiter.Streams(detached)
	}
}

// Waits implements [response.Watcher].
func (v *visit) Waits(begins bool) {
	if v.waiter != nil {
		v.waiter.Waits(begins)
	}
}

// Body implements [response.Watcher].
func (v *visit) Body() *response.Body { return &v.body }
