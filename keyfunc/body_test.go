package keyfunc_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
)

var account = keyfunc.JSONField("account", 64)

func post(body string) *http.Request {
	return httptest.NewRequest("POST", "/login", io.NopCloser(strings.NewReader(body)))
}

func TestAFieldOfTheBodyIsAKey(t *testing.T) {
	for _, row := range table(t, "bodies.txt") {
		want, body := row[0], row[1]
		r := post(body)
		key, err := account(r)
		switch want {
		case "none":
			assert.ErrorIs(t, err, keyfunc.ErrNoKey, "%q: %q", body, key)
		case "ambiguous":
			assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, "%q: %q", body, key)
			assert.NotContains(t, fmt.Sprint(err), "jane")
		default:
			assert.NoError(t, err, body)
			assert.Equal(t, want, key, body)
		}
		left, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, body, string(left), "the handler reads all of it")
		require.NoError(t, r.Body.Close())
	}
	for _, encoding := range []string{"gzip", "br"} {
		r := post("\x1f\x8b...")
		r.Header.Set("Content-Encoding", encoding)
		_, err := account(r)
		assert.ErrorIs(t, err, keyfunc.ErrAmbiguous)
	}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"} {
		r := post(`{"account":"jane"}`)
		r.Header.Set("Content-Type", kind)
		key, err := account(r)
		assert.NoError(t, err)
		assert.Equal(t, "body:account:jane", key, "the handler may not look at the type either")
	}
	for charset, ambiguous := range map[string]bool{
		"utf-8": false, `"UTF-8"`: false, " utf8": false, "us-ascii": false, "ISO-8859-1": false, "windows-1252;x=y": false,
		"utf-16": true, `"utf-16le"`: true, "utf-7": true, "UTF-32;charset=utf-8": true, "utf-8;charset=utf-16": true, "ibm037": true, "": true, "*=utf-16''x": true,
	} {
		r := post(`{"account":"jane"}`)
		r.Header.Set("Content-Type", "application/json; Charset="+charset)
		key, err := account(r)
		assert.Equal(t, ambiguous, errors.Is(err, keyfunc.ErrAmbiguous), charset)
		assert.Equal(t, !ambiguous, key == "body:account:jane", charset)
	}
	r := post(`{"account":"jané"}`)
	r.Header.Set("Content-Type", "application/json; charset=iso-8859-1")
	_, err := account(r)
	assert.ErrorIs(t, err, keyfunc.ErrAmbiguous)
	r = post("\x1f\x8b...")
	r.Header["Content-Encoding"] = []string{"", "gzip"}
	_, err = account(r)
	assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, "a program may read the second field")
	for _, r := range []*http.Request{{}, {Body: http.NoBody}, httptest.NewRequest("GET", "/", nil)} {
		_, err := account(r)
		assert.ErrorIs(t, err, keyfunc.ErrNoKey)
	}
	r = post(`{"account":"jane"}`)
	r.ContentLength = 18
	_, _ = io.ReadAll(r.Body)
	_, err = account(r)
	assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, "something has read it before, and not put it back")

	r = post(`{"account":"jane"}`)
	r.Body = io.NopCloser(iotest.TimeoutReader(iotest.OneByteReader(r.Body)))
	_, err = account(r)
	assert.ErrorIs(t, err, keyfunc.ErrAmbiguous)
	assert.ErrorIs(t, err, iotest.ErrTimeout)
}

func TestWrongFieldsPanic(t *testing.T) {
	for _, make := range []func(){
		func() { keyfunc.JSONField("", 10) }, func() { keyfunc.JSONField("a:b", 10) },
		func() { keyfunc.JSONField("a", 0) }, func() { keyfunc.JSONField("a", 10<<20+1) },
	} {
		assert.Panics(t, make)
	}
}

