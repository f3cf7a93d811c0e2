package shed_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
)

// Clients that keep their requests waiting: they hold a slot only while a handler works.

func TestARequestCountsWhileItsHandlerWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := premium()
		p, _ := l.Admit(tiered(""))
		counted := func(want int, why string) {
			t.Helper()
			synctest.Wait()
			s := l.Stats()[0]
			assert.Equal(t, [2]int{want, 1 - want}, [2]int{s.InFlight, s.Streams}, why)
		}
		p.Waits(true)
		time.Sleep(shed.SlowTime / 2)
		counted(1, "that is not long")
		p.Waits(false)
		time.Sleep(time.Minute)
		counted(1, "it works")
		p.Waits(true)
		time.Sleep(shed.SlowTime/2 + shed.SweepEvery)
		counted(0, "its client has kept it waiting for long, in all")
		p.Waits(false)
		counted(1, "it works, whenever its client has come")
		p.Waits(true)
		counted(0, "its client is known to be slow")
		p.Waits(true) // another goroutine
		p.Waits(false)
		counted(0, "one of two waits")
		p.Waits(false)
		p.Streams(false)
		time.Sleep(time.Minute)
		counted(0, "a stream does not count")
		p.Waits(true)
		p.Waits(false)
		counted(0, "nor when it has sent something")
		p.Leave()
		assert.Zero(t, l.Stats()[0].InFlight+l.Stats()[0].Streams)
	})
}

// A client that is slow is no slow service.
func TestLatencyIsWithoutTheTimeThatAHandlerWaitsForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := shed.Must(shed.New(shed.Options{}))
		for range 20 * shed.CohortSize {
			p, _ := l.Admit(tiered(""))
			go func() {
				p.Waits(true)
				time.Sleep(2 * time.Second)
				p.Waits(false)
				time.Sleep(50 * time.Millisecond)
				p.Leave()
			}()
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		assert.InDelta(t, 0.05, l.Stats()[0].Latency.Seconds(), shed.SweepEvery.Seconds())
	})
}

func TestClientsThatDripHoldNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := shed.Must(shed.New(shed.Options{}))
		var all sync.WaitGroup
		for range shed.MostSlow * shed.InitialLimit {
			p, _ := l.Admit(tiered(""))
			require.NotNil(t, p)
			all.Go(func() {
				for range 100 {
					p.Waits(true)
					time.Sleep(90 * time.Millisecond) // for the next byte
					p.Waits(false)
				}
				p.Leave()
			})
		}
		time.Sleep(shed.SlowTime + shed.SweepEvery)
		synctest.Wait()
		assert.Zero(t, l.Stats()[0].InFlight)
		all.Wait()
	})
}

func TestSlowClientsThatComeBackTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const apart = shed.MostSlow * shed.InitialLimit
		l := shed.Must(shed.New(shed.Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var held []middleware.Slot
		for range 20 {
			for range shed.InitialLimit {
				go func() {
					if p, _ := l.Admit(tiered("").WithContext(ctx)); p != nil {
						p.Waits(true)
						mu.Lock()
						held = append(held, p)
						mu.Unlock()
					}
				}()
			}
			time.Sleep(shed.SlowTime + 2*shed.SweepEvery)
		}
		stands := func(inFlight, apart int, why string) {
			t.Helper()
			synctest.Wait()
			s := l.Stats()[0]
			assert.Equal(t, [2]int{inFlight, apart}, [2]int{s.InFlight, s.Streams}, why)
		}
		stands(shed.InitialLimit, apart, "the last ones are slow too, and count")
		cancel()
		for _, p := range held[:10] {
			p.Leave()
		}
		held = held[10:]
		time.Sleep(2 * shed.SweepEvery)
		stands(shed.InitialLimit-10, apart, "others have their room")
		for _, p := range held {
			p.Waits(false)
		}
		stands(shed.InitialLimit-10+apart, 0, "all have sent the last byte")
		for _, p := range held {
			p.Waits(true)
		}
		stands(shed.InitialLimit-10, apart, "they wait once more")
		time.Sleep(shed.SlowTime + 2*shed.SweepEvery)
		for _, p := range held[:30] {
			p.Streams(true)
		}
		time.Sleep(2 * shed.SweepEvery)
		stands(0, len(held), "streams leave their room to others")
		for _, p := range held {
			p.Leave()
		}
		stands(0, 0, "all have gone")
		assert.Zero(t, l.Slow())
	})
}
