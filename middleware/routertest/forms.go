package routertest

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// forms has handlers, and a key function, parse forms with a file.
func forms(s *suite) {
	form := &bytes.Buffer{}
	parts := multipart.NewWriter(form)
	file, err := parts.CreateFormFile("file", "f")
	require.NoError(s, err)
	_, _ = file.Write(make([]byte, 1000))
	require.NoError(s, parts.Close())
	parse := func(r *http.Request) error { return r.ParseMultipartForm(0) }

	always := middleware.Rule{Name: "some", Key: func(r *http.Request) (string, error) { return r.URL.Path, nil }, Limit: perHour(1)}
	with := func(change func(*middleware.Rule)) middleware.Rule {
		rule := always
		change(&rule)
		return rule
	}
	parsing := func(r *http.Request) (string, error) { return r.URL.Path, parse(r) }
	for name, limit := range map[string]Limit{
		"the result":       rules(always),
		"counted":          rules(with(func(r *middleware.Rule) { r.Counts = middleware.Not(middleware.Statuses(404)) })),
		"reserved":         rules(with(func(r *middleware.Rule) { r.Cost = middleware.Reserve(func(*http.Request) int64 { return 1 }) })),
		"a slot":           rules(with(func(r *middleware.Rule) { r.Limit = limiter.All(r.Limit, limiter.AtOnce(9)) })),
		"overload":         limits(middleware.Config{Rules: []middleware.Rule{always}, Overload: service{make(chan bool, 1000), make(chan bool, 1000)}}),
		"parsed for a key": rules(with(func(r *middleware.Rule) { r.Key = parsing })),
		"results":          limits(middleware.Config{Rules: []middleware.Rule{always}, Results: true}),
	} {
		dir := s.TempDir()
		s.Setenv("TMPDIR", dir)
		left := func() int {
			files, err := os.ReadDir(dir)
			assert.NoError(s, err)
			return len(files)
		}
		handler := s.router.Build(app([]Limit{limit}, Route{Method: "POST", Path: "/{dir}/upload", Handler: func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(s, parse(r))
			assert.Positive(s, left(), "a form without a file on disk shows nothing")
			if strings.HasPrefix(r.URL.Path, "/panic") {
				panic("on purpose")
			}
		}}))
		server := s.serveHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if recover() != nil {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}()
			handler.ServeHTTP(w, r)
		}))
		for path, want := range map[string]int{"/a/upload": 200, "/a%20%62/upload": 200, "/panic/upload": 500} {
			for i := range 2 {
				r := server.request(s.Context(), "POST "+path, "Content-Type: "+parts.FormDataContentType())
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(form.Bytes())), int64(form.Len())
				a, err := server.try(r)
				require.NoError(s, err)
				if i == 1 {
					want = http.StatusTooManyRequests
				}
				require.Equal(s, want, a.StatusCode, "%s, %s", name, path)
				// The server removes files after its answer.
				require.Eventually(s, func() bool { return left() == 0 }, 30*time.Second, time.Millisecond, fmt.Sprint(name, ", ", path))
			}
		}
	}
}
