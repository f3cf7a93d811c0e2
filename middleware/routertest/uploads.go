package routertest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/weirgo/weir/middleware"
)

// forms parses forms with a file, in handlers and in a key function.
func forms(s *suite) {
	form := &bytes.Buffer{}
	parts := multipart.NewWriter(form)
	file, err := parts.CreateFormFile("file", "f")
	must(s, err, "a form")
	_, _ = file.Write(make([]byte, 1000))
	must(s, parts.Close(), "a form")
	dir := s.TempDir()
	s.Setenv("TMPDIR", dir)
	left := func() int {
		files, err := os.ReadDir(dir)
		if err != nil {
			s.Errorf("files on disk: %v", err)
		}
		return len(files)
	}
	parse := func(r *http.Request) error { return r.ParseMultipartForm(0) }
	byPath := func(r *http.Request) (string, error) { return r.URL.Path, nil }
	rule := middleware.Rule{Name: "some", Key: byPath, Limit: perHour(1)}
	counted, parsing := rule, rule
	counted.Counts = middleware.Not(middleware.Statuses(404))
	parsing.Key = func(r *http.Request) (string, error) { return r.URL.Path, parse(r) }
	for name, limit := range map[string]Limit{
		"the same request": limits(middleware.Config{Rules: []middleware.Rule{rule}}),
		"a copy":           rules(rule),
		"a watched answer": rules(counted),
		"parsed for a key": rules(parsing),
	} {
		upload := func(_ http.ResponseWriter, r *http.Request) {
			if err := parse(r); err != nil || left() == 0 {
				s.Errorf("%s: parsed with error %v and %d files on disk, want none and a file", name, err, left())
			}
			if strings.HasPrefix(r.URL.Path, "/panic") {
				panic("on purpose")
			}
		}
		routes := []Route{{Method: "POST", Path: "/{dir}/upload", Handler: upload}}
		paths := []string{"/a/upload", "/a%20%62/upload", "/panic/upload"}
		if s.router.KeepsRequest {
			routes = append(routes, Route{Method: "POST", Path: "/{dir}/replaced", Handler: upload, Context: (*http.Request).Context})
			paths = append(paths, "/a/replaced")
		}
		server := s.serve(app([]Limit{limit}, routes...))
		for _, path := range paths {
			for i, want := range []int{200, 429} {
				a, err := server.try(server.request("POST "+path,
					"Content-Type: "+parts.FormDataContentType(), "Body: "+form.String()))
				if path != "/panic/upload" || i == 1 { // a panic ends the connection
					must(s, err, name+", "+path)
					equal(s, want, a.StatusCode, name+", "+path)
				}
				equal(s, 0, left(), name+", "+path+": files on disk")
			}
		}
	}
}

// refusedUploads sends bodies as proxies and clients do: they read only when the whole body is sent.
func refusedUploads(s *suite) {
	deny := limits(middleware.Config{Rules: []middleware.Rule{{Name: "all", Mode: middleware.Deny}}})
	answers := []Limit{deny}
	if s.router.OnRefused {
		deny.OnRefused = func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) error {
			_, err := io.WriteString(w, "ours")
			return err
		}
		answers = append(answers, deny)
	}
	for _, limit := range answers {
		server := s.serve(app(nil, Route{Path: "/", Handler: say("home"), Limits: []Limit{limit}}))
		for what, test := range map[string]struct {
			head         string
			length, sent int
		}{
			"nginx":        {"1.0\r\nConnection: close", 1 << 20, 1 << 20},
			"a proxy":      {"1.1", 1 << 20, 1 << 20},
			"small bodies": {"1.1", 100, 100},
			"a client that does not wait for the 100": {"1.1\r\nExpect: 100-continue", 5000000, 4096},
		} {
			c, err := net.Dial("tcp", strings.TrimPrefix(server.url, "http://"))
			must(s, err, what)
			s.Cleanup(func() { _ = c.Close() })
			must(s, c.SetDeadline(time.Now().Add(30*time.Second)), what) // only ends a broken test
			for read, request := bufio.NewReader(c), 1; request <= 3; request++ {
				_, err = fmt.Fprintf(c, "POST / HTTP/%s\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s",
					test.head, test.length, strings.Repeat("x", test.sent))
				must(s, err, what)
				answer, err := http.ReadResponse(read, nil)
				must(s, err, what)
				body, err := io.ReadAll(answer.Body)
				must(s, err, what)
				equal(s, 403, answer.StatusCode, what)
				equal(s, false, len(body) == 0, what+": no body")
				if answer.Close {
					_, err = io.Copy(io.Discard, read)
					must(s, err, what+": the connection is not reset")
				}
				if answer.Close || test.sent < test.length {
					break
				}
			}
		}
	}
}

// ownAnswers has applications answer refusals by the adapter's OnRefused.
func ownAnswers(s *suite) {
	for name, test := range map[string]struct {
		status, want int
		text         string
		err          error
	}{
		"a status": {418, 418, "short", nil},
		"a body":   {0, 429, "slower", nil},
		"nothing":  {0, 429, "", nil},
		"an error": {0, 500, "", errors.New("ours")},
	} {
		if test.err != nil && !s.router.ReturnsErrors {
			continue
		}
		seen, limit := make(chan int, 2), named("all", 1)
		limit.OnRefused = func(w http.ResponseWriter, r *http.Request, result middleware.Result) error {
			equal(s, "/ all 429", fmt.Sprint(r.URL.Path, " ", result.Rule, " ", result.Status), "the request and its result")
			if test.status != 0 {
				w.WriteHeader(test.status)
			}
			if test.text != "" {
				_, _ = io.WriteString(w, test.text)
			}
			return test.err
		}
		with := app([]Limit{limit}, get("/", say("home")))
		with.OnStatus = func(status int) { seen <- status }
		with.OnError = func(w http.ResponseWriter, err error) {
			equal(s, test.err, err, "the error")
			w.WriteHeader(http.StatusInternalServerError)
		}
		server := s.serve(with)
		server.wantStatus(200, "the first passes", "GET /")
		a := server.wantStatus(test.want, name, "GET /")
		equal(s, test.text, a.body, name)
		checkRefusal(s, a)
		equal(s, 200, receive(s, seen, "a status"), "the status that the router's middleware sees")
		if test.err == nil { // an error is answered in front of all middleware
			equal(s, test.want, receive(s, seen, "a status"), "the status that the router's middleware sees: "+name)
		}
	}
}
