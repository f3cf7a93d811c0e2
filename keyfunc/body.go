package keyfunc

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/reading"
)

// JSONField is the value of a field of the JSON object in the request's body: "body:account:jane" for
// JSONField("account", 4096) and {"account":"jane","password":"…"}. It reads the body and puts it back,
// for the handler to read, as [Body] does. If several keys use the body, it is read once.
//
// It is for limits on the target of requests, such as the account of a login:
//
//	middleware.Rule{Name: "account", Match: middleware.Route("POST /login"),
//		Key: keyfunc.JSONField("account", 4096), Limit: limiter.PerHour(20)}
//
// Use it together with a rule on [IP], and only where clients may share the counter of an account. Any
// client can name another client's account, so do not ban such a key. To check that ambiguous bodies
// are refused, send the field twice with different values, and send a body longer than maxBytes: both
// must be answered 400.
//
// If two readers could find different values in a body, the error is [ErrAmbiguous], and the request
// goes no further: the field stands twice with different values, its name in upper or lower case; the
// object is incomplete, has text behind it or a comment in front, or is longer than maxBytes; the value
// is neither a string nor a whole number; the body is not in UTF-8, has a Content-Encoding or another
// charset, or cannot be read to its end. The type in the Content-Type does not matter, because a handler
// may ignore it; but if it is a form's, and the body has the field as a form too, the body is ambiguous. A request has no key if it has no body, if the body is no object, and if the field is
// missing, null or empty.
//
// The value is as the client spells it. If "Jane" and "jane" are one account, your own Func makes one
// key of them:
//
//	typed := keyfunc.JSONField("account", 4096)
//	account := func(r *http.Request) (string, error) {
//		key, err := typed(r)
//		return strings.ToLower(key), err
//	}
//
// The request waits until its body has arrived, so set the server's ReadTimeout. The limiter first looks at its other
// rules, and refuses a client by them before it reads the body.
//
// The name may be a path through up to four objects, such as "generationConfig.model". If one of these objects is
// there twice, the body is ambiguous.
//
// JSONField panics if a name is empty or has a colon in it, if the path is deeper, or if maxBytes is not from 1 to
// 10 MiB. Set maxBytes at least as high as the largest body that the handler accepts.
func JSONField(name string, maxBytes int) Func {
	m, err := newJSONMember(name, maxBytes, errLongBody)
	if err != nil {
		panic("keyfunc: JSONField: " + err.Error())
	}
	return m.key
}

const (
	mostBody  = 10 << 20
	jsonSpace = " \t\r\n"
)

var (
	errEncoded    error = ambiguous("an encoded body, in which no field can be found")
	errNoJSON     error = ambiguous("a body that is not one whole JSON object")
	errOddValue   error = ambiguous("a field in its body that is neither a string nor a whole number")
	errLongBody   error = ambiguous("a body that is too long to read its key")
	errHeld       error = ambiguous("a body that is read later")
	errReadBefore error = ambiguous("a body that was read before the key function could read it")
)

// isUTF8 reports whether the fields of a Content-Type name no charset in which a body reads otherwise than in UTF-8.
func isUTF8(types []string, body []byte) bool {
	text := strings.ToLower(strings.Join(types, ";"))
	for _, after, found := strings.Cut(text, "charset"); found; _, after, found = strings.Cut(after, "charset") {
		charset := strings.TrimLeft(after, "*= \t\"'")
		charset = charset[:len(charset)-len(strings.TrimLeft(charset, charsetCharacters))]
		switch isASCII := bytes.IndexFunc(body, func(c rune) bool { return c >= utf8.RuneSelf }) < 0; {
		case charset == "utf-8", charset == "utf8", charset == "us-ascii":
		case isASCII && (strings.HasPrefix(charset, "iso-8859-") || strings.HasPrefix(charset, "windows-125")):
		default:
			return false
		}
	}
	return true
}

const charsetCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-_:.+"

