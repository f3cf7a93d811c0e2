package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"sync"
)

// TagSize is how long a digest is as text: 128 bits in base64.
const TagSize = 22

// A Tag is the digest of a key as text. Nothing else of what a client sent is ever in Redis.
type Tag = [TagSize]byte

// A Digester makes digests, under a secret if there is one.
type Digester struct {
	macs *sync.Pool // of hash.Hash under the secret; nil without one
}

// NewDigester returns a Digester under a secret, which may be empty, and which the caller may
// wipe.
func NewDigester(secret []byte) Digester {
	if len(secret) == 0 {
		return Digester{}
	}
	secret = bytes.Clone(secret)
	return Digester{&sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
}

// A digestSpace is what a digest is made in. What is given to a hash is on the heap, and
// every request needs one.
type digestSpace struct {
	key [256]byte
	sum [sha256.Size]byte
}

var digestSpaces = sync.Pool{New: func() any { return new(digestSpace) }}

// Tag is the digest of a key. It allocates nothing for keys of up to 256 bytes.
func (d Digester) Tag(key string) (tag Tag) {
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
	base64.RawURLEncoding.Encode(tag[:], space.sum[:16])
	return tag
}

// IsTag tells that a text can be a digest.
func IsTag(s string) bool {
	if len(s) != TagSize {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
