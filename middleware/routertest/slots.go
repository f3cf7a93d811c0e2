package routertest

import (
	"io"
	"net/http"
	"time"

	"github.com/weirgo/weir/middleware"
)

// A service is an Overload that admits every request, and reports its slots' events.
type service struct {
	waits chan bool // a handler begins to wait for its client
	left  chan bool // a handler has returned
}

func (s service) Admit(*http.Request) (middleware.Slot, time.Duration) { return s, 0 }
func (s service) Leave()                                               { s.left <- true }
func (s service) Streams(bool)                                         {}

func (s service) Waits(begins bool) {
	if begins {
		s.waits <- true
	}
}

func slotsKnowOfSlowClients(s *suite) {
	service := service{make(chan bool, 100), make(chan bool, 1)}
	server := s.serve(app([]Limit{limits(middleware.Config{Overload: service})}, Route{Method: "POST", Path: "/",
		Handler: func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				s.Errorf("read: %v", err)
			}
			for len(service.waits) > 0 {
				<-service.waits
			}
			_, _ = io.WriteString(w, "x")
			if len(service.waits) == 0 {
				s.Error("the slot did not learn that its handler waits for the client to read")
			}
		}}))
	body, send := io.Pipe()
	go func() {
		receive(s, service.waits, "the handler to wait for its client")
		_ = send.Close()
	}()
	r := server.request(s.Context(), "POST /")
	r.Body = body
	a, err := server.try(r)
	must(s, err, "POST /")
	equal(s, "x", a.body, "body")
	receive(s, service.left, "the slot to be released")
}
