// Package counters says how counters in Redis are named and written. Its Lua loads and saves them, and decides only
// where several limits use one counter.
package counters

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"math"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
	"github.com/weirgo/weir/redis/internal/wire"
)

// Format is the version of a counter's value: quotas and states, as counter.lua and shape.lua write them. It is part of
// the names, so two versions of Weir on one Redis count apart and never read or reset each other's values. Whoever
// changes what is written changes the version.
const Format = "3"

// slotsFormat is the version of a value that counts slots in use, as slots.lua writes it.
const slotsFormat = "2"

// SlotsSuffix ends the names of values that count slots in use. No other counter has such a name: a
// tier's name is not empty, and its colons are escaped.
const SlotsSuffix = "::places:" + slotsFormat

// Names makes the names of counters: prefix:3:{digest}:rule, or prefix:3:{digest}:rule:tier. 3 is the
// version of the format. The braces are a hash tag, so in a Cluster all counters of a key are on one
// node. What a client has sent is in a name only as a digest.
type Names struct {
	Prefix string // with the version
	keyfunc.Digester
}

// New returns the names of a store's counters in a format. An empty prefix is wire.DefaultPrefix.
func New(prefix string, secret []byte, format string) Names {
	return Names{cmp.Or(prefix, wire.DefaultPrefix) + ":" + format, keyfunc.NewDigester(secret)}
}

// Name is the name of a key's counter under q. tag is the key's digest.
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
		b = append(b, SlotsSuffix...)
	}
	return string(b)
}

// appendName escapes colons, as a URL does: a colon separates the parts of a name.
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

// AppendQuota writes q in 25 bytes, as it is also stored. Of a calendar, these are of the window at
// that time.
func AppendQuota(b []byte, q *limiter.Quota, at int64) []byte {
	b = append(b, byte(q.Algorithm()))
	for _, n := range q.Numbers(at) {
		b = AppendNumber(b, n)
	}
	return b
}

// AppendQuotas writes quotas for [Lua]: each in 25 bytes, and in one whether it settles.
func AppendQuotas(b []byte, quotas []*limiter.Quota, at int64) []byte {
	for _, q := range quotas {
		settles := byte(0)
		if q.Settles {
			settles = 1
		}
		b = append(AppendQuota(b, q, at), settles)
	}
	return b
}

var (
	//go:embed counter.lua
	counterLua string

	//go:embed shape.lua
	shapeLua string
)

// Lua has the algorithms, and reads and writes counters.
var Lua = store.Lua() + counterLua + shapeLua

// AppendNumber writes an integer up to 2^53 as a double, Lua's only number.
func AppendNumber(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

// Number reads what AppendNumber or a script has written.
func Number(s string) int64 {
	var b [8]byte
	copy(b[:], s)
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(b[:])))
}
