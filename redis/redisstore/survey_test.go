package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

// A scanned is a client that answers SCAN by itself, with pages of no counters, and notes when.
type scanned struct {
	pages int // of a pass
	dead  bool

	mu sync.Mutex
	at []time.Time
}

func (s *scanned) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scanned) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *scanned) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		switch cmd := cmd.(type) {
		case *redis.IntCmd: // DBSIZE
			cmd.SetVal(int64(s.pages) * topPage)
		case *redis.ScanCmd:
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.dead {
				cmd.SetErr(errors.New("it is dead"))
				return cmd.Err()
			}
			s.at = append(s.at, time.Now())
			cmd.SetVal(nil, uint64((len(s.at))%s.pages))
		}
		return nil
	}
}

func TestASurveyAsksNoMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &scanned{pages: 100}
		client := redis.NewClient(&redis.Options{})
		client.AddHook(fake)
		defer client.Close()
		s, err := NewSurvey(client, 10, TopOptions{Rate: 1000})
		require.NoError(t, err)
		begun := time.Now()
		var ends []time.Duration
		for range 12 {
			looked := time.Now()
			found, err := s.Look(t.Context(), time.Second)
			require.NoError(t, err)
			if !found.Ended {
				require.Equal(t, time.Second, time.Since(looked), "a caller that looks again and again asks no more")
			} else {
				ends = append(ends, time.Since(begun))
				assert.Equal(t, int64(100*topPage), found.Last.Looked)
				assert.Equal(t, found.Pass.Keys, found.Last.Keys)
			}
			time.Sleep(time.Millisecond)
		}
		require.Len(t, ends, 2, "a pass of 5000 keys takes 5 seconds")
		for i, at := range fake.at {
			j, _ := slices.BinarySearchFunc(fake.at, at.Add(time.Second), time.Time.Compare)
			require.LessOrEqual(t, j-i, 1000/topPage+1, "in any second")
		}
		assert.Greater(t, len(fake.at), 190, "and nearly as much as it may")

		fake.dead = true
		_, err = s.Look(t.Context(), time.Second)
		require.ErrorContains(t, err, "it is dead")
		fake.dead = false
		found, err := s.Look(t.Context(), time.Second)
		require.NoError(t, err, "it begins a new pass")
		assert.NotNil(t, found.Last)
		assert.LessOrEqual(t, found.Pass.Looked, int64(1000+topPage))

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = s.Look(ctx, time.Hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestASurveyKnowsWhatHasChangedSince(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	store := New(client, Options{})
	q, err := limiter.NewQuota("rule", "", limiter.PerHour(100).With(limiter.SlidingLog))
	require.NoError(t, err)
	for i := range 300 {
		require.True(t, decideOne(t, store, q, fmt.Sprint("key", i), 1).Allowed)
	}
	require.True(t, decideOne(t, store, q, "hot", 100).Allowed)
	s, err := NewSurvey(client, 3, TopOptions{Rate: 1_000_000})
	require.NoError(t, err)
	pass := func() Surveyed {
		t.Helper()
		found, err := s.Look(t.Context(), time.Hour)
		require.NoError(t, err)
		require.True(t, found.Ended)
		return found
	}
	found := pass()
	require.Len(t, found.Top, 3)
	assert.EqualValues(t, 100, found.Top[0].Used)
	assert.EqualValues(t, 301, found.Pass.Counters)
	assert.EqualValues(t, 1, found.Pass.Full)
	assert.EqualValues(t, 301, found.Pass.Keys)
	hot := found.Top[0].Digest

	require.NoError(t, store.Reset(t.Context(), []limiter.Charge{{Quota: q, Key: "hot"}}))
	require.True(t, decideOne(t, store, q, "key7", 49).Allowed)
	found = pass()
	assert.EqualValues(t, 50, found.Top[0].Used, "it was among those of the first pass, or is found in this one")
	assert.NotEqual(t, hot, found.Top[0].Digest)
	assert.Zero(t, found.Pass.Full)
	for _, u := range found.Top {
		assert.NotEqual(t, hot, u.Digest, "which is free again")
	}
}
