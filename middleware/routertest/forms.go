package routertest

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/weirgo/weir/limiter"
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
	parse := func(r *http.Request) error { return r.ParseMultipartForm(0) }

	byPath := func(r *http.Request) (string, error) { return r.URL.Path, nil }
	always := middleware.Rule{Name: "some", Key: byPath, Limit: perHour(1)}
	with := func(change func(*middleware.Rule)) middleware.Rule {
		rule := always
		change(&rule)
		return rule
	}
	parsing := func(r *http.Request) (string, error) { return r.URL.Path, parse(r) }
	one := func(*http.Request) int64 { return 1 }
	busy := service{make(chan bool, 1000), make(chan bool, 1000)}
	for name, limit := range map[string]Limit{
		"the result":       rules(always),
		"counted":          rules(with(func(r *middleware.Rule) { r.Counts = middleware.Not(middleware.Statuses(404)) })),
		"reserved":         rules(with(func(r *middleware.Rule) { r.Cost = middleware.Reserve(one) })),
		"a slot":           rules(with(func(r *middleware.Rule) { r.Limit = limiter.All(r.Limit, limiter.AtOnce(9)) })),
		"overload":         limits(middleware.Config{Rules: []middleware.Rule{always}, Overload: busy}),
		"parsed for a key": rules(with(func(r *middleware.Rule) { r.Key = parsing })),
		"results":          limits(middleware.Config{Rules: []middleware.Rule{always}, Results: true}),
	} {
		dir := s.TempDir()
		s.Setenv("TMPDIR", dir)
		left := func() int {
			files, err := os.ReadDir(dir)
			if err != nil {
				s.Errorf("files on disk: %v", err)
			}
			return len(files)
		}
		upload := func(_ http.ResponseWriter, r *http.Request) {
			if err := parse(r); err != nil || left() == 0 {
				s.Errorf("%s: parsed with error %v and %d files on disk, want none and a file", name, err, left())
			}
			if strings.HasPrefix(r.URL.Path, "/panic") {
				panic("on purpose")
			}
		}
		handler := s.build(app([]Limit{limit}, Route{Method: "POST", Path: "/{dir}/upload", Handler: upload}))
		server := s.serveHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if recover() != nil {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}()
			handler.ServeHTTP(w, r.WithContext(r.Context())) // hides the form from the server, which would remove its files
		}))
		for path, want := range map[string]int{"/a/upload": 200, "/a%20%62/upload": 200, "/panic/upload": 500} {
			for i := range 2 {
				r := server.request(s.Context(), "POST "+path, "Content-Type: "+parts.FormDataContentType())
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(form.Bytes())), int64(form.Len())
				a, err := server.try(r)
				must(s, err, name)
				if i == 1 {
					want = http.StatusTooManyRequests
				}
				equal(s, want, a.StatusCode, name+", "+path)
				// The limiter removes files after the answer.
				for end := time.Now().Add(30 * time.Second); left() > 0; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						s.Fatalf("%s, %s: %d files stay on disk", name, path, left())
					}
				}
			}
		}
	}
}
