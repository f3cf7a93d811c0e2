package keyfunc

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strings"
	"sync"

	"github.com/weirgo/weir/internal/invalid"
)

// DigestSize is the length of a [Digest] as text: 128 bits in base64url.
const DigestSize = 22

// A Digest is a text that stands for a key where the key itself is not shown or stored: in Redis, in
// logs, in lists of bans and on the operator's page. With one secret it is the same everywhere.
type Digest [DigestSize]byte

// String is the digest as text.
func (d Digest) String() string { return string(d[:]) }

// Key returns a key whose digest is d. Every [Digester] of this process turns it into d again. With it
// an operator who has only the digest can look up counters and bans in Redis, which stores them under
// digests. It finds nothing in limiter.Memory, which stores the keys themselves. Clients cannot send
// such a key.
func (d Digest) Key() string { return digestMark + string(d[:]) }

// digestMark is drawn at random, as the marks of a [Class] are.
var digestMark = "\x00digest:" + drawn + ":"

// DigestOf returns the digest in a key, and reports whether [Digest.Key] made the key.
func DigestOf(key string) (Digest, bool) {
	if key == "" || key[0] != 0 {
		return Digest{}, false
	}
	text, ok := strings.CutPrefix(key, digestMark)
	if !ok {
		return Digest{}, false
	}
	return ParseDigest(text)
}

// ParseDigest reads a digest, and reports whether the text can be one.
func ParseDigest(text string) (d Digest, ok bool) {
	if len(text) != DigestSize {
		return Digest{}, false
	}
	copy(d[:], text)
	var sum [DigestSize]byte
	_, err := base64.RawURLEncoding.Strict().Decode(sum[:], d[:])
	return d, err == nil && !strings.ContainsAny(text, "\r\n") // which base64 would skip
}

// A Digester makes digests, by HMAC-SHA-256 with a secret and by SHA-256 without. Without a secret
// anybody can find the address, name or e-mail address behind a digest within minutes, by trying all.
// The zero Digester has no secret.
type Digester struct {
	macs *sync.Pool // of hash.Hash under the secret; nil without one
}

// NewDigester returns a Digester under a secret, which may be empty. The caller may overwrite
// the secret afterwards.
func NewDigester(secret []byte) Digester {
	if len(secret) == 0 {
		return Digester{}
	}
	secret = bytes.Clone(secret)
	return Digester{&sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
}

// CheckSecret returns an error, whose text begins with pkg, if secret is so short that it could be
// guessed. An empty secret is no error.
func CheckSecret(pkg string, secret []byte) error {
	if n := len(secret); n > 0 && n < minSecret {
		return invalid.New(pkg, "Secret has %d bytes: it must have at least %d, or none", n, minSecret)
	}
	return nil
}

// A digestSpace is what a digest is made in. What is given to a hash is on the heap, and
// every request needs one.
type digestSpace struct {
	key [256]byte
	sum [sha256.Size]byte
}

var digestSpaces = sync.Pool{New: func() any { return new(digestSpace) }}

// Digest returns the digest of a key's text, without its [Class]. It does not allocate for keys of up
// to 256 bytes.
func (d Digester) Digest(key string) (digest Digest) {
	if known, ok := DigestOf(key); ok {
		return known
	}
	key, _ = Classify(key)
	sum := d.sum(key)
	base64.RawURLEncoding.Encode(digest[:], sum[:16])
	return digest
}

// sum is the whole hash of a text.
func (d Digester) sum(key string) [sha256.Size]byte {
	space := digestSpaces.Get().(*digestSpace)
	defer digestSpaces.Put(space)
	text := append(space.key[:0], key...)
	if d.macs == nil {
		space.sum = sha256.Sum256(text)
	} else {
		mac := d.macs.Get().(hash.Hash)
		defer d.macs.Put(mac)
		mac.Reset()
		mac.Write(text) // which cannot fail
		mac.Sum(space.sum[:0])
	}
	return space.sum
}
