package keyfunc

import (
	"encoding/base64"
	"fmt"
	"net/http"
)

// minSecret is 128 bits: too many to try out.
const minSecret = 16

// Hash is the key of f as HMAC-SHA-256 under a secret, 48 characters whatever the
// length of the key: "hash:" and 43 of base64url. Use it where keys are kept or
// seen by others and must not give away an API key, an e-mail address or an IP.
//
// A hash without a secret would not hide them: there are few enough addresses and
// e-mails to try them all. Give every replica that shares a store the same secret,
// and no other use to it; with a new secret all counters start anew. The [Class] of the key
// stays what it is.
//
// Hash copies secret. It panics if secret is shorter than 16 bytes or f is nil.
func Hash(secret []byte, f Func) Func {
	if len(secret) < minSecret {
		panic(fmt.Sprintf("keyfunc: Hash: the secret has %d bytes; it needs at least %d of random data",
			len(secret), minSecret))
	}
	f = mustFuncs("Hash", []Func{f})[0]
	digester := NewDigester(secret)
	return func(r *http.Request) (string, error) {
		key, err := f.key(r)
		if err != nil {
			return "", err
		}
		key, class := Classify(key)
		sum := digester.sum(key)
		return digestKey(class, hashTag, sum[:]), nil
	}
}

// digestKey is a digest as the text of a key.
func digestKey(class Class, tag string, sum []byte) string {
	var text [80]byte // for the longest mark, too
	return string(base64.RawURLEncoding.AppendEncode(append(append(text[:0], class.mark()...), tag...), sum))
}
