package source

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// tellings are the moments at which a settler tells of events at the given moments.
func tellings(t *testing.T, events ...time.Duration) (told []time.Duration) {
	synctest.Test(t, func(*testing.T) {
		begin := time.Now()
		s := newSettler()
		done := make(chan struct{})
		hits := make(chan struct{})
		go func() {
			for _, at := range events {
				time.Sleep(time.Until(begin.Add(at)))
				hits <- struct{}{}
			}
			time.Sleep(time.Minute)
			close(done)
		}()
		for {
			select {
			case <-hits:
				s.event()
			case <-s.settled():
				s.rest()
				told = append(told, time.Since(begin))
			case <-done:
				return
			}
		}
	})
	return told
}

func TestEventsThatComeTogetherAreToldOfOnceWhenTheyAreOver(t *testing.T) {
	ms := time.Millisecond
	require.Equal(t, []time.Duration{100 * ms}, tellings(t, 0))
	require.Equal(t, []time.Duration{190 * ms}, tellings(t, 0, 30*ms, 90*ms))
	require.Equal(t, []time.Duration{100 * ms, 5100 * ms}, tellings(t, 0, 5000*ms))
	require.Empty(t, tellings(t))
}

func TestEventsThatDoNotEndAreToldOfEverySecond(t *testing.T) {
	var events []time.Duration
	for at := time.Duration(0); at < 2500*time.Millisecond; at += 30 * time.Millisecond {
		events = append(events, at)
	}
	told := tellings(t, events...)
	require.Equal(t, time.Second, told[0])
	for i := 1; i < len(told); i++ {
		require.LessOrEqual(t, told[i]-told[i-1], unrest+30*time.Millisecond)
	}
	require.Equal(t, events[len(events)-1]+quiet, told[len(told)-1])
}
