package keyfunc

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
)

// fingerprintHeaders hardly change between the requests of one client.
var fingerprintHeaders = [...]string{"User-Agent", "Accept", "Accept-Language", "Accept-Encoding"}

// Fingerprint tells clients behind one address apart, as in an office or a mobile
// network: it is a SHA-256 of what [IP] says with the same options and of the
// User-Agent, Accept, Accept-Language and Accept-Encoding headers, 46 characters
// long: "fp:" and 43 of base64url. Its error is always nil.
//
// It is worth as much as the client is honest. The headers are the client's to
// choose, and one that changes them on every request is a new client every time:
// a Fingerprint is safe only beside a rule on IP that bounds them all. On the other
// hand equal browsers in one network still share a key, and one browser may have
// two (pages and images are asked for with different Accept headers).
//
// The digest has no secret, so it does not hide an address from an attacker that tries
// them all; for that, see [Hash]. Fingerprint panics where IP does.
func Fingerprint(opts ...IPOption) Func { return must(newFingerprint(opts)) }

func newFingerprint(opts []IPOption) (Func, error) {
	ip, err := newClientIP(opts)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) (string, error) {
		key, _ := ip.key(r) // there always is one
		address, class := Classify(key)
		// Lengths and counts keep the parts apart, whatever is in them.
		var room [1024]byte // keeps the usual request off the heap
		text := appendPart(room[:0], address)
		for _, name := range fingerprintHeaders {
			lines := r.Header[name]
			text = binary.AppendUvarint(text, uint64(len(lines)))
			for _, line := range lines {
				text = appendPart(text, line)
			}
		}
		sum := sha256.Sum256(text)
		return digestKey(class, fingerprintTag, sum[:]), nil
	}, nil
}

func appendPart(text []byte, part string) []byte {
	text = binary.AppendUvarint(text, uint64(len(part)))
	return append(text, part...)
}
