package keyfunc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

const (
	urlencoded = "application/x-www-form-urlencoded"
	inParts    = "multipart/form-data; boundary=XX"
)

func form(kind, body string) *http.Request {
	r := httptest.NewRequest("POST", "/login", io.NopCloser(strings.NewReader(body)))
	if r.Header.Del("Content-Type"); kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return r
}

// parts is a form with parts of these headers and values, one after the other.
func parts(texts ...string) string {
	var body strings.Builder
	for i := 0; i < len(texts); i += 2 {
		fmt.Fprintf(&body, "--XX\r\n%s\r\n\r\n%s\r\n", texts[i], texts[i+1])
	}
	return body.String() + "--XX--\r\n"
}

const accountPart = `Content-Disposition: form-data; name="account"`

func TestAFieldOfAFormIsAKey(t *testing.T) {
	const ambiguous, none = "ambiguous", "none"
	long := strings.Repeat("x", 300)
	for _, c := range []struct{ kind, body, want string }{
		{urlencoded, "account=jane&password=x", "jane"},
		{"Application/X-WWW-Form-URLencoded ; charset=UTF-8", "password=x&account=jane", "jane"},
		{urlencoded, "account=jane+doe%40x&password=a#b", "jane doe@x"},
		{urlencoded, "account=jan%C3%A9", "jané"},
		{urlencoded, "account=jané", "jané"},
		{urlencoded, "%61ccount=jane", "jane"},
		{urlencoded, "", none}, {urlencoded, "account=", none}, {urlencoded, "password=x", none}, {urlencoded, "account", none},
		{"application/json", `{"account":"jane"}`, none}, {"text/plain", "account=jane", none}, {"", "", none},
		{urlencoded, "account=jane&account=joe", ambiguous}, {urlencoded, "account=jane&account=jane", ambiguous},
		{urlencoded, "account=&account=jane", ambiguous}, {urlencoded, "account=jane&Account=joe", ambiguous},
		{urlencoded, "account=jane&account[]=joe", ambiguous}, {urlencoded, "account%5B%5D=joe", ambiguous},
		{urlencoded, "account%00=joe", ambiguous}, {urlencoded, "+account=joe", ambiguous}, {urlencoded, "ACCOUNT=joe", ambiguous},
		{urlencoded, "account=jane;account=joe", ambiguous}, {urlencoded, "x=1;account=joe&account=jane", ambiguous},
		{urlencoded, "account=jane&x=%zz", ambiguous}, {urlencoded, "account=%", ambiguous}, {urlencoded, "account=a%00b", ambiguous},
		{urlencoded, "account=a%0Ab", ambiguous}, {urlencoded, "account=jane\r\n", ambiguous}, {urlencoded, "\ufeffaccount=jane", ambiguous},
		{urlencoded, "account=%FF", ambiguous}, {urlencoded, "account=%EF%BF%BD", ambiguous}, {urlencoded, "account=%EF%BB%BFa", ambiguous},
		{urlencoded, "account=jane&x=" + long, ambiguous}, {urlencoded, "account=jane" + strings.Repeat("&", 240), "jane"},
		{urlencoded + "; charset=iso-8859-1", "account=jane", "jane"}, {urlencoded + "; charset=iso-8859-1", "account=jan%C3%A9", ambiguous},
		{urlencoded + "; charset=utf-16", "account=jane", ambiguous}, {urlencoded + "; charset*=utf-16''x", "account=jane", ambiguous},
		{urlencoded + "; charset", "account=jane", ambiguous}, {urlencoded + ", application/json", "account=jane", ambiguous},
		{urlencoded + "; x=y", "account=jane", ambiguous}, {"", "account=jane", ambiguous}, {"form", "account=jane", ambiguous},

		{inParts, parts(accountPart, "jane"), "jane"},
		{`multipart/form-data; charset=utf-8; boundary="XX"`, parts("content-disposition:form-data;name=account\r\nContent-Type: text/plain; charset=utf-8", "jan\u00e9"), "jané"},
		{inParts, parts(`Content-Disposition: form-data; name="photo"; filename="a.png"`+"\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: binary", "\x89\r\n\r\n\xff", accountPart, "jane"), "jane"},
		{inParts, parts(`Content-Disposition: form-data; name=photo; filename=a; filename*=utf-8''a`, "x", accountPart, "jane"), "jane"},
		{inParts, parts(accountPart, ""), none}, {inParts, parts(`Content-Disposition: form-data; name="x"`, "jane"), none}, {inParts, "", none},
		{inParts, parts(accountPart, "jane", accountPart, "joe"), ambiguous}, {inParts, parts(accountPart+`; filename="a"`, "jane"), ambiguous},
		{inParts, parts(accountPart+`; filename=""`, "jane"), ambiguous}, {inParts, parts(accountPart+`; name="x"`, "jane"), ambiguous},
		{inParts, parts(`Content-Disposition: form-data; name="x"; name*=utf-8''account`, "jane"), ambiguous},
		{inParts, parts(`Content-Disposition: form-data; name*0="acc"; name*1="ount"`, "jane"), ambiguous},
		{inParts, parts(`Content-Disposition: form-data; name="acc\ount"`, "jane"), ambiguous}, {inParts, parts(`Content-Disposition: form-data; name='account'`, "jane"), ambiguous},
		{inParts, parts(`Content-Disposition: form-data; name="account[]"`, "jane"), ambiguous}, {inParts, parts(`Content-Disposition: form-data; name="%61ccount"`, "jane"), ambiguous},
		{inParts, parts(`Content-Disposition: form-data; name="x"; filename="\"; name=account; y=\""`, "jane"), ambiguous},
		{inParts, parts(`Content-Disposition: form-data; name="x"; filename="\"; name="account"`, "jane"), ambiguous},
		{inParts, parts(`Content-Disposition: attachment; name="account"`, "jane"), ambiguous}, {inParts, parts("X: y", "jane"), ambiguous},
		{inParts, parts(accountPart+"\r\n"+accountPart, "jane"), ambiguous}, {inParts, parts(accountPart+"\r\n x", "jane"), ambiguous}, {inParts, parts(accountPart+"\n", "jane"), ambiguous},
		{inParts, parts(accountPart+"\r\nContent-Transfer-Encoding: base64", "amFuZQ=="), ambiguous}, {inParts, parts(accountPart+"\r\nContent-Transfer-Encoding: quoted-printable", "j=61ne"), ambiguous},
		{inParts, parts(accountPart+"\r\nX-filename: a\r\nContent-Type: text/plain; charset=utf-16", "jane"), ambiguous}, {inParts, parts(accountPart, "ja\x00ne"), ambiguous},
		{inParts, "preamble\r\n" + parts(accountPart, "jane"), ambiguous}, {inParts, parts(accountPart, "jane") + parts(accountPart, "joe"), ambiguous},
		{inParts, strings.ReplaceAll(parts(accountPart, "jane"), "\r\n", "\n"), ambiguous}, {inParts, parts(accountPart, "jane\r\n--XX \r\n"+accountPart+"\r\n\r\njoe"), ambiguous},
		{inParts, strings.TrimSuffix(parts(accountPart, "jane"), "--\r\n"), ambiguous}, {inParts, parts(accountPart, "jane") + "x", ambiguous},
		{"multipart/form-data", parts(accountPart, "jane"), ambiguous}, {"multipart/mixed; boundary=XX", parts(accountPart, "jane"), ambiguous},
		{"multipart/form-data; boundary*=us-ascii''XX", parts(accountPart, "jane"), ambiguous}, {`multipart/form-data; boundary="X\X"`, parts(accountPart, "jane"), ambiguous},
		{inParts + "; boundary=YY", parts(accountPart, "jane"), ambiguous}, {inParts + "; boundary", parts(accountPart, "jane"), ambiguous}, {inParts + ",x", parts(accountPart, "jane"), ambiguous},
	} {
		r := form(c.kind, c.body)
		key, err := keyfunc.FormField("account", 256)(r)
		switch c.want {
		case none:
			assert.ErrorIs(t, err, keyfunc.ErrNoKey, "%s: %q", c.kind, c.body)
		case ambiguous:
			assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, "%s: %q: %q", c.kind, c.body, key)
			assert.NotContains(t, fmt.Sprint(err), "jane")
		default:
			assert.NoError(t, err, "%s: %q", c.kind, c.body)
			assert.Equal(t, "form:account:"+c.want, key, c.body)
			assert.Equal(t, c.want, r.FormValue("account"), "what the handler finds afterwards")
			continue
		}
		left, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, c.body, string(left), "the handler reads all of it")
	}
}

