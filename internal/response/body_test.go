package response_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/response"
)

// A watch counts those who wait for a client.
type watch struct {
	body    response.Body
	waiting int
	most    int
}

func (*watch) Streams(bool)           {}
func (w *watch) Body() *response.Body { return &w.body }
func (w *watch) Waits(begins bool) {
	if w.waiting--; begins {
		w.waiting += 2
	}
	w.most = max(w.most, w.waiting)
}

// A reader says what w was waiting for when it was read.
type reader struct {
	io.Reader
	watch *watch
	seen  []int
}

func (r *reader) Read(p []byte) (int, error) {
	r.seen = append(r.seen, r.watch.waiting)
	return r.Reader.Read(p)
}

func (r *reader) Close() error { return nil }

func TestABodyIsWhatItWas(t *testing.T) {
	r := httptest.NewRequest("POST", "/", nil)
	r.Body = http.NoBody
	response.WatchBody(r, &watch{})
	assert.Equal(t, http.NoBody, r.Body, "by which clients know that there is none")

	w := &watch{}
	r = httptest.NewRequest("POST", "/", strings.NewReader("whole")) // which is an io.WriterTo
	response.WatchBody(r, w)
	var out bytes.Buffer
	n, err := io.Copy(writes{&out, w, t}, r.Body)
	require.NoError(t, err)
	assert.Equal(t, "whole", out.String())
	assert.EqualValues(t, 5, n)
	assert.Equal(t, 1, w.most)
	assert.Zero(t, w.waiting)
	assert.False(t, w.body.WasHeldBack(500))

	w = &watch{}
	body := &reader{Reader: strings.NewReader("too long"), watch: w}
	r = httptest.NewRequest("POST", "/", body)
	response.WatchBody(r, w)
	_, err = io.ReadAll(http.MaxBytesReader(httptest.NewRecorder(), r.Body, 3))
	assert.ErrorAs(t, err, new(*http.MaxBytesError))
	assert.Equal(t, 1, body.seen[0], "its reader waits for the client")
	assert.False(t, w.body.WasHeldBack(413))
	assert.True(t, w.body.WasHeldBack(500), "more may come")
}

// writes is for what a handler hands the body on to.
type writes struct {
	io.Writer
	watch *watch
	t     *testing.T
}

func (w writes) Write(p []byte) (int, error) {
	assert.Zero(w.t, w.watch.waiting, "to wait for another is not to wait for the client")
	return w.Writer.Write(p)
}

func TestAnErrorOfTheBodyIsTheClientsDoing(t *testing.T) {
	w := &watch{}
	r := httptest.NewRequest("POST", "/", &reader{Reader: io.MultiReader(strings.NewReader("x"), breaks{}), watch: w})
	response.WatchBody(r, w)
	assert.False(t, w.body.WasHeldBack(500), "of what nobody has asked for that is not known")
	_, err := io.ReadAll(r.Body)
	assert.Error(t, err)
	assert.True(t, w.body.WasHeldBack(400))
}

func TestWhatFailsAfterTheHandlersOwnCloseIsNotTheClientsDoing(t *testing.T) {
	for _, begun := range []bool{false, true} {
		w := &watch{}
		r := httptest.NewRequest("POST", "/", &reader{Reader: io.MultiReader(strings.NewReader("x"), breaks{}), watch: w})
		response.WatchBody(r, w)
		if begun {
			_, err := r.Body.Read(make([]byte, 1))
			require.NoError(t, err)
		}
		require.NoError(t, r.Body.Close())
		_, err := io.ReadAll(r.Body) // as of HTTP/2, which has an error of its own for it
		assert.Error(t, err)
		assert.False(t, w.body.WasHeldBack(400))
		assert.Equal(t, begun, w.body.WasHeldBack(500), "more could have come")
	}
}

type breaks struct{}

func (breaks) Read([]byte) (int, error) { return 0, errors.New("a malformed chunk") }

// A sender is a ResponseWriter that sends files by itself, as net/http's does.
type sender struct {
	*httptest.ResponseRecorder
	handed []io.Reader
}

func (s *sender) ReadFrom(r io.Reader) (int64, error) {
	s.handed = append(s.handed, r)
	return io.Copy(s.ResponseRecorder, r)
}

func TestOnlyAFileIsHandedOnAsItIs(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte("whole"), 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	w := &watch{}
	backend := &reader{Reader: strings.NewReader("whole"), watch: w}
	part := io.LimitReader(file, 5) // as http.ServeContent sends one
	for _, from := range []io.Reader{part, backend} {
		recorder := &sender{ResponseRecorder: httptest.NewRecorder()}
		var a response.Response
		to := a.Watch(recorder)
		a.Watcher = w
		_, err := io.Copy(to, from)
		require.NoError(t, err)
		assert.Equal(t, "whole", recorder.Body.String())
		assert.Zero(t, w.waiting)
		if from == part {
			assert.Equal(t, []io.Reader{part}, recorder.handed)
		} else {
			assert.Empty(t, recorder.handed)
		}
	}
	assert.NotContains(t, backend.seen, 1, "to wait for a backend is to work")
}
