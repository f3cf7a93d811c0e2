package routertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

func events(s *suite) {
	for _, flush := range []struct {
		with string
		now  func(w http.ResponseWriter) error
	}{
		{"http.Flusher", func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil }},
		{"http.ResponseController", func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }},
	} {
		seen := make(chan string)
		server := s.serve(app([]Limit{perIP(perHour(100))},
			get("/events", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range 3 {
					fmt.Fprintf(w, "data: %d\n\n", i)
					if err := flush.now(w); err != nil {
						s.Errorf("flush with %s: %v", flush.with, err)
						return
					}
					// The next event begins when the client has this one.
					select {
					case got := <-seen:
						if want := fmt.Sprintf("data: %d", i); got != want {
							s.Errorf("the client saw %q, want %q", got, want)
						}
					case <-r.Context().Done():
						s.Errorf("the client went away before it saw event %d", i)
						return
					}
				}
			}, perIP(perHour(10)))))
		response, err := server.client.Do(server.request(s.Context(), "GET /events"))
		must(s, err, "GET /events")
		equal(s, 9, readFields(s, response.Header).remaining, "the fields come with the first event")
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			if lines.Text() != "" {
				seen <- lines.Text()
			}
		}
		must(s, lines.Err(), "read events")
		must(s, response.Body.Close(), "close the events")
	}
}

// sameResponseWriter compares the ResponseWriter of a handler without a limit, with a limit, and with a limit that
// awaits the end of the request.
func sameResponseWriter(s *suite) {
	probe := func(w http.ResponseWriter, _ *http.Request) {
		can := []string{}
		note := func(what string, ok bool) {
			if ok {
				can = append(can, what)
			}
		}
		_, ok := w.(http.Flusher)
		note("Flusher", ok)
		_, ok = w.(http.Hijacker)
		note("Hijacker", ok)
		_, ok = w.(io.ReaderFrom)
		note("ReaderFrom", ok)
		_, ok = w.(io.StringWriter)
		note("StringWriter", ok)
		_, ok = w.(interface{ CloseNotify() <-chan bool })
		note("CloseNotifier", ok)
		controller := http.NewResponseController(w)
		soon := time.Now().Add(time.Hour)
		note("SetReadDeadline", controller.SetReadDeadline(soon) == nil)
		note("SetWriteDeadline", controller.SetWriteDeadline(soon) == nil)
		note("EnableFullDuplex", controller.EnableFullDuplex() == nil)
		note("Flush", controller.Flush() == nil)
		said := fmt.Sprintf("%T ", w) + strings.Join(can, " ")
		_, _ = io.Copy(w, strings.NewReader(said)) // through ReaderFrom if w has it
	}
	can := func(outer []Limit, limits ...Limit) []string {
		return strings.Fields(s.serve(app(outer, get("/", probe, limits...))).ask("GET /").body)
	}
	without := can(nil)
	limited := can([]Limit{perIP(perHour(100)), named("all", 50)}, perIP(perHour(20)))
	equalLists(s, without, limited, "the type of the ResponseWriter, and what it can do, with a limit")
	watched := can([]Limit{rules(login(5)), rules(login(7))}, rules(login(3)))
	for _, what := range without[1:] {
		if !slices.Contains(watched, what) {
			s.Errorf("the ResponseWriter cannot %s with a limit that awaits the end of the request", what)
		}
	}
}

func upgrade(s *suite) {
	server := s.serve(app([]Limit{perIP(perHour(1))},
		get("/socket", func(w http.ResponseWriter, r *http.Request) {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				s.Errorf("hijack: %v", err)
				return
			}
			defer conn.Close()
			fmt.Fprint(buffered, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
				"Upgrade: "+r.Header.Get("Upgrade")+"\r\nSec-WebSocket-Accept: from the handler\r\n\r\n")
			_ = buffered.Flush()
			line, _ := buffered.ReadString('\n')
			fmt.Fprint(buffered, "echo "+line)
			_ = buffered.Flush()
		}, perIP(perHour(5)))))
	address := strings.TrimPrefix(server.url, "http://")
	shake := func() (*http.Response, net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", address)
		must(s, err, "dial")
		s.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", address)
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		must(s, err, "handshake")
		return response, conn, reader
	}
	response, conn, reader := shake()
	equal(s, http.StatusSwitchingProtocols, response.StatusCode, "status of the handshake")
	equal(s, "websocket", response.Header.Get("Upgrade"), "Upgrade")
	equal(s, "from the handler", response.Header.Get("Sec-WebSocket-Accept"), "Sec-WebSocket-Accept")
	fmt.Fprint(conn, "hello\n")
	line, err := reader.ReadString('\n')
	must(s, err, "read the echo")
	equal(s, "echo hello\n", line, "the echo")
	if _, err = reader.ReadByte(); !errors.Is(err, io.EOF) {
		s.Errorf("after the echo: error %v, want EOF: the limiter writes nothing to a hijacked connection", err)
	}

	response, _, _ = shake()
	equal(s, http.StatusTooManyRequests, response.StatusCode, "a handshake counts like a request: status")
	if response.Header.Get("Retry-After") == "" {
		s.Error("a refused handshake has no Retry-After")
	}
}
