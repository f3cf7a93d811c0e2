package keyfunc

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/internal/route"
)

// FormField is the value of a field of the form in the request's body: "form:account:jane" for
// FormField("account", 4096) and the body account=jane&password=…. It reads the types
// application/x-www-form-urlencoded and multipart/form-data, as r.FormValue does, and puts the body back,
// for the handler to read. The notes of [JSONField] apply: any client can name another client's account,
// and the value is as the client spells it.
// For sign-in, package middleware/signin uses it safely.
//
// If two readers could find different values, the error is [ErrAmbiguous]: the field stands twice, in the
// query, in a part with a file name, or under a name that some program takes for this one (ACCOUNT,
// account[]); the value has a control character or is not in UTF-8; the form has a wrong escape or a ;
// between fields; the body may also be JSON; parts have headers or ends of lines that programs read differently; the body is longer
// than maxBytes, has a Content-Encoding, another charset or no Content-Type, or cannot be read to its end;
// the method is not POST, PUT or PATCH; other code has read the body before. A request has no key if it has no body, if its body is of another
// type, and if the field is missing or empty.
//
// If a form or a JSON object may be sent, use First(JSONField("account", 4096), FormField("account", 4096)).
//
// FormField panics if name is empty, or has a space, a character outside ASCII or one of : & = # + % ; " in
// it, or if maxBytes is not from 1 to 10 MiB. Set maxBytes at least as high as the largest body that the handler accepts.
func FormField(name string, maxBytes int) Func {
	f, err := newFormField(name, maxBytes, errLongBody)
	if err != nil {
		panic("keyfunc: FormField: " + err.Error())
	}
	return f
}

// newForm is the key form:NAME.
func newForm(name string) (Func, error) {
	f, err := newFormField(name, reading.MostJSON, errTooLarge)
	if err != nil {
		return nil, fmt.Errorf("keyfunc: %w", err)
	}
	return f, nil
}

func newFormField(name string, maxBytes int, errLong error) (Func, error) {
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`:&=#+%;"`, c) }) {
		return nil, fmt.Errorf("%.64q is not the name of a field of a form", name)
	}
	if maxBytes < 1 || maxBytes > mostBody {
		return nil, fmt.Errorf("maxBytes is %d bytes for the field %s: it must be from 1 to %d", maxBytes, name, mostBody)
	}
	reading.InUse.Store(true)
	prefix, lower := formTag+name+":", strings.ToLower(name)
	var errUnclear error = ambiguous("a form in which programs find different fields " + name)
	return func(r *http.Request) (string, error) {
		if r.URL != nil {
			if values, clear := route.Query(nil, strings.ToLower(r.URL.RawQuery), lower); len(values) > 0 || !clear {
				return "", errUnclear
			}
		}
		types := strings.Join(r.Header["Content-Type"], ",")
		if types != "" && !isForm(r) {
			return "", ErrNoKey
		}
		body, err := Body(r, maxBytes)
		switch {
		case errors.Is(err, errLongBody):
			return "", errLong
		case err != nil:
			return "", err
		case len(body) == 0:
			return "", ErrNoKey
		case strings.Join(r.Header["Content-Encoding"], "") != "":
			return "", errEncoded
		case !slices.Contains(formMethods, r.Method):
			return "", errNoForm
		}
		values, err := formValues(types, body, name)
		if err != nil {
			return "", err
		}
		value := ""
		for given, all := range values {
			switch {
			case given == name && len(all) == 1:
				value = all[0]
			case route.MayName(strings.ToLower(given), lower):
				return "", errUnclear
			}
		}
		isOdd := func(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError || c == '\ufeff' }
		switch {
		case value == "":
			return "", ErrNoKey
		case strings.ContainsFunc(value, isOdd):
			return "", errUnclear
		case !isUTF8(r.Header["Content-Type"], []byte(value)):
			return "", errEncoded
		case mayBeObject(body):
			return "", errBoth
		}
		return prefix + value, nil
	}, nil
}

