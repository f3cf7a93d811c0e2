package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"sync"
)

// A digestSpace is what a digest is made in. What is given to a hash is on the heap, and
// every request looks for its key while something is banned.
type digestSpace struct {
	key [256]byte
	sum [sha256.Size]byte
}

var digestSpaces = sync.Pool{New: func() any { return new(digestSpace) }}

// tagInPlace is tag, and allocates nothing for keys of up to 256 bytes.
func (k *keys) tagInPlace(key string) (tag [tagSize]byte) {
	space := digestSpaces.Get().(*digestSpace)
	defer digestSpaces.Put(space)
	text := append(space.key[:0], key...)
	if k.macs == nil {
		space.sum = sha256.Sum256(text)
	} else {
		mac := k.macs.Get().(hash.Hash)
		defer k.macs.Put(mac)
		mac.Reset()
		mac.Write(text) // which cannot fail
		mac.Sum(space.sum[:0])
	}
	base64.RawURLEncoding.Encode(tag[:], space.sum[:16])
	return tag
}
