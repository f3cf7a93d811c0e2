package redisstore

import (
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// keys names counters: prefix:1:{digest}:rule, or prefix:1:{digest}:rule:tier, where 1 is
// the version of their format. The braces are a hash tag, so that in a Cluster all counters
// of one key are on one node. Only the digest of what a client sent is ever part of a name.
type keys struct {
	formats
	prefix string // with the version
	digest keyfunc.Digester
}

func newKeys(prefix string, secret []byte) keys { return current.newKeys(prefix, secret) }

func (f formats) newKeys(prefix string, secret []byte) keys {
	return keys{formats: f, prefix: prefix + ":" + f.counters, digest: keyfunc.NewDigester(secret)}
}

const tagSize = keyfunc.DigestSize

func (k *keys) tag(key string) [tagSize]byte { return k.digest.Digest(key) }

// name is the counter's name.
func (k *keys) name(tag [tagSize]byte, q *limiter.Quota) string {
	var space [128]byte
	b := append(space[:0], k.prefix...)
	b = append(b, ":{"...)
	b = append(b, tag[:]...)
	b = append(b, "}:"...)
	b = appendName(b, q.Rule())
	if q.Tier() != "" {
		b = append(b, ':')
		b = appendName(b, q.Tier())
	}
	return string(b)
}

// appendName escapes the colon, which separates, as in a URL.
func appendName(b []byte, name string) []byte {
	if !strings.ContainsAny(name, ":%") {
		return append(b, name...)
	}
	for _, c := range []byte(name) {
		switch c {
		case ':':
			b = append(b, "%3A"...)
		case '%':
			b = append(b, "%25"...)
		default:
			b = append(b, c)
		}
	}
	return b
}

// slots is how many a Redis Cluster has.
const slots = 16384

// slot is where in a Cluster the keys with this tag are: CRC16 (XMODEM) of the tag, as
// the Redis Cluster specification says.
func slot(tag [tagSize]byte) uint16 { return slotOf(tag[:]) }

func slotOf(text []byte) uint16 {
	crc := uint16(0)
	for _, c := range text {
		crc = crc<<8 ^ crc16[byte(crc>>8)^c]
	}
	return crc % slots
}

var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
