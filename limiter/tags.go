package limiter

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
	"weak"

	"github.com/weirgo/weir/limiter/internal/table"
)

// How Memory gives tags to kinds of states, of which there are fewer than limits in the life of a
// process. A tag is given to another kind once no quota is bound to the one that has it, and no
// cell is written as it. That a quota is not used any more is what the garbage collector says. Its
// cells are few by then: one that carries no information is emptied, and one of another quota's is
// converted when its key returns.
//
// Nothing looks for that while a decision is taken without a lock: it reads tags that are its
// quota's own, and that quota is in use (inUse) until nothing is written as such any more. So a tag
// that is found unused stays unused until it is given away, under the register's lock.

const (
	maxTags = 32_000

	// fewTags are given before any are looked for that can be given again, or twice as many as were
	// in use then.
	fewTags = 1024

	// fewUsers bounds the quotas of a kind that are remembered though they are not used any more.
	fewUsers = 64
)

// tags are guarded by a Memory's register, but for kinds, which a cell's tag is read with.
type tags struct {
	most  int // that are ever given
	few   int
	given int // from 1 on
	free  []table.Tag
	names map[string]*kind // what a kind is known by
	kinds atomic.Pointer[[]atomic.Pointer[kind]]

	enough int       // to be given before any are looked for
	failed time.Time // when none were found
}

func (t *tags) init() {
	t.most, t.few, t.enough, t.names = maxTags, fewTags, fewTags, map[string]*kind{}
	t.kinds.Store(new([]atomic.Pointer[kind]))
}

// kind is the one of that tag.
func (m *Memory) kind(tag table.Tag) *kind { return (*m.tags.kinds.Load())[tag&^table.Boxed].Load() }

// inUse keeps the quotas of charges in use until here.
func inUse(charges []Charge) { runtime.KeepAlive(unsafe.SliceData(charges)) }

// addKind gives a tag to a kind that there is not.
func (m *Memory) addKind(k *kind, name string) error {
	tag, ok := m.newTag()
	if !ok {
		return fmt.Errorf("the store already counts for %d different limits and can take no more", m.tags.most)
	}
	for i := range k.sections {
		s := &k.sections[i]
		settles := s.quota.Settles
		s.quota = compiled(s.quota.limit) // as that one is not to be in use for ever
		s.quota.Settles = settles
		s.quota.WindowAt(m.origin) // so that its calendar remembers that window
	}
	k.tag, k.users = tag, map[weak.Pointer[Quota]]struct{}{}
	if k.words > 0 || k.sections[0].form == inRun {
		k.tag |= table.Boxed
	}
	m.tags.set(tag, k)
	m.tags.names[name] = k
	return nil
}

func (t *tags) set(tag table.Tag, k *kind) {
	kinds := *t.kinds.Load()
	if int(tag) >= len(kinds) {
		grown := make([]atomic.Pointer[kind], max(16, 2*len(kinds)))
		for i := range kinds {
			grown[i].Store(kinds[i].Load())
		}
		kinds = grown
		t.kinds.Store(&grown)
	}
	kinds[tag].Store(k)
}

// use notes that q is bound to k.
func (k *kind) use(q *Quota) {
	k.users[weak.Make(q)] = struct{}{}
	if len(k.users) > 2*k.pruned+fewUsers {
		k.isUsed()
	}
}

// isUsed reports whether a quota is bound to k, and forgets those that are not used any more.
func (k *kind) isUsed() bool {
	for q := range k.users {
		if q.Value() == nil {
			delete(k.users, q)
		}
	}
	k.pruned = len(k.users)
	return k.pruned > 0
}

// newTag is a tag that no kind has.
func (m *Memory) newTag() (table.Tag, bool) {
	t := &m.tags
	if len(t.free) == 0 && t.given >= t.enough {
		m.reclaim()
	}
	if len(t.free) == 0 && t.given >= t.most && time.Since(t.failed) >= time.Second {
		runtime.GC() // it may be long since it looked
		if m.reclaim(); len(t.free) == 0 {
			t.failed = time.Now()
		}
	}
	switch n := len(t.free); {
	case n > 0:
		tag := t.free[n-1]
		t.free = t.free[:n-1]
		return tag, true
	case t.given >= t.most:
		return 0, false
	}
	t.given++
	return table.Tag(t.given), true
}

// reclaim finds the tags that can be given again. It locks one shard after the other, each for as
// long as it takes to look through it.
func (m *Memory) reclaim() {
	t := &m.tags
	if time.Since(t.failed) < time.Second {
		return
	}
	unused := make([]bool, t.given+1) // by tag
	for _, k := range t.names {
		unused[k.tag&^table.Boxed] = !k.isUsed()
	}
	remains := make([]bool, t.given+1)
	look := func(s *table.Shard) {
		s.Lock()
		defer s.Unlock()
		s.Now = m.now()
		s.Retire(
			func(tag table.Tag) bool { return unused[tag&^table.Boxed] },
			func(tag table.Tag) { remains[tag&^table.Boxed] = true },
			judge{m},
		)
	}
	for i := range m.table.Shards() {
		look(m.table.Shard(i))
	}
	look(m.overflow)
	for name, k := range t.names {
		if tag := k.tag &^ table.Boxed; unused[tag] && !remains[tag] {
			delete(t.names, name)
			t.set(tag, nil)
			t.free = append(t.free, tag)
		}
	}
	t.enough = min(t.most, max(t.few, 2*len(t.names)))
}
