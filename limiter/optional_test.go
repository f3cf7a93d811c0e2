package limiter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// around is a store around another one; it may be around itself.
type around struct{ Store }

func (a *around) Unwrap() Store { return a.Store }

func TestAsFindsWhatAStoreSaysThroughWrappers(t *testing.T) {
	m, err := NewMemory(MemoryOptions{})
	require.NoError(t, err)
	for range 3 {
		found, ok := As[Claimer](&around{&around{m}})
		require.True(t, ok)
		assert.Same(t, m, found)
	}
	_, ok := As[Claimer](struct{ Store }{m})
	assert.False(t, ok, "it does not say that it is around another")
	_, ok = As[interface{ Flush() }](&around{m})
	assert.False(t, ok)
	_, ok = As[Claimer](nil)
	assert.False(t, ok)
	_, ok = As[Claimer](&around{})
	assert.False(t, ok, "it is around nothing")
	loop := &around{}
	loop.Store = loop
	_, ok = As[Claimer](loop)
	assert.False(t, ok, "the search ends")
}

// The rule of a wrapped store is claimed in that store.
func TestNewAsksAWrappedStore(t *testing.T) {
	m, err := NewMemory(MemoryOptions{})
	require.NoError(t, err)
	Must(New(Config{Name: "mail", Limit: PerHour(5), Store: &around{m}}))
	assert.ErrorIs(t, m.Claim("mail"), ErrClaimed)
}
