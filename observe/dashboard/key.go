package dashboard

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/middleware/bans"
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

// typedKey is a key as it is shown where it can be clicked on: as [operate.Key] takes it for
// just that key.
func typedKey(key string) string {
	shown := quoteKey(key)
	if back, err := operate.Key(shown); err != nil || back != key {
		return strconv.QuoteToASCII(key)
	}
	return shown
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

// shownBan is the key of a ban, or its digest where the list has that alone.
func (d *Dashboard) shownBan(b bans.Ban) string { return cmp.Or(b.Digest, d.shown(b.Key)) }

// shown is a key as bans and the log have it.
func (d *Dashboard) shown(key string) string {
	if d.options.ShowKeys || key == "" {
		return quoteKey(key)
	}
	return d.digest(key)
}