func TestAFormThatIsNotOnlyInTheBodyIsAmbiguous(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"also in the query":      func(r *http.Request) { r.URL.RawQuery = "account=jane" },
		"unclear in the query":   func(r *http.Request) { r.URL.RawQuery = "x=1;account=joe" },
		"under another name":     func(r *http.Request) { r.URL.RawQuery = "ACCOUNT%5b%5d=joe" },
		"read by other code":     func(r *http.Request) { _ = r.ParseForm() },
		"only in the query":      func(r *http.Request) { r.URL.RawQuery, r.Body = "account=jane", http.NoBody },
		"encoded":                func(r *http.Request) { r.Header["Content-Encoding"] = []string{"", "gzip"} },
		"two types":              func(r *http.Request) { r.Header.Add("Content-Type", "application/json") },
		"a method without forms": func(r *http.Request) { r.Method = "DELETE" },
		"GET":                    func(r *http.Request) { r.Method = "GET" },
		"read by code in front":  func(r *http.Request) { r.ContentLength = 12; _, _ = io.ReadAll(r.Body) },
		"more fields than Go reads": func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader("account=jane" + strings.Repeat("&a", 1e4)))
		},
		"more parts than Go reads": func(r *http.Request) {
			r.Header.Set("Content-Type", inParts)
			r.Body = io.NopCloser(strings.NewReader(parts(append([]string{accountPart, "jane"}, manyParts()...)...)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := form(urlencoded, "account=jane")
			change(r)
			assertAmbiguous(t, keyfunc.FormField("account", 1<<20), r)
		})
	}
}

