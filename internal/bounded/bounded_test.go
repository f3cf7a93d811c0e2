package bounded_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/bounded"
)

func TestAMapKeepsItsBoundAndEvictsIdleValuesFirst(t *testing.T) {
	m := bounded.Map[int, *bool]{Most: 10, IsIdle: func(idle *bool) bool { return *idle }}
	get := func(key int, idle bool) *bool {
		value, err := m.Get(key, func() (*bool, error) { return &idle, nil })
		require.NoError(t, err)
		return value
	}
	busy := map[int]*bool{}
	for key := range 9 {
		busy[key] = get(key, false)
	}
	for key := 100; key < 200; key++ {
		get(key, true)
	}
	for key, value := range busy {
		assert.Same(t, value, get(key, true), "a value that is not idle stays while others are idle")
	}
	for key := 200; key < 300; key++ {
		get(key, false)
	}
	n := 0
	m.Each(func(*bool) { n++ })
	assert.Equal(t, 10, n, "if none is idle, any makes room")
	m.Clear()
	m.Each(func(*bool) { t.Error("a cleared map has a value") })
}

func TestAValueWithAnErrorIsNotKept(t *testing.T) {
	m := bounded.Map[string, int]{Most: 1}
	_, err := m.Get("key", func() (int, error) { return 1, errors.New("no value") })
	require.Error(t, err)
	value, err := m.Get("key", func() (int, error) { return 2, nil })
	require.NoError(t, err)
	assert.Equal(t, 2, value)
}

func TestCallersAtOnceGetOneValue(t *testing.T) {
	m := bounded.Map[string, *int]{Most: 1}
	var all sync.WaitGroup
	values := make([]*int, 8)
	for i := range values {
		all.Go(func() { values[i], _ = m.Get("key", func() (*int, error) { return new(int), nil }) })
	}
	all.Wait()
	for _, value := range values {
		assert.Same(t, values[0], value)
	}
}
