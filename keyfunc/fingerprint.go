package keyfunc

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
)

// fingerprintHeaders hardly change between the requests of one client.
var fingerprintHeaders = [...]string{"User-Agent", "Accept", "Accept-Language", "Accept-Encoding"}

// Fingerprint distinguishes clients behind one address, as in an office or a mobile network. The key
// is "fp:" and 43 characters of base64url: a SHA-256 of the key of [IP] with the same options, and of
// the headers User-Agent, Accept, Accept-Language and Accept-Encoding. Its error is always nil.
//
// The client chooses these headers, and a client that changes them with each request has a new key
// each time. So a Fingerprint is safe only beside a rule on IP. Equal browsers in one network share a
// key, and one browser may have two, because it requests pages and images with different Accept
// headers.
//
// The digest has no secret: an attacker can find the address by trying all of them. For secrecy use
// [Hash]. Fingerprint panics if IP would.
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
