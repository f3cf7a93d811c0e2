// Package counters is what counters are in Redis, for all that count there: how they are named,
// and how quotas and states are written. It decides on nothing.
package counters

import (
	"cmp"
	"encoding/binary"
	"math"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/internal/wire"
)

// Format is the version of what counters hold: a quota and a state, as decide.lua
// and lease.lua write them. It is part of names, so that processes of two versions of
// Weir on one Redis never read, or reset, what the other has written: beside each other they
// count apart. A change of what is written changes the version.
const Format = "2"

// placesFormat is the version of what counts events that are under way, as places.lua writes it.
const placesFormat = "1"

// PlacesSuffix ends the names of what counts events that are under way, beside the counter of
// the same rule. No counter is named like this: a tier's name is not empty, and has no colon.
const PlacesSuffix = "::places:" + placesFormat

// Names names counters: prefix:2:{digest}:rule, or prefix:2:{digest}:rule:tier, where 2 is
// the version of their format. The braces are a hash tag, so that in a Cluster all counters
// of one key are on one node. Only the digest of what a client sent is ever part of a name.
type Names struct {
	Prefix string // with the version
	keyfunc.Digester
}

// New is the names of a store's counters in a format. The prefix may be empty.
func New(prefix string, secret []byte, format string) Names {
	return Names{cmp.Or(prefix, wire.DefaultPrefix) + ":" + format, keyfunc.NewDigester(secret)}
}

// Tag is what stands for a key in its counters' names.
func (n *Names) Tag(key string) keyfunc.Digest { return n.Digest(key) }

// Name is the name of the counter of a key with that tag under q.
func (n *Names) Name(tag keyfunc.Digest, q *limiter.Quota) string {
	var space [128]byte
	b := append(space[:0], n.Prefix...)
	b = append(b, ":{"...)
	b = append(b, tag[:]...)
	b = append(b, "}:"...)
	b = appendName(b, q.Rule())
	if q.Tier() != "" {
		b = append(b, ':')
		b = appendName(b, q.Tier())
	}
	if q.InFlight() {
		b = append(b, PlacesSuffix...)
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

// AppendQuota writes q in 25 bytes, as it is stored too, for use at that time.
func AppendQuota(b []byte, q *limiter.Quota, at int64) []byte {
	b = append(b, byte(q.Algorithm()))
	for _, n := range q.Numbers(at) {
		b = AppendNumber(b, n)
	}
	return b
}

// AppendNumber writes an integer up to 2^53 as a double, as all numbers are in Lua.
func AppendNumber(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

// Number reads what AppendNumber, or a script, wrote.
func Number(s string) int64 {
	var b [8]byte
	copy(b[:], s)
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(b[:])))
}