// However much of it was read ahead, and however often, the handler reads the body as it came.
func TestTheHandlerReadsTheBodyAsItCame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "body")
		var source io.Reader = bytes.NewReader(sent)
		ends := io.EOF
		if rapid.Bool().Draw(t, "fails") {
			ends = errors.New("reset")
			source = io.MultiReader(source, iotest.ErrReader(ends))
		}
		if rapid.Bool().Draw(t, "slow") {
			source = iotest.HalfReader(source)
		}
		r := &http.Request{Body: io.NopCloser(source)}
		var got []byte
		for {
			if got == nil || rapid.Bool().Draw(t, "ahead") {
				most := rapid.IntRange(1, 120).Draw(t, "most")
				ahead, err := keyfunc.Body(r, most)
				switch {
				case err == nil:
					require.Equal(t, string(sent), string(ahead))
					require.LessOrEqual(t, len(ahead), most)
					require.Equal(t, io.EOF, ends)
				default:
					require.ErrorIs(t, err, keyfunc.ErrAmbiguous)
				}
			}
			p := make([]byte, rapid.IntRange(1, 40).Draw(t, "read"))
			n, err := r.Body.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				require.Equal(t, ends, err)
				break
			}
		}
		require.Equal(t, string(sent), string(got))
	})
}

// A reader counts what is read of it.
type reader struct {
	io.Reader
	bytes, reads int
}

func (c *reader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += n
	c.reads++
	return n, err
}

func TestSeveralKeysReadTheBodyOnce(t *testing.T) {
	source := &reader{Reader: strings.NewReader(`{"account":"jane","org":"acme"}`)}
	r := &http.Request{Body: io.NopCloser(source)}
	both := keyfunc.Join(account, keyfunc.JSONField("org", 128))
	assert.Equal(t, "join:17:body:account:jane13:body:org:acme", keyOf(t, both, r))
	once := source.reads
	_, err := both(r)
	require.NoError(t, err)
	assert.Equal(t, once, source.reads)
}

