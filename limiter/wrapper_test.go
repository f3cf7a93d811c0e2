package limiter_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

// around is a store around another one; it may be around itself.
type around struct{ limiter.Store }

func (a *around) Unwrap() limiter.Store { return a.Store }

func TestAsFindsWhatAStoreSaysThroughWrappers(t *testing.T) {
	m, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	found, ok := limiter.As[limiter.Claimer](&around{&around{m}})
	require.True(t, ok)
	assert.Same(t, m, found)
	_, ok = limiter.As[limiter.Claimer](struct{ limiter.Store }{m})
	assert.False(t, ok, "it does not say that it is around another")
	_, ok = limiter.As[interface{ Flush() }](&around{m})
	assert.False(t, ok)
	_, ok = limiter.As[limiter.Claimer](nil)
	assert.False(t, ok)
	_, ok = limiter.As[limiter.Claimer](&around{})
	assert.False(t, ok, "it is around nothing")
	loop := &around{}
	loop.Store = loop
	_, ok = limiter.As[limiter.Claimer](loop)
	assert.False(t, ok, "the search ends")
}

// choosy is a store that counts no quota.
type choosy struct{ limiter.Store }

var errChoosy = errors.New("not this one")

func (choosy) Check(*limiter.Quota) error { return errChoosy }

func TestNewAsksAWrappedChecker(t *testing.T) {
	s := &around{choosy{}}
	var _ limiter.Checker = choosy{}
	quota, err := limiter.NewQuota("mail", "", limiter.PerHour(5))
	require.NoError(t, err)
	require.ErrorIs(t, limiter.CheckQuota(s, quota), errChoosy)
	_, err = limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(5), Store: s})
	require.ErrorIs(t, err, errChoosy)
}

func TestAStoreWithoutCheckCountsAllButSlots(t *testing.T) {
	s := struct{ limiter.Store }{}
	rate, err := limiter.NewQuota("mail", "", limiter.PerHour(5))
	require.NoError(t, err)
	require.NoError(t, limiter.CheckQuota(s, rate))
	slots, err := limiter.NewConcurrency("exports", "", 5)
	require.NoError(t, err)
	require.ErrorContains(t, limiter.CheckQuota(s, slots), `cannot count slots, as "exports" needs`)
}

// The rule of a wrapped store is claimed in that store.
func TestNewAsksAWrappedStore(t *testing.T) {
	m, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(5), Store: &around{m}}))
	assert.ErrorIs(t, m.Claim("mail"), limiter.ErrClaimed)
}