func manyParts() (texts []string) {
	for i := range 1000 {
		texts = append(texts, fmt.Sprintf(`Content-Disposition: form-data; name="x%d"`, i), "")
	}
	return texts
}

func TestAFormThatGoWritesHasAKey(t *testing.T) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	file, err := w.CreateFormFile("photo", `ann's "new" photo.png`)
	require.NoError(t, err)
	_, _ = file.Write([]byte{0xff, 0})
	require.NoError(t, w.WriteField("account", "jané"))
	require.NoError(t, w.Close())
	r := form(w.FormDataContentType(), body.String())
	if key, err := keyfunc.FormField("account", 4096)(r); assert.NoError(t, err) {
		assert.Equal(t, "form:account:jané", key)
	}
}

func TestAFormOrJSONHasAKey(t *testing.T) {
	either := keyfunc.First(keyfunc.JSONField("account", 256), keyfunc.FormField("account", 256))
	assert.Equal(t, "body:account:jane", keyOf(t, either, form("application/json", `{"account":"jane"}`)))
	assert.Equal(t, "form:account:jane", keyOf(t, either, form(urlencoded, "account=jane")))
	assert.Equal(t, "form:account:jane", keyOf(t, either, form(inParts, parts(accountPart, "jane"))))
	assertClass(t, keyfunc.Claimed, form(urlencoded, "account=jane"), either)
}

