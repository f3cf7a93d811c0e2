package dashboard

import (
	"cmp"
	"context"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
)

// typedKey is a key as it is shown, which [operate.Key] reads as the same key. A key that would be
// read or displayed as another is shown as a Go string, in quotation marks: clients choose their keys.
func typedKey(key string) string {
	odd := func(c rune) bool { return !unicode.IsPrint(c) }
	if back, err := operate.Key(key); err != nil || back != key || !utf8.ValidString(key) || strings.ContainsFunc(key, odd) {
		return strconv.QuoteToASCII(key)
	}
	return key
}

// digest is the text that stands for a key.
func (d *Dashboard) digest(key string) string { return d.digests.Digest(key).String() }

// shownBan is the key of a ban as it is shown, or its digest if the list has no key.
func (d *Dashboard) shownBan(b bans.Ban) string { return cmp.Or(b.Digest, d.shown(b.Key)) }

// shown is a key as the page and the log show it, or its digest.
func (d *Dashboard) shown(key string) string {
	switch _, isDigest := keyfunc.DigestOf(key); {
	case key == "":
		return ""
	case isDigest || !d.options.ShowKeys:
		return d.digest(key)
	}
	return typedKey(key)
}

// names returns the keys of the last hour by digest, if keys may be shown.
func (d *Dashboard) names() map[string]string {
	if !d.options.ShowKeys {
		return nil
	}
	names := map[string]string{}
	for _, r := range d.hour.Rules() {
		for _, o := range append(d.hour.Top(r.Name, math.MaxInt), d.hour.Busiest(r.Name, math.MaxInt)...) {
			if o.Whole {
				names[o.Digest] = typedKey(o.Key)
			}
		}
	}
	return names
}

// keyOf returns the key of a digest, if this process knows it from its requests or from
// the list of bans. Otherwise it returns [keyfunc.Digest.Key] if the action accepts
// that: bans leave it to the list, and Redis finds counters by it.
func (d *Dashboard) keyOf(ctx context.Context, a action, digest keyfunc.Digest) (string, error) {
	if key, ok := d.hour.KeyOf(digest.String()); ok {
		return key, nil
	}
	if a.Action == "look" && len(d.hour.Find(digest.Key())) > 0 {
		return digest.Key(), nil // of a key that is too long to be kept
	}
	if list := d.options.Bans; list != nil {
		all, _ := list.All(ctx) // with an error, the bans that this process knows
		for _, ban := range all {
			if ban.Key != "" && d.digest(ban.Key) == digest.String() {
				return ban.Key, nil
			}
		}
	}
	if a.Action == "ban" || a.Action == "unban" || d.store.Kind == "redis" {
		return digest.Key(), nil
	}
	return "", mistakef("this process knows no key with this digest: it has not seen the client in the last hour, or another process serves it. Enter the key itself")
}
