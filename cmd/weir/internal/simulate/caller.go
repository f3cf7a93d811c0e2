package simulate

import (
	"hash/maphash"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/demand"
)

// A caller is the other end of connections. What most of its requests need is found through it:
// to look a key up among a hundred thousand takes longer than to decide about it.
type caller struct {
	name   string // in the log: a part of addr
	addr   string // as net/http has it
	client string // that is one without any header field; empty: not known yet
	number int    // of that client
	cells  []*cell
	first  [2]*cell // room for cells
	// The key that a meter counts its requests by, mostly, and what that asked for.
	key   string
	asked *demand.Key
}

// mostCells bounds how many a caller holds: beyond that, a map is no slower.
const mostCells = 8

// hold has the caller's next requests find a cell.
func (c *caller) hold(found *cell) {
	if len(c.cells) < mostCells {
		if c.cells == nil {
			c.cells = c.first[:0]
		}
		c.cells = append(c.cells, found)
	}
}

// keep is a key to be kept. Its text may be a part of a long one, such as a log's. That of an
// address is kept where the next request has it, too: texts in one place are compared at once.
func (c *caller) keep(key string) string {
	switch {
	case key == c.client:
		return c.client
	case strings.HasPrefix(c.addr, key):
		return c.addr[:len(key)]
	}
	return strings.Clone(key)
}

// callers are those of a log, by what it calls them. It is a hash table that is written out, as
// to find a caller in a map of Go's takes more waits for memory, which are most of the time.
type callers struct {
	seed  maphash.Seed
	slots []slot // a power of two, a quarter to a half of them taken
	n     int
	room  []caller
	read  uint64 // so that expect is not for nothing, as a compiler sees it
}

type slot struct {
	hash uint64
	*caller
}

// atOnce is how many callers and cells share an allocation.
const atOnce = 64

func newCallers() *callers {
	return &callers{seed: maphash.MakeSeed(), slots: make([]slot, 1024)}
}

// of is the caller of that name.
func (c *callers) of(name string) *caller {
	hash := maphash.String(c.seed, name)
	at := hash & uint64(len(c.slots)-1)
	for ; c.slots[at].caller != nil; at = (at + 1) & uint64(len(c.slots)-1) {
		if s := &c.slots[at]; s.hash == hash && s.name == name {
			return s.caller
		}
	}
	if len(c.room) == 0 {
		c.room = make([]caller, atOnce)
	}
	added := &c.room[0]
	c.room = c.room[1:]
	added.addr = remoteAddr(name)
	begin := strings.Index(added.addr, name)
	added.name = added.addr[begin : begin+len(name)]
	c.slots[at] = slot{hash, added}
	if c.n++; c.n > len(c.slots)/2 {
		c.grow()
	}
	return added
}

// grow doubles the slots.
func (c *callers) grow() {
	slots := make([]slot, 2*len(c.slots))
	for _, s := range c.slots {
		if s.caller == nil {
			continue
		}
		at := s.hash & uint64(len(slots)-1)
		for slots[at].caller != nil {
			at = (at + 1) & uint64(len(slots)-1)
		}
		slots[at] = s
	}
	c.slots = slots
}

// remoteAddr is the other end of the connection, as net/http has it.
func remoteAddr(client string) string {
	switch {
	case client == accesslog.UnixSocket || client == "":
		return "@"
	case strings.IndexByte(client, ':') >= 0:
		return "[" + client + "]:1024"
	}
	return client + ":1024"
}

// expect has what is known of callers at hand when their requests come: to wait for memory once for
// several of them takes a fraction of the time that it takes for each.
func (c *callers) expect(coming []*accesslog.Entry) {
	var hashes [expected]uint64
	mask, read := uint64(len(c.slots)-1), uint64(0)
	coming = coming[:min(len(coming), expected)]
	for i, e := range coming {
		hashes[i] = maphash.String(c.seed, e.Client)
		read += c.slots[hashes[i]&mask].hash
	}
	for i := range coming {
		if at := c.slots[hashes[i]&mask].caller; at != nil {
			read += uint64(at.number) + uint64(len(at.name))
		}
	}
	for i := range coming {
		if at := c.slots[hashes[i]&mask].caller; at != nil {
			read += at.read()
		}
	}
	c.read = read
}

// expected is of how many requests at once.
const expected = 16

// read reads some of each part of what is known of a caller.
func (c *caller) read() (sum uint64) {
	if len(c.addr) > 0 {
		sum += uint64(c.addr[0])
	}
	for _, cell := range c.cells {
		sum += uint64(cell.state.Last)
	}
	if c.asked != nil {
		sum += c.asked.Read()
	}
	return sum
}
