package limiter

import "github.com/weirgo/weir/limiter/internal/table"

// A cell's tag says how to read its word. heldTag marks the index of a state behind the lock. The other tags
// are numbers of limits: a word is the packed state of a key under that limit.
const (
	heldTag  table.Tag = 1
	firstTag table.Tag = 2

	// mostTags bounds how many limits have words at a time. States of further limits are held behind the
	// lock.
	mostTags = 4096
)

// tags are the limits that have words in a Memory.
//
// A tag is never given to another limit while a cell has it. When all tags are given, retag looks which of
// them cells still have, and replaces the tags as a whole. So a binding of the former tags is recognised as
// outdated: code that works without the shards' locks must compare it after it has read a cell, and code that
// gives a cell its tag must compare it under the lock.
type tags struct {
	limits [int(firstTag) + mostTags]*Quota // by tag; nil: the tag is free
	of     map[Limit]table.Tag
	free   []table.Tag
	next   int64 // when retag may look again
}

// retagEvery is the least number of microseconds between two calls of retag, which looks at each cell.
const retagEvery = 1_000_000

// tagOf returns the tag of q's limit, and gives it one if it is new.
func (m *Memory) tagOf(q *Quota) table.Tag {
	if !q.fitsWord() {
		return heldTag
	}
	t := m.tags.Load()
	if tag, ok := t.of[q.limit]; ok {
		return tag
	}
	if len(t.free) == 0 && m.now() >= t.next {
		t = m.retag()
	}
	if len(t.free) == 0 {
		return heldTag
	}
	tag := t.free[0]
	t.free = t.free[1:]
	t.limits[tag], t.of[q.limit] = compiled(q.limit), tag
	return tag
}

// retag frees the tags that no cell has any more. It drops idle cells, and locks the shards one by one.
func (m *Memory) retag() *tags {
	before := m.tags.Load()
	t := &tags{limits: before.limits, of: map[Limit]table.Tag{}, next: m.now() + retagEvery}
	m.tags.Store(t) // from now on no cell gets one of the former tags
	var used [len(t.limits)]bool
	for i := range m.shards {
		s := &m.shards[i]
		s.Lock()
		s.now = m.now()
		s.Tags(func(tag table.Tag) { used[tag] = true })
		s.Unlock()
	}
	for i := range mostTags {
		tag := firstTag + table.Tag(i)
		if used[tag] {
			t.of[t.limits[tag].limit] = tag
		} else {
			t.limits[tag] = nil
			t.free = append(t.free, tag)
		}
	}
	return t
}

func newTags() *tags {
	t := &tags{of: map[Limit]table.Tag{}}
	for i := range mostTags {
		t.free = append(t.free, firstTag+table.Tag(i))
	}
	return t
}

// writtenUnder returns a quota with the limit under which words of a tag are written.
func (m *Memory) writtenUnder(tag table.Tag) *Quota { return m.tags.Load().limits[tag] }