func TestAFormsFieldIsAKeyOfAFile(t *testing.T) {
	f, err := keyfunc.Parse("form:account", nil)
	require.NoError(t, err)
	key := keyOf(t, f, form(urlencoded, "account=jane:1"))
	kind, source, value := keyfunc.KindOf(key)
	assert.Equal(t, []string{"form", "form:account", "jane:1"}, []string{kind, source, value})
	_, err = f(form(urlencoded, "account=jane&x="+strings.Repeat("x", 8<<20)))
	assert.ErrorContains(t, err, "too long to read its fields")
	_, err = keyfunc.Parse("form:a&b", nil)
	assert.ErrorContains(t, err, "is of kind form and has a wrong name")
}

// The handler may go by the type, or by the first byte.
func TestABodyIsNoFormAndJSONAtOnce(t *testing.T) {
	asJSON, asForm := keyfunc.JSONField("account", 256), keyfunc.FormField("account", 256)
	for _, body := range []string{
		`{"account":"jane","x":"=&account=joe&y="}`, `{"account":"jane","x":";Account=joe;"}`, `{"account":"jane","x":"&%61ccount[]=joe"}`, ` {"account":"jane","x":"&account&"}`,
	} {
		for name, key := range map[string]keyfunc.Func{"JSON": asJSON, "JSON first": keyfunc.First(asJSON, asForm), "form first": keyfunc.First(asForm, asJSON)} {
			_, err := key(form(urlencoded, body))
			assert.ErrorIs(t, err, keyfunc.ErrAmbiguous, "%s: %s", name, body)
		}
		_, err := asJSON(form("application/json", body))
		assert.NoError(t, err, body)
	}
	_, err := asForm(form(urlencoded, `{"x":"=&account=joe&y="}`))
	assert.ErrorIs(t, err, keyfunc.ErrAmbiguous)
	assert.Equal(t, "body:account:jane", keyOf(t, keyfunc.First(asForm, asJSON), form(urlencoded, `{"account":"jane","x":"a&b=#"}`)), "curl -d")
}

func TestWrongFormFieldsPanic(t *testing.T) {
	for _, name := range []string{"", "a:b", "a b", "a&b", "a=b", "é", `a"b`} {
		assert.Panics(t, func() { keyfunc.FormField(name, 10) }, name)
	}
	assert.Panics(t, func() { keyfunc.FormField("a", 0) })
	assert.Panics(t, func() { keyfunc.FormField("a", 10<<20+1) })
}

// Whatever a handler finds by r.FormValue, r.PostFormValue or in r.MultipartForm, that is what the request is counted
// under, or it is refused.
func FuzzTheFormFieldIsWhatTheHandlerFinds(f *testing.F) {
	for _, body := range []string{
		"account=a", "account=a&account=b", "account=a;account=b", "account=%61+b", "account=a%", "%61ccount=a", "account[]=a",
		parts(accountPart, "a"), parts(accountPart, "a", accountPart, "b"), parts(accountPart+`; filename="x"`, "a"),
		parts("Content-Disposition: form-data; name=account; filename*=utf-8''x", "a"), parts(accountPart, "a\r\n--XX--\r\n"),
		parts(accountPart+"\r\nContent-Transfer-Encoding: quoted-printable", "=61"), "x" + parts(accountPart, "a"), strings.ReplaceAll(parts(accountPart, "a"), "\r", ""),
	} {
		f.Add(urlencoded, "", body)
		f.Add(inParts, "account=b", body)
		f.Add(`multipart/form-data; boundary="XX"; charset=utf-8`, "x;account=a", body)
	}
	key := keyfunc.FormField("account", 4096)
	f.Fuzz(func(t *testing.T, kind, query, body string) {
		r := form(kind, body)
		r.URL.RawQuery = query
		counted, err := key(r)
		if errors.Is(err, keyfunc.ErrAmbiguous) {
			return
		}
		found := r.FormValue("account")
		if err != nil {
			require.ErrorIs(t, err, keyfunc.ErrNoKey)
			require.Empty(t, found)
			return
		}
		require.Equal(t, counted, "form:account:"+found)
		require.Equal(t, found, r.PostFormValue("account"))
		require.Equal(t, []string{found}, r.Form["account"])
		if r.MultipartForm != nil {
			require.Empty(t, r.MultipartForm.File["account"])
		}
	})
}
