// Package bounded has a map of at most N keys.
package bounded

import "sync"

// A Map has at most Most keys. To make room for a new key it looks at a few random keys, and evicts an idle one, or
// else any of them. Many goroutines may use it. Its values must be such that the caller can make them again.
type Map[K comparable, V any] struct {
	Most   int
	IsIdle func(V) bool // nil: no value is idle

	mu sync.RWMutex
	of map[K]V
}

// few is how many keys eviction looks at.
const few = 16

// Get returns the value of a key. If there is none, make makes it. Of callers at once, all get the value that is stored
// first. A value with an error is not stored.
func (m *Map[K, V]) Get(key K, make func() (V, error)) (V, error) {
	m.mu.RLock()
	value, ok := m.of[key]
	m.mu.RUnlock()
	if ok {
		return value, nil
	}
	made, err := make()
	if err != nil {
		return made, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, ok = m.of[key]; ok {
		return value, nil
	}
	if len(m.of) >= m.Most {
		m.evict()
	}
	if m.of == nil {
		m.of = map[K]V{}
	}
	m.of[key] = made
	return made, nil
}

func (m *Map[K, V]) evict() {
	var victim K
	n := 0
	for key, value := range m.of { // in an order that is different each time
		victim = key
		if n++; n == few || m.IsIdle == nil || m.IsIdle(value) {
			break
		}
	}
	delete(m.of, victim)
}

// Clear removes all keys.
func (m *Map[K, V]) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.of)
}

// Each calls f with each value, under the map's lock.
func (m *Map[K, V]) Each(f func(V)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, value := range m.of {
		f(value)
	}
}
