package signin

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/response"
	"github.com/weirgo/weir/keyfunc"
)

// The cookie is "1.", an entry for each account that has signed in on the device, the newest first, "." and an
// HMAC-SHA-256 of all before it, of which 128 bits are kept. An entry has the second when it expires, digests
// of the account and of the epoch, and a nonce, each of a fixed size.

const (
	version     = "1."
	expirySize  = 10
	nonceSize   = 26
	entrySize   = expirySize + 2*keyfunc.DigestSize + nonceSize
	mostEntries = 8
	lifetime    = 400 * 24 * time.Hour
)

// What is signed, so that no digest stands for another.
const (
	ofCookie  = "signin cookie:"
	ofAccount = "signin account:"
	ofEpoch   = "signin epoch:"
)

type entry struct{ text, expires, account, epoch, nonce string }

func entryOf(text string) entry {
	account, epoch := expirySize, expirySize+keyfunc.DigestSize
	nonce := epoch + keyfunc.DigestSize
	return entry{text, text[:account], text[account:epoch], text[epoch:nonce], text[nonce:]}
}

// seals make and check digests. The first makes them, and all check them.
type seals []keyfunc.Digester

func (s seals) digest(text string) string { return s[0].Digest(text).String() }

func (s seals) isDigest(digest, text string) bool {
	for _, d := range s {
		if subtle.ConstantTimeCompare([]byte(d.Digest(text).String()), []byte(digest)) == 1 {
			return true
		}
	}
	return false
}

func (s *SignIn) cookieName() string { return "__Host-" + s.options.Name }

// signed is what is signed of a cookie: its name too, so that it is worth nothing for another sign-in.
func (s *SignIn) signed(list string) string { return ofCookie + s.cookieName() + "=" + list }

// entries returns the entries of r's cookie that have not expired. A cookie that does not verify, or that came twice,
// has none.
func (s *SignIn) entries(r *http.Request) (all []entry) {
	cookies := r.CookiesNamed(s.cookieName())
	if len(cookies) != 1 {
		return nil
	}
	text := cookies[0].Value
	end := strings.LastIndexByte(text, '.') + 1
	list := strings.TrimSuffix(strings.TrimPrefix(text[:end], version), ".")
	if !strings.HasPrefix(text, version) || len(list)%entrySize != 0 || len(list) > mostEntries*entrySize ||
		!s.seals.isDigest(text[end:], s.signed(text[:end])) {
		return nil
	}
	now := time.Now().Unix()
	for ; list != ""; list = list[entrySize:] {
		e := entryOf(list[:entrySize])
		if expires, err := strconv.ParseInt(e.expires, 10, 64); err == nil && now < expires {
			all = append(all, e)
		}
	}
	return all
}

// entryFor returns the entry for an account in r's cookie.
func (s *SignIn) entryFor(r *http.Request, account string) (of entry, ok bool) {
	for _, e := range s.entries(r) {
		if s.seals.isDigest(e.account, ofAccount+account) {
			return e, true
		}
	}
	return entry{}, false
}

// isKnown reports whether r's device is known to the account.
func (s *SignIn) isKnown(r *http.Request, account string) bool {
	e, ok := s.entryFor(r, account)
	if !ok {
		return false
	}
	epoch, err := s.options.Epoch(r.Context(), account)
	return err == nil && s.seals.isDigest(e.epoch, ofEpoch+epoch)
}

// isSent reports whether the header was written, as far as Weir, or a router such as gin, has seen.
func isSent(w http.ResponseWriter) bool {
	watched, isWatched := response.Behind[interface{ Status(otherwise int) int }](w)
	routers, isRouters := response.Behind[interface{ Written() bool }](w)
	return isWatched && watched.Status(0) != 0 || isRouters && routers.Written()
}

var errSent = errors.New("signin: the header was written before the cookie was set: the device stays unknown")

// Remember makes r's device known to an account, as Succeeded does, on any route, before the header is written. Call it
// where the owner has signed up, has changed the password, or has shown a code that you sent by mail. It returns an error
// if the account is empty, if Epoch returns an error, or if Weir has seen that the header was written.
func (s *SignIn) Remember(w http.ResponseWriter, r *http.Request, account string) error {
	if account = s.options.Normalize(account); account == "" {
		return errors.New("signin: Remember: the account is empty")
	}
	return s.remember(w, r, account)
}

// remember sets a cookie for an account that is normalized, with a new nonce: whoever has copied the old cookie can no
// longer use up what the device has left.
func (s *SignIn) remember(w http.ResponseWriter, r *http.Request, account string) error {
	if isSent(w) {
		return errSent
	}
	epoch, err := s.options.Epoch(r.Context(), account)
	if err != nil {
		return fmt.Errorf("signin: Epoch: %w", err)
	}
	list := version + fmt.Sprintf("%0*d", expirySize, time.Now().Add(lifetime).Unix()) +
		s.seals.digest(ofAccount+account) + s.seals.digest(ofEpoch+epoch) + rand.Text()
	for _, e := range s.entries(r) {
		if len(list) < mostEntries*entrySize && !s.seals.isDigest(e.account, ofAccount+account) {
			list += e.text
		}
	}
	list += "."
	http.SetCookie(w, &http.Cookie{
		Name: s.cookieName(), Value: list + s.seals.digest(s.signed(list)), Path: "/", MaxAge: int(lifetime.Seconds()),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	return nil
}