// isForm reports whether some program may read r's body as a form because of its type.
func isForm(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Content-Type"], func(kind string) bool {
		kind = strings.ToLower(kind)
		return strings.Contains(kind, "form") || strings.Contains(kind, "multipart")
	})
}

// formMethods are the methods whose forms net/http always reads.
var formMethods = []string{http.MethodPost, http.MethodPut, http.MethodPatch}

var errBoth error = ambiguous("a body that has the field both as a form and as JSON")

var errNoForm error = ambiguous("a body that programs may or may not read as a form")

// formValues returns the fields of a form, as net/http reads it. It returns an error if another program may find other
// values of the field.
func formValues(types string, body []byte, name string) (url.Values, error) {
	kind, params, err := mime.ParseMediaType(types)
	boundary := params["boundary"]
	delete(params, "boundary")
	delete(params, "charset")
	if err != nil || len(params) > 0 || strings.ContainsAny(types, `*\`) {
		return nil, errNoForm
	}
	switch {
	case kind == "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(body))
		if err != nil || bytes.ContainsFunc(body, unicode.IsControl) || bytes.HasPrefix(body, []byte("\ufeff")) {
			return nil, errNoForm
		}
		return values, nil
	case kind == "multipart/form-data" && isClearMultipart(string(body), boundary, name):
		form, err := multipart.NewReader(bytes.NewReader(body), boundary).ReadForm(int64(len(body)))
		if err != nil {
			return nil, errNoForm
		}
		return form.Value, nil
	}
	return nil, errNoForm
}

// isClearMultipart reports whether all parsers find the same field in a form of parts: its boundary stands nowhere
// else, lines end in CR LF, and the parts have plain headers.
func isClearMultipart(body, boundary, name string) bool {
	pieces := strings.Split(body, "--"+boundary)
	last := len(pieces) - 1
	if boundary == "" || len(boundary) > 70 || strings.Trim(strings.ToLower(boundary), charsetCharacters+"=") != "" ||
		last < 1 || pieces[0] != "" || pieces[last] != "--" && pieces[last] != "--\r\n" {
		return false
	}
	for _, piece := range pieces[1:last] {
		head, isLine := strings.CutPrefix(piece, "\r\n")
		head, value, _ := strings.Cut(head, "\r\n\r\n")
		if !isLine || !strings.HasSuffix(value, "\r\n") || !isClearHead(head, value, name) {
			return false
		}
	}
	return true
}

// disposition matches a Content-Disposition that all parsers read alike. It finds the name in quotes, the name without
// quotes, and the names of files, which may have an escaped quote but then no semicolon.
var disposition = regexp.MustCompile(`(?i)^ *form-data *; *name=(?:"([^"\\]*)"|([\w.-]+))((?: *; *filename\*?=(?:"[^"]*"|"(?:[^";]|\\")*"|[^"; ]+))*) *$`)

// isClearHead reports whether all parsers read the header of a part alike, and whether the field is no file.
func isClearHead(head, value, name string) bool {
	var named, types []string
	for line := range strings.SplitSeq(head, "\r\n") {
		field, text, _ := strings.Cut(line, ":")
		isClear := isToken(field) && !strings.ContainsFunc(text, unicode.IsControl)
		switch strings.ToLower(field) {
		case "content-disposition":
			isClear = isClear && named == nil
			named = disposition.FindStringSubmatch(text)
		case "content-type":
			types = append(types, text)
		case "content-transfer-encoding":
			isClear = isClear && slices.Contains([]string{"7bit", "8bit", "binary"}, strings.ToLower(strings.Trim(text, " ")))
		}
		if !isClear {
			return false
		}
	}
	switch {
	case named == nil:
		return false
	case named[3] != "":
		return !route.MayName(strings.ToLower(named[1]+named[2]), strings.ToLower(name))
	}
	return isUTF8(types, []byte(value))
}
