package route

import (
	"net/url"
	"strings"
)

// Query appends the values of a parameter in a query, as url.ParseQuery has them. It returns false if another
// parser may find other values: the query has a #, or a pair with a ; or a wrong escape, with a NUL in its value, or
// with a name that PHP or Rails take for this one, such as name[] or name%00x.
func Query(values []string, query, name string) (_ []string, clear bool) {
	clear = !strings.Contains(query, "#")
	for pair := range strings.SplitSeq(query, "&") {
		left, right, _ := strings.Cut(pair, "=")
		if given, err := url.QueryUnescape(left); err == nil && given == name && !strings.Contains(pair, ";") {
			value, err := url.QueryUnescape(right)
			values, clear = append(values, value), clear && err == nil && strings.IndexByte(value, 0) < 0
			continue
		}
		for part := range strings.SplitSeq(pair, ";") {
			left, _, _ := strings.Cut(part, "=")
			clear = clear && !MayName(left, name)
		}
	}
	return values, clear
}

// MayName reports whether some language takes what a query or a cookie has as a name, still escaped, for that name.
func MayName(left, name string) bool {
	if strings.Trim(left, wordCharacters) == "" {
		return left == name
	}
	var given strings.Builder
	for left != "" {
		c, n := letter(left)
		given.WriteByte(c)
		left = left[n:]
	}
	return nameInPHP(given.String()) == nameInPHP(name)
}

// nameInPHP is a parameter's name as PHP has it.
func nameInPHP(name string) string {
	name = strings.TrimLeft(strings.ReplaceAll(name, "+", " "), " ")
	if end := strings.IndexAny(name, "\x00["); end > 0 {
		name = name[:end]
	}
	return underscores.Replace(name)
}

var underscores = strings.NewReplacer(".", "_", " ", "_")