func TestNoMoreIsReadThanTheKeyCanBeIn(t *testing.T) {
	endless := &reader{Reader: io.MultiReader(strings.NewReader(`{"pad":"`), zeros{})}
	r := &http.Request{Body: io.NopCloser(endless)}
	_, err := account(r)
	assert.ErrorIs(t, err, keyfunc.ErrAmbiguous)
	assert.Equal(t, 65, endless.bytes)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// decoders are how programs make text of a body, before they parse it.
var decoders = map[string]func(body string) string{
	"Go":               func(body string) string { return body },
	"Python":           func(body string) string { return units(strings.TrimPrefix(body, "\ufeff")) },
	"without a mark":   func(body string) string { return strings.TrimLeft(body, "\ufeff") },
	"trimmed":          func(body string) string { return strings.TrimSpace(body) },
	"Ruby":             func(body string) string { return comments.ReplaceAllString(body, "") },
	"C":                func(body string) string { before, _, _ := strings.Cut(body, "\x00"); return before },
	"leaves bytes out": func(body string) string { return strings.ToValidUTF8(body, "") },
}

var comments = regexp.MustCompile(`(?s)/\*.*?\*/|(?m)//.*$`)

// units is a text of UTF-16 or UTF-32 in ASCII, or the body.
func units(body string) string {
	if len(body) > 1 && (body[0] == 0 || body[1] == 0 || strings.HasPrefix(body, "\xfe\xff") || strings.HasPrefix(body, "\xff\xfe")) {
		return strings.NewReplacer("\x00", "", "\xfe", "", "\xff", "").Replace(body)
	}
	return body
}

// Whatever program finds the field in a body, that is what the request is counted under, or it is refused.
func FuzzTheFieldIsWhatTheHandlerFinds(f *testing.F) {
	for _, body := range []string{
		`{"account":"a"}`, `{"account":"a","account":"b"}`, `{"ACCOUNT":"a","account":null}`, `{"\u0041ccount":"\ud800"}`,
		`{"account":"a"} {`, `{"account":"a"`, `[]`, "\ufeff{}", `{"aCCount":"K"}`, `{"account":"\u0000"}`, `{"":"","account":"a"}`,
		"\xff\xfe{\x00\"\x00a\x00c\x00c\x00o\x00u\x00n\x00t\x00\"\x00:\x00\"\x00a\x00\"\x00}\x00", "\x00{\x00\"\x00a\x00c\x00c\x00o\x00u\x00n\x00t\x00\"\x00:\x00\"\x00a\x00\"\x00}",
		"\ufeff\ufeff{\"account\":\"a\"}", "/**/{\"account\":\"a\"}", "//\n{\"account\":\"a\"}", "\u00a0{\"account\":\"a\"}", "{\"account\":\"a\"}\x00", "{\"acc\xffount\":\"a\"}", "\x80{\"account\":\"a\"}",
	} {
		f.Add(body)
	}
	key := keyfunc.JSONField("account", 4096)
	f.Fuzz(func(t *testing.T, body string) {
		counted, err := key(post(body))
		if errors.Is(err, keyfunc.ErrAmbiguous) {
			return
		}
		for name, decode := range decoders {
			var login struct{ Account string }
			if json.NewDecoder(strings.NewReader(decode(body))).Decode(&login) != nil || login.Account == "" {
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, "body:account:"+login.Account, counted, name)
		}
	})
}

// A limit before the handler has to hold against what is sent by hand, too.
func TestBodiesThatAreSentByHand(t *testing.T) {
	type seen struct{ key, body, err string }
	found := make(chan seen, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := account(r)
		var s seen
		if s.key = key; err != nil {
			s.err = "none"
			if errors.Is(err, keyfunc.ErrAmbiguous) {
				s.err = "ambiguous"
			}
		} else {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			s.body = string(body)
		}
		found <- s
	}))
	server.Config.ReadTimeout = 500 * time.Millisecond
	server.Start()
	defer server.Close()
	const object = `{"account":"jane"}`
	for name, c := range map[string]struct {
		head, body string
		want       seen
		halfClose  bool
	}{
		"chunked":           {head: "Transfer-Encoding: chunked", body: "9\r\n{\"account\r\n9\r\n\":\"jane\"}\r\n0\r\n\r\n", want: seen{"body:account:jane", object, ""}},
		"expects 100":       {head: "Expect: 100-continue\r\nContent-Length: 18", body: object, want: seen{"body:account:jane", object, ""}},
		"empty":             {head: "Content-Length: 0", want: seen{err: "none"}},
		"no length":         {head: "X: y", want: seen{err: "none"}},
		"cut short":         {head: "Content-Length: 99", body: object, want: seen{err: "ambiguous"}, halfClose: true},
		"cut short, chunks": {head: "Transfer-Encoding: chunked", body: "12\r\n" + object + "\r\n", want: seen{err: "ambiguous"}, halfClose: true},
		"wrong chunks":      {head: "Transfer-Encoding: chunked", body: "12\r\n" + object + "\r\nzz\r\n", want: seen{err: "ambiguous"}},
		"never ends":        {head: "Content-Length: 99", body: object, want: seen{err: "ambiguous"}},
		"huge":              {head: "Content-Length: 99999999999", body: `{"x":"` + strings.Repeat("y", 200), want: seen{err: "ambiguous"}},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", c.head)
		if strings.HasPrefix(c.head, "Expect") {
			line, err := bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
			assert.Contains(t, line, "100 Continue")
		}
		fmt.Fprint(conn, c.body)
		if c.halfClose {
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		}
		select {
		case s := <-found:
			assert.Equal(t, c.want, s, name)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the key function hangs", name)
		}
		conn.Close()
	}
}

func BenchmarkJSONField(b *testing.B) {
	key := keyfunc.JSONField("account", 4096)
	text := `{"account":"jane","password":"correct horse battery staple"}`
	source := strings.NewReader(text)
	r := &http.Request{}
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(text)
		r.Body = io.NopCloser(source)
		if _, err := key(r); err != nil {
			b.Fatal(err)
		}
	}
}