// mayBeObject reports whether some parser takes a body for an object that does not begin as one in JSON: it is in
// UTF-16 or UTF-32, or comments, prefixes against script inclusion, control characters, spaces or byte order marks
// of Unicode, or bytes that are no UTF-8 precede the object, which may stand behind what was read.
func mayBeObject(body []byte) bool {
	if bytes.IndexByte(body[:min(len(body), 4)], 0) >= 0 || bytes.HasPrefix(body, []byte{0xfe, 0xff}) || bytes.HasPrefix(body, []byte{0xff, 0xfe}) {
		return true
	}
	text := bytes.TrimLeftFunc(body, func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c) || c == '\ufeff' || c == utf8.RuneError
	})
	return len(text) == 0 || strings.IndexByte("{/#)", text[0]) >= 0
}

// odd are characters at which some parsers end a text, or which they leave out: NUL, and what is no character.
const odd = "\x00\ufffd"

// Body reads the request's body, of up to maxBytes bytes, for your own [Func]. It replaces r.Body, so
// the handler reads the same bytes again. Do not change the bytes. Without a body, Body returns no
// bytes and no error. The error wraps [ErrAmbiguous] if the body is longer (the first bytes are
// returned), if it cannot be read to its end, or if other code has read it already. Do not treat such a
// request as one without a key.
func Body(r *http.Request, maxBytes int) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if held, ok := r.Body.(*reading.Held); ok {
		held.Asked = true
		return nil, errHeld
	}
	b, ok := reading.Behind[*body](r.Body)
	if !ok {
		reading.InUse.Store(true)
		b = &body{source: r.Body}
		r.Body = b
	}
	first, err := b.first(maxBytes)
	isRead := r.ContentLength > 0 || len(r.PostForm) > 0 || r.MultipartForm != nil // also of a body of unknown length
	if err == nil && len(first) == 0 && isRead {
		err = errReadBefore
	}
	return first, err
}

// A body is a request's body with a beginning that was read ahead.
type body struct {
	source io.ReadCloser

	mu     sync.Mutex
	ahead  []byte // what was read of it
	at     int    // how much of that the handler has read
	err    error  // how it ended; nil: it may go on
	passed bool   // the handler has read on, beyond what is ahead

	members []foundMember
}

// first reads until the body has ended, or is longer.
func (b *body) first(maxBytes int) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if missing := maxBytes + 1 - len(b.ahead); missing > 0 && b.err == nil {
		if b.passed {
			return nil, errReadBefore
		}
		if err := b.readAhead(maxBytes + 1); err != nil {
			return nil, err
		}
	}
	switch {
	case len(b.ahead) > maxBytes:
		return b.ahead[:maxBytes:maxBytes], errLongBody
	case b.err != io.EOF:
		return nil, fmt.Errorf("%w (%w)", ambiguous("a body that cannot be read to its end"), b.err)
	}
	return b.ahead[:len(b.ahead):len(b.ahead)], nil
}

// readAhead reads until the body has ended, or most bytes are ahead. It returns an error if the server has no room
// for them.
func (b *body) readAhead(most int) error {
	budget, _ := b.source.(reading.Budget)
	for b.err == nil && len(b.ahead) < most {
		if len(b.ahead) == cap(b.ahead) {
			room := min(most, max(firstRead, 2*cap(b.ahead)))
			if budget != nil {
				if err := budget.Hold(room - cap(b.ahead)); err != nil {
					return err
				}
			}
			b.ahead = append(make([]byte, 0, room), b.ahead...)
		}
		var n int
		n, b.err = b.source.Read(b.ahead[len(b.ahead):cap(b.ahead)])
		b.ahead = b.ahead[:len(b.ahead)+n]
	}
	return nil
}

const firstRead = 512

// Replace has the handler read text in place of the body, which was read ahead to its end.
func (b *body) Replace(text []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead, b.members = text, nil
}

// Release frees what was read ahead, if the handler has read it. It must not be read again.
func (b *body) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if budget, ok := b.source.(reading.Budget); ok {
		budget.Release()
	}
	b.ahead, b.at, b.members, b.passed, b.err = nil, 0, nil, true, http.ErrBodyReadAfterClose
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.at < len(b.ahead) {
		n := copy(p, b.ahead[b.at:])
		b.at += n
		b.mu.Unlock()
		return n, nil
	}
	if b.err != nil {
		defer b.mu.Unlock()
		return 0, b.err
	}
	b.passed = true
	b.mu.Unlock()
	return b.source.Read(p)
}

func (b *body) Close() error { return b.source.Close() }
