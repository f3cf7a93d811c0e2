package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quoteKey is a key as it is shown: as it is or, if that would not show what it is, as a
// string of Go, in quotation marks. Keys are what clients send.
func quoteKey(key string) string {
	odd := func(c rune) bool { return !unicode.IsPrint(c) }
	if utf8.ValidString(key) && !strings.ContainsFunc(key, odd) &&
		!strings.HasPrefix(key, `"`) && strings.TrimSpace(key) == key {
		return key
	}
	return strconv.QuoteToASCII(key)
}

// unquoteKey reads what quoteKey writes.
func unquoteKey(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	key, err := strconv.Unquote(text)
	if err != nil {
		return "", errors.New("the key begins with a quotation mark, and is not a string in quotation marks")
	}
	return key, nil
}

// digest stands for a key where keys are not shown.
func (d *Dashboard) digest(key string) string {
	if top := d.options.Offenders; top != nil {
		return top.Digest(key)
	}
	mac := hmac.New(sha256.New, d.secret)
	mac.Write([]byte(key))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:12])
}

// shown is a key as bans and the log have it.
func (d *Dashboard) shown(key string) string {
	if d.options.ShowKeys || key == "" {
		return quoteKey(key)
	}
	return d.digest(key)
}
