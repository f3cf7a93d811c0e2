package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/internal/redistest"
)

func TestEveryContestantDecides(t *testing.T) {
	server := redistest.Start(t)
	env := newEnvironment(server.Addr, 16, 100)
	defer env.close()
	ready, err := env.open(t.Context(), nil)
	require.NoError(t, err)
	plan := &race.Plan{
		Contestants: ready,
		Rounds:      1,
		Slice:       20 * time.Millisecond,
		Meters:      []race.Meter{race.ClientCPU, env.cpu()},
		Reset:       env.reset,
	}
	for _, goroutines := range []int{1, 8, 64} {
		for _, keys := range []int{100, 1} {
			plan.Cases = append(plan.Cases, race.Case{Goroutines: goroutines, Keys: keys})
		}
	}
	results, err := plan.Run(t.Context())
	require.NoError(t, err)

	for _, contestant := range ready {
		for _, c := range plan.Cases {
			refused, ran := results.Figure(contestant.Name, c, race.Refused)
			assert.True(t, ran)
			assert.Zero(t, refused, "refusals of %s with %v: what is compared is admission", contestant.Name, c)
		}
		lone, _ := results.Figure(contestant.Name, race.Case{Goroutines: 1, Keys: 100}, race.PerSecond)
		assert.Positive(t, lone, "decisions of %s", contestant.Name)

		// Throttled gives up under contention, Weir when a busy machine is too slow for it.
		if err := results.Complaint(contestant.Name); contestant.Name != "throttled" && !errors.Is(err, errDegraded) {
			assert.NoError(t, err, contestant.Name)
		}
	}
}

func TestARaceEndsWithTablesAndJSON(t *testing.T) {
	redistest.Start(t) // or skip
	file := filepath.Join(t.TempDir(), "figures.json")
	s, err := parse([]string{"-quick", "-slice", "5ms", "-goroutines", "1,2", "-keys", "10", "-only", "ping,redis_rate", "-json", file})
	require.NoError(t, err)
	assert.Equal(t, 1, s.Rounds)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), s, &out))
	for _, part := range []string{"### 2 goroutines, 10 keys", "| ping ", "| redis_rate ", "### Goals", "not measured"} {
		assert.Contains(t, out.String(), part)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"decisions/s"`)
}

func TestTheServerEndsWhenItIsStoppedOrInterrupted(t *testing.T) {
	redistest.Start(t) // or skip
	ctx, interrupt := context.WithCancel(t.Context())
	server, err := race.StartServer(ctx)
	require.NoError(t, err)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	defer client.Close()
	require.NoError(t, client.Ping(t.Context()).Err())
	interrupt()
	server.Stop()
	require.Error(t, client.Ping(t.Context()).Err())
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-slice", "0s"}, {"-pool", "0"}, {"more"}} {
		_, err := parse(args)
		assert.Error(t, err, args)
	}
}

func TestAContestantThatDoesNotExistIsAnError(t *testing.T) {
	env := newEnvironment("127.0.0.1:1", 1, 1)
	defer env.close()
	_, err := env.open(t.Context(), []string{"absent"})
	require.ErrorContains(t, err, `"absent"`)
}
