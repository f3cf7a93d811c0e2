package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

const (
	farAway = 40 * time.Millisecond // a round trip
	inTime  = 50 * time.Millisecond // the timeout
)

// overFakeLink runs a test in a bubble on a lane to a server that is far away: what comes
// before a batch is sent is connect's to do.
func overFakeLink(t *testing.T, led bool, connect func(f *flight), test func(l *lane)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLane(led, 256, parallel, inTime, func(f *flight, landed func()) {
			if connect != nil {
				connect(f)
			}
			if f.Err() == nil {
				f.send()
				time.Sleep(farAway)
				f.hear()
			}
			landed()
			for _, g := range f.batch {
				g.deliver(answer{}, f.Err())
			}
		})
		test(l)
		time.Sleep(time.Hour) // what the lane has begun ends
		synctest.Wait()
		assert.False(t, l.watched, "a lane without traffic is at rest")
	})
}

// call is one decision.
func (l *lane) call() (answered bool, took time.Duration) {
	g := &group{done: make(chan struct{}, 1)}
	start := time.Now()
	answered = l.ask(context.Background(), g) && g.err == nil
	return answered, time.Since(start)
}

func TestOnALongWayNobodyWaitsForMostOfARoundTrip(t *testing.T) {
	for _, led := range []bool{true, false} {
		for _, callers := range []int{1, 8, 64, 500} {
			overFakeLink(t, led, nil, func(l *lane) {
				l.call() // which measures it
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 77 * time.Microsecond)
						for n := range 20 {
							answered, took := l.call()
							assert.True(t, answered, "call %d was late", n)
							assert.LessOrEqual(t, took, farAway+2*farAway/parallel, "a call waited for long, of %d callers", callers)
						}
					})
				}
				wg.Wait()
				assert.InDelta(t, farAway, l.trip, 1000, "a round trip is measured as what it takes")
			})
		}
	}
}

func TestAConnectionIsMadeHoweverManyRoundTripsItTakes(t *testing.T) {
	// As go-redis does: TCP, HELLO and CLIENT SETINFO, of which each asks for its deadline.
	threeSteps := func(f *flight) {
		for range 3 {
			deadline, _ := f.Deadline()
			if time.Until(deadline) < farAway {
				return
			}
			time.Sleep(farAway)
		}
	}
	for _, led := range []bool{true, false} {
		for _, measured := range []bool{false, true} {
			t.Run(fmt.Sprintf("led=%t, measured=%t", led, measured), func(t *testing.T) {
				overFakeLink(t, led, threeSteps, func(l *lane) {
					if measured {
						l.trip, l.measured = farAway, true
					}
					var wg sync.WaitGroup
					for range 32 {
						wg.Go(func() {
							for range 10 {
								answered, took := l.call()
								assert.True(t, answered, "a call was late for a connection")
								assert.LessOrEqual(t, took, inTime+setup*inTime)
							}
						})
					}
					wg.Wait()
				})
			})
		}
	}
}

func TestAServerThatHangsIsFoundOutByTheFirstStep(t *testing.T) {
	for name, connect := range map[string]func(f *flight){
		"at once": func(f *flight) { f.Deadline(); <-f.Done() },
		"after two steps": func(f *flight) {
			for range 2 {
				f.Deadline()
				time.Sleep(5 * time.Millisecond)
			}
			f.Deadline()
			<-f.Done()
		},
		"before it asks for anything": func(f *flight) { <-f.Done() },
	} {
		overFakeLink(t, true, connect, func(l *lane) {
			for range 5 {
				answered, took := l.call()
				assert.False(t, answered)
				assert.LessOrEqual(t, took, inTime+2*5*time.Millisecond+inTime/lateness+1, "%s: a server that hangs holds its caller up for the deadline", name)
			}
		})
	}
}

func TestAConnectionThatNobodyWaitsForIsMadeAllTheSame(t *testing.T) {
	connects := 0
	warm := func(f *flight) {
		if connects++; connects > 1 {
			return // there is a connection
		}
		for range 30 {
			time.Sleep(10 * time.Millisecond)
			assert.NoError(t, f.Err(), "what was begun is to be finished")
		}
	}
	overFakeLink(t, false, warm, func(l *lane) {
		l.trip, l.measured = 0, true
		answered, took := l.call()
		assert.False(t, answered)
		assert.LessOrEqual(t, took, inTime+inTime/lateness, "its caller has left")
		time.Sleep(300 * time.Millisecond)
		answered, _ = l.call()
		assert.True(t, answered)
	})

	var ended time.Duration
	hangs := func(f *flight) {
		<-f.Done()
		ended = max(ended, time.Since(f.start))
	}
	overFakeLink(t, false, hangs, func(l *lane) {
		answered, took := l.call()
		assert.False(t, answered)
		assert.LessOrEqual(t, took, (1+setup)*inTime+inTime/lateness, "nothing is known yet: it may be slow")
		answered, took = l.call()
		assert.False(t, answered)
		assert.LessOrEqual(t, took, 2*inTime+inTime/lateness, "and now it is known that nothing came")
	})
	assert.GreaterOrEqual(t, ended, settling*inTime)
	assert.LessOrEqual(t, ended, settling*inTime+inTime/lateness, "it does not go on for ever")
}
