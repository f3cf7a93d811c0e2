package bans

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// An id is what a key is held as: the key, or for a long one a digest, as who is banned
// may choose its length. A key that looks like a digest is held as one of itself, so
// that nobody can have the id of somebody else's long key.

const (
	longestKey   = 256
	digestPrefix = "sha256:"
	digestSize   = len(digestPrefix) + 22 // 128 bits in base64
)

// isLong tells that a key is held as its digest.
func isLong(key string) bool { return len(key) > longestKey || strings.HasPrefix(key, digestPrefix) }

func isDigest(id string) bool { return len(id) == digestSize && strings.HasPrefix(id, digestPrefix) }

func digest(key string) (id [digestSize]byte) {
	sum := sha256.Sum256([]byte(key))
	copy(id[:], digestPrefix)
	base64.RawURLEncoding.Encode(id[len(digestPrefix):], sum[:16])
	return id
}

func idOf(key string) string {
	if !isLong(key) {
		return key
	}
	id := digest(key)
	return string(id[:])
}
