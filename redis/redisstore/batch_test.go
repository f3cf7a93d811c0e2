package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/redis/internal/wire"
)

const (
	farAway = 40 * time.Millisecond // a round trip
	inTime  = 50 * time.Millisecond // the timeout
)

// overFakeLink runs a test in a bubble on a batcher to a server that is far away: what comes
// before a batch is sent is connect's to do.
func overFakeLink(t *testing.T, led bool, connect func(b *batch), test func(q *batcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := newBatcher(led, 256, parallel, inTime, func(b *batch, finished func()) {
			if connect != nil {
				connect(b)
			}
			if b.flight.Err() == nil {
				b.flight.Write()
				time.Sleep(farAway)
				b.flight.Hear()
			}
			finished()
			for _, g := range b.groups {
				g.deliver(answer{}, b.flight.Err())
			}
		})
		test(q)
		time.Sleep(time.Hour) // what the batcher has begun ends
		synctest.Wait()
		assert.False(t, q.watched, "a batcher without traffic is at rest")
	})
}

// call is one decision.
func (q *batcher) call() (answered bool, took time.Duration) {
	g := &group{done: make(chan struct{}, 1)}
	start := time.Now()
	answered = q.ask(context.Background(), g) && g.err == nil
	return answered, time.Since(start)
}

func TestOnALongWayNoCallerWaitsForMostOfARoundTrip(t *testing.T) {
	for _, led := range []bool{true, false} {
		for _, callers := range []int{1, 8, 64, 500} {
			overFakeLink(t, led, nil, func(q *batcher) {
				q.call() // which measures it
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 77 * time.Microsecond)
						for n := range 20 {
							answered, took := q.call()
							assert.True(t, answered, "call %d was late", n)
							assert.LessOrEqual(t, took, farAway+2*farAway/parallel, "a call waited for long, of %d callers", callers)
						}
					})
				}
				wg.Wait()
				assert.InDelta(t, farAway, q.trip, 1000, "a round trip is measured as what it takes")
			})
		}
	}
}

func TestAConnectionThatNoCallerWaitsForIsMadeAllTheSame(t *testing.T) {
	var connects atomic.Int32
	warm := func(b *batch) {
		if connects.Add(1) > 1 {
			return // there is a connection
		}
		for range 30 {
			time.Sleep(10 * time.Millisecond)
			assert.NoError(t, b.flight.Err(), "what was begun is to be finished")
		}
	}
	overFakeLink(t, false, warm, func(q *batcher) {
		q.trip, q.measured = 0, true
		answered, took := q.call()
		assert.False(t, answered)
		assert.LessOrEqual(t, took, inTime+inTime/lateness, "its caller has left")
		time.Sleep(300 * time.Millisecond)
		answered, _ = q.call()
		assert.True(t, answered)
	})

	ended := make(chan time.Duration, 2)
	hangs := func(b *batch) {
		<-b.flight.Done()
		ended <- time.Since(b.flight.Start)
	}
	overFakeLink(t, false, hangs, func(q *batcher) {
		answered, took := q.call()
		assert.False(t, answered)
		assert.LessOrEqual(t, took, (1+setup)*inTime+inTime/lateness, "nothing is known yet: it may be slow")
		answered, took = q.call()
		assert.False(t, answered)
		assert.LessOrEqual(t, took, 2*inTime+inTime/lateness, "and now it is known that nothing came")
	})
	for range 2 {
		assert.Equal(t, wire.Unawaited*inTime, <-ended, "it does not go on for ever")
	}
}
