package limiter_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

func TestMustPanicsWithWhatIsWrong(t *testing.T) {
	assert.PanicsWithError(t, "limiter: the rule name is empty", func() { limiter.Must(limiter.New(limiter.Config{Limit: limiter.PerSecond(1)})) })
	assert.NotNil(t, limiter.Must(limiter.New(limiter.Config{Name: "api", Limit: limiter.PerSecond(1)})))
}

func TestLimitersOfOneStoreCountApartByTheirNames(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
		mail := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(2), Store: m}))
		again := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(2), Store: m}))
		text := limiter.Must(limiter.New(limiter.Config{Name: "text", Limit: limiter.PerHour(2), Store: m}))
		alone := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(2)}))
		for _, tt := range []struct {
			l    *limiter.Limiter
			want int64
		}{{mail, 1}, {again, 0}, {text, 1}, {alone, 1}} {
			assert.Equal(t, tt.want, ask(t, tt.l, "user", 1).Remaining)
		}
	})
}

func TestALimiterTakesLooksGivesBackAndResets(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
		for name, store := range map[string]limiter.Store{"Memory": m, "another store": struct{ limiter.Store }{m}} {
			l := limiter.Must(limiter.New(limiter.Config{Name: name, Limit: limiter.PerHour(5).With(limiter.FixedWindow), Store: store}))
			assert.True(t, ask(t, l, "key", 3).Allowed)
			assert.Equal(t, int64(2), remaining(t, l, "key"), name)
			assert.False(t, ask(t, l, "key", 3).Allowed)
			require.NoError(t, l.Refund(ctx, "key", 1, limiter.Decision{}))
			assert.Equal(t, int64(3), remaining(t, l, "key"), name)
			require.NoError(t, l.Reset(ctx, "key"))
			assert.Equal(t, int64(5), remaining(t, l, "key"), name)

			_, err := l.AllowN(ctx, "key", -1)
			require.ErrorIs(t, err, limiter.ErrCharges)
			require.ErrorIs(t, l.Refund(ctx, "key", -1, limiter.Decision{}), limiter.ErrCharges)
		}
	})
}

// brokenStore can't decide.
type brokenStore struct{ limiter.Store }

var errOutage = errors.New("the store is away")

func (brokenStore) Decide(context.Context, []limiter.Charge) error { return errOutage }

func TestMemoryDoesNotLookAtTheContext(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		d, err := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(5)})).Allow(ctx, "key")
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	})
}

func TestNewRefusesAMemoryThatNewMemoryDidNotMake(t *testing.T) {
	for _, m := range []*limiter.Memory{nil, {}} {
		_, err := limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(5), Store: m})
		assert.ErrorContains(t, err, "Store is a Memory that NewMemory did not make")
	}
}

func TestNewWarnsOfASharedCounter(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })

	m := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(5), Store: m}))
	limiter.Must(limiter.New(limiter.Config{Name: "sms", Limit: limiter.PerHour(5), Store: m}))
	assert.Empty(t, log.String())
	limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(5), Store: m}))
	assert.Contains(t, log.String(), "code=weir-shared-counter rule=mail")
}
