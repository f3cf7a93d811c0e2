package dashboard

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
)

// typedKey is a key as it is shown: as [operate.Key] takes it for just that key. It is as it is or,
// if that would not show what it is, as a string of Go, in quotation marks. Keys are what clients
// send.
func typedKey(key string) string {
	odd := func(c rune) bool { return !unicode.IsPrint(c) }
	if back, err := operate.Key(key); err != nil || back != key || !utf8.ValidString(key) || strings.ContainsFunc(key, odd) {
		return strconv.QuoteToASCII(key)
	}
	return key
}

// digest stands for a key where keys are not shown.
func (d *Dashboard) digest(key string) string { return d.digests.Digest(key).String() }

// shownBan is the key of a ban, or its digest where the list has that alone.
func (d *Dashboard) shownBan(b bans.Ban) string { return cmp.Or(b.Digest, d.shown(b.Key)) }

// shown is a key, or its digest, as the page and the log have it.
func (d *Dashboard) shown(key string) string {
	switch _, isDigest := keyfunc.DigestOf(key); {
	case key == "":
		return ""
	case isDigest || !d.options.ShowKeys:
		return d.digest(key)
	}
	return typedKey(key)
}

// names are keys that may be shown, by their digests: of the clients that are followed.
func (d *Dashboard) names() map[string]string {
	if !d.options.ShowKeys {
		return nil
	}
	names := map[string]string{}
	for _, k := range d.followed.all() {
		if text, ok := k.whole(); ok {
			names[d.digest(text)] = typedKey(text)
		}
	}
	return names
}

// keyOf is the key that a digest stands for, if this process knows it: from its latest requests,
// from Offenders or from the list of bans. Else it is [keyfunc.Digest.Key] where actions take that: bans ask the list,
// and counters are found by it in Redis.
func (d *Dashboard) keyOf(ctx context.Context, a action, digest keyfunc.Digest) (string, error) {
	if k, ok := d.followed.byDigest(digest); ok {
		if text, ok := k.whole(); ok {
			return text, nil
		}
		if a.Action == "look" {
			return digest.Key(), nil // of a key that is too long to be kept
		}
	}
	if top := d.options.Offenders; top != nil {
		if key, ok := top.KeyOf(digest.String()); ok {
			return key, nil
		}
	}
	if list := d.options.Bans; list != nil {
		all, _ := list.All(ctx) // what is known, if that fails
		for _, ban := range all {
			if ban.Key != "" && d.digest(ban.Key) == digest.String() {
				return ban.Key, nil
			}
		}
	}
	if a.Action == "ban" || a.Action == "unban" || d.store.Kind == "redis" {
		return digest.Key(), nil
	}
	return "", mistakef("this process knows no key with this digest: it was not refused here lately, or another process serves the client: name the key")
}
