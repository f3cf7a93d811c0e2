package routertest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/middleware"
)

// events flushes in both ways. The next event begins when the client has the one before.
func events(s *suite) {
	seen := make(chan string, 10)
	service := service{make(chan bool, 100), make(chan bool, 10)}
	overload := limits(middleware.Config{Overload: service})
	server := s.serve(app([]Limit{named("all", 100), overload}, get("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 4 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if i%2 == 0 {
				w.(http.Flusher).Flush()
			} else {
				must(s, http.NewResponseController(w).Flush(), "flush")
			}
			equal(s, i+1, len(service.streams), "the slot learns of each flush, which goes through the limiter's writer")
			select {
			case got := <-seen:
				equal(s, fmt.Sprintf("data: %d", i), got, "what the client saw")
			case <-r.Context().Done():
				s.Errorf("the client went away before it saw event %d", i)
				return
			}
		}
	}, named("route", 10))))
	response, err := server.client.Do(server.request("GET /events"))
	must(s, err, "GET /events")
	equal(s, "all, route", saying(response.Header, false), "the fields come with the first event")
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if lines.Text() != "" {
			seen <- lines.Text()
		}
	}
	must(s, lines.Err(), "read events")
	must(s, response.Body.Close(), "close the events")
}

// sameResponseWriter compares the ResponseWriter of a handler without a limit, with a limit, and with a limit that
// awaits the end of the request.
func sameResponseWriter(s *suite) {
	probe := func(w http.ResponseWriter, _ *http.Request) {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		_, copies := w.(io.ReaderFrom)
		_, writes := w.(io.StringWriter)
		_, notifies := w.(interface{ CloseNotify() <-chan bool })
		c, soon := http.NewResponseController(w), time.Now().Add(time.Hour)
		said := fmt.Sprintf("%T Flusher=%t Hijacker=%t ReaderFrom=%t StringWriter=%t CloseNotifier=%t", w, flushes, hijacks, copies, writes, notifies)
		said += fmt.Sprintf(" ReadDeadline=%t WriteDeadline=%t FullDuplex=%t Flush=%t", c.SetReadDeadline(soon) == nil,
			c.SetWriteDeadline(soon) == nil, c.EnableFullDuplex() == nil, c.Flush() == nil)
		_, _ = io.Copy(w, strings.NewReader(said)) // through ReaderFrom if w has it
	}
	can := func(outer []Limit, limits ...Limit) []string {
		return strings.Fields(s.serve(app(outer, get("/", probe, limits...))).ask("GET /").body)
	}
	without := can(nil)
	limited := can([]Limit{named("all", 50)}, named("route", 20))
	equal(s, without, limited, "the type of the ResponseWriter, and what it can do, with a limit")
	watched := can([]Limit{rules(login(5)), rules(login(7))}, rules(login(3)))
	for _, what := range without[1:] {
		if strings.HasSuffix(what, "=true") && !slices.Contains(watched, what) {
			s.Errorf("the ResponseWriter has not %s with a limit that awaits the end of the request", what)
		}
	}
}

func upgrade(s *suite) {
	server := s.serve(app([]Limit{named("all", 1)}, get("/socket", func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			s.Errorf("hijack: %v", err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		fmt.Fprint(conn, "echo "+line)
	}, named("route", 5))))
	shake := []string{"Connection: Upgrade", "Upgrade: websocket"}
	response, err := server.client.Do(server.request("GET /socket", shake...))
	must(s, err, "the handshake")
	equal(s, http.StatusSwitchingProtocols, response.StatusCode, "status of the handshake")
	equal(s, "websocket", response.Header.Get("Upgrade"), "Upgrade")
	conn := response.Body.(io.ReadWriteCloser)
	defer conn.Close()
	fmt.Fprint(conn, "hello\n")
	echo, err := io.ReadAll(conn)
	must(s, err, "read the echo")
	equal(s, "echo hello\n", string(echo), "all that is read: the limiter writes nothing to a hijacked connection")
	receive(s, server.ends, "the end of the handshake's request")
	checkRefusal(s, server.wantStatus(429, "a handshake counts like a request", "GET /socket", shake...))
}

// A service is an Overload that admits every request, and reports its slots' events.
type service struct {
	waits   chan bool // a handler begins to wait for its client
	streams chan bool // a handler has flushed
}

func (s service) Admit(*http.Request) (middleware.Slot, time.Duration) { return s, 0 }
func (s service) Leave()                                               {}
func (s service) Streams(bool)                                         { s.streams <- true }

func (s service) Waits(begins bool) {
	if begins {
		s.waits <- true
	}
}

func slotsKnowOfSlowClients(s *suite) {
	service := service{make(chan bool, 100), make(chan bool, 10)}
	server := s.serve(app([]Limit{limits(middleware.Config{Overload: service})}, Route{Method: "POST", Path: "/",
		Handler: func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			must(s, err, "read")
			for len(service.waits) > 0 {
				<-service.waits
			}
			_, _ = io.WriteString(w, "x")
			equal(s, false, len(service.waits) == 0, "the slot learns that its handler waits for the client to read")
		}}))
	body, send := io.Pipe()
	go func() {
		defer send.Close()
		receive(s, service.waits, "the handler to wait for its client")
	}()
	r := server.request("POST /")
	r.Body, r.ContentLength = body, -1
	a, err := server.try(r)
	must(s, err, "POST /")
	equal(s, "x", a.body, "body")
}
