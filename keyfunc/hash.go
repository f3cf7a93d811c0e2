package keyfunc

import (
	"encoding/base64"
	"fmt"
	"net/http"
)

// minSecret is 128 bits: too many to try out.
const minSecret = 16

// Hash is the HMAC-SHA-256 of f's key under a secret: "hash:" and 43 characters of base64url. Use it
// to keep API keys, e-mail addresses or IPs out of stores and logs.
//
// A hash without a secret would not hide them, as an attacker can try all addresses and e-mails. Give
// all replicas that share a store the same secret, and use it for nothing else. With a new secret all
// counters start anew. The key's [Class] stays.
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
