package routertest

import (
	"io"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
)

// A service is an Overload that admits every request, or none, and tells what it hears.
type service struct {
	full   bool
	waits  chan bool // that a handler begins to wait for its client
	heard  chan string
	flying chan struct{} // one for each place that is held
}

func newService() *service {
	return &service{waits: make(chan bool, 100), heard: make(chan string, 8), flying: make(chan struct{}, 8)}
}

func (s *service) Admit(*http.Request) (middleware.Place, time.Duration) {
	if s.full {
		return nil, 3 * time.Second
	}
	s.flying <- struct{}{}
	return placeIn{s}, 0
}

type placeIn struct{ *service }

func (p placeIn) Leave() {
	<-p.flying
	p.heard <- "left"
}

func (p placeIn) Waits(begins bool) {
	if begins {
		p.waits <- true
	}
}

func (p placeIn) Streams(detached bool) {
	if detached {
		p.heard <- "detached"
	} else {
		p.heard <- "flushed"
	}
}

func placesAreGivenBack(s *suite) {
	service := newService()
	in := func(do func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if len(service.flying) != 1 {
				s.Errorf("%d places are held by one handler", len(service.flying))
			}
			do(w, r)
		}
	}
	server := s.serve(app([]Limit{limits(middleware.Config{Overload: service})},
		get("/", in(func(http.ResponseWriter, *http.Request) {})),
		get("/flush", in(func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() })),
		get("/control", in(func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() })),
		get("/panic", in(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))))
	for _, test := range []struct {
		path string
		want []string
	}{{"/", []string{"left"}}, {"/flush", []string{"flushed", "left"}}, {"/control", []string{"flushed", "left"}}, {"/panic", []string{"left"}}} {
		response, err := server.try(server.request(s.Context(), "GET "+test.path))
		if err == nil && response.StatusCode == 404 {
			s.Fatalf("%s is not found", test.path)
		}
		for _, want := range test.want {
			require.Equal(s, want, receive(s.T, service.heard, test.path+": "+want))
		}
	}
	require.Empty(s, service.flying) // of what was aborted a client may ask twice, and so be heard twice
}

func upgradeHoldsNoPlace(s *suite) {
	service := newService()
	server := s.serve(app([]Limit{limits(middleware.Config{Overload: service})},
		get("/", func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				s.Errorf("hijack: %v", err)
				return
			}
			_, _ = rw.WriteString("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			_ = rw.Flush()
			_ = conn.Close()
		})))
	_, _ = server.try(server.request(s.Context(), "GET /"))
	require.Equal(s, "detached", receive(s.T, service.heard, "the connection to be taken over"))
	require.Equal(s, "left", receive(s.T, service.heard, "the handler to return"))
}

func placesKnowOfSlowClients(s *suite) {
	service := newService()
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
				s.Error("a place is not told that its handler waits to be read from")
			}
		}}))
	body, send := io.Pipe()
	go func() {
		receive(s.T, service.waits, "the handler to wait for its client")
		_ = send.Close()
	}()
	r := server.request(s.Context(), "POST /")
	r.Body = body
	a, err := server.try(r)
	require.NoError(s, err)
	require.Equal(s, "x", a.body)
}
