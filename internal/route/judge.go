package route

import (
	"net/http"
	"net/url"
	"strings"
)

// judge returns why no gateway can tell what a service reads in the request line, the host and the fields of r, or an
// empty reason. It leaves other ambiguous paths than those with dot segments to Routes.Set.
func judge(r *http.Request) (reason string) {
	given := r.URL.Path
	switch {
	case r.Method == "" || !IsMethod(r.Method):
		return "The method is not in capitals."
	case r.URL.Opaque != "", !strings.HasPrefix(given, "/") && (given != "*" || r.Method != http.MethodOptions):
		return "The target of the request is no path."
	case strings.Contains(r.RequestURI, "#"):
		return "The target of the request has a #."
	case isSimple(r.URL):
	case strings.ContainsFunc(given, isControl):
		return "The path has a control character."
	case hasDots(given):
		return "The path has a dot segment."
	}
	switch {
	case !IsHost(r.Host), !IsHost(r.URL.Host):
		return "The host can be read in more than one way."
	case r.URL.Host != "" && Host(r.URL.Host) != Host(r.Host):
		return "The request has two hosts."
	case isListed(r.Header):
		return "Connection lists a field of the request, which a proxy would remove."
	}
	for _, host := range r.Header["Host"] { // HTTP/2 may have the field beside its :authority
		if host != r.Host {
			return "The request has two hosts."
		}
	}
	return ""
}

// IsHost reports whether all servers read the same host in a request's Host. An empty field is no host.
func IsHost(field string) bool {
	isBare := strings.Count(field, ":") > 1 && field[0] != '[' // an IPv6 address, or for some servers a name and a port
	return field == "" || Host(field) != "" && !isBare
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// hasDots reports whether a server may find a segment . or .. in an unescaped path.
func hasDots(given string) bool {
	if !strings.Contains(given, ".") {
		return false
	}
	for segment := range strings.FieldsFuncSeq(given, func(c rune) bool { return c == '/' || c == '\\' }) {
		if segment, _, _ = strings.Cut(segment, ";"); segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// IsAmbiguous reports whether servers may read a path as another one than it seems: it has empty
// or dot segments, backslashes or escaped slashes, control characters, or bytes that are no UTF-8.
func IsAmbiguous(u *url.URL) bool {
	given := u.Path
	if given == "" || given[0] != '/' {
		return given != "*" // of OPTIONS
	}
	escaped := strings.ToLower(u.RawPath)
	if strings.Contains(escaped, "%2f") || strings.Contains(given, `\`) ||
		strings.ToValidUTF8(given, "") != given || strings.ContainsFunc(given, isControl) {
		return true
	}
	named := bare(given)
	return clean(named) != named
}
