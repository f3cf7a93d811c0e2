package leasestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// What is admitted too much when Redis forgets or is away, and when processes die: the package
// documentation gives the bounds, and these tests hold them. Each also shows that its bound is
// come near to, or the documentation would frighten for nothing.

const (
	lossProcesses = 3
	lossBurst     = 100 // of a limit of as much a second
	lossAhead     = lossBurst * defaultAhead / 100
)

// A siege is a fleet of which all processes are asked for one key as often as they can bear.
type siege struct {
	t     *testing.T
	f     *fake
	q     *limiter.Quota
	fleet []*Store
	made  int
	under failover.Options
	pause time.Duration // between two events of a process

	all     *gauge    // admitted, by whomever
	byRedis *gauge    // admitted, but for what outage policies admitted
	locally [99]int64 // admitted by policies, by process
	last    time.Time // when a policy last decided
}

func besiege(t *testing.T, o limiter.Outage, replicas int) *siege {
	q := quotaOf(t, "rule", limiter.PerSecond(lossBurst).With(limiter.TokenBucket))
	q.OnOutage = o
	s := &siege{t: t, f: newFake(), q: q, pause: 2 * time.Millisecond, all: newGauge(q), byRedis: newGauge(q),
		under: failover.Options{Replicas: replicas, ProbeEvery: time.Second, OnDegraded: func(failover.Event) {}}}
	for range lossProcesses {
		s.join()
	}
	return s
}

func (s *siege) join() {
	s.made++
	s.fleet = append(s.fleet, s.f.instanceUnder(s.t, s.made, Options{}, s.under))
}

// ask asks a process once.
func (s *siege) ask(process int) bool {
	charges := []limiter.Charge{{Quota: s.q, Key: "key", Cost: 1}}
	err := s.fleet[process].Decide(context.Background(), charges)
	d := charges[0].Decision
	if d.Degraded || err != nil {
		s.last = time.Now()
	}
	if err != nil || !d.Allowed {
		return false
	}
	s.all.admit(1)
	if d.Degraded {
		s.locally[process]++
	} else {
		s.byRedis.admit(1)
	}
	return true
}

func (s *siege) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(s.pause) {
		for process := range s.fleet {
			s.ask(process)
		}
	}
}

func TestEachTimeRedisIsEmptiedAdmitsABurstAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 18))
		s := besiege(t, limiter.FailClosed, 1)
		s.pause = time.Millisecond / 2
		s.run(4 * time.Second)
		for flushes := 1.0; flushes <= 5; flushes++ {
			s.f.empty()
			s.run(time.Duration(1 + random.IntN(int(2*time.Second))))
			assert.LessOrEqual(t, s.all.above(), flushes*lossBurst, "over the whole time")
			assert.LessOrEqual(t, s.all.worst(), flushes*lossBurst+lossAhead, "over the worst interval")
		}
		assert.Greater(t, s.all.worst(), 4*lossBurst*0.8, "the bound is come near to")
	})
}

func TestAnOutageAdmitsWhatThePoliciesAdmitAndTheRestARefill(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, lossProcesses} {
		for _, restarted := range []bool{false, true} {
			for _, seed := range seeds(t, 2, 1) {
				t.Run(fmt.Sprintf("Replicas %d, restarted empty %t, %d", replicas, restarted, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						random := rand.New(rand.NewPCG(seed, 19))
						s := besiege(t, limiter.FailLocal, replicas)
						s.run(4 * time.Second)
						s.f.down.Store(true)
						if restarted {
							s.f.empty()
						}
						down := time.Now()
						s.run(time.Duration(1+random.IntN(10)) * 500 * time.Millisecond)
						s.f.down.Store(false)
						s.run(4 * time.Second)
						policies := s.last.Sub(down).Seconds()
						require.Less(t, policies, 8.5, "the policies are no longer in force")

						perProcess := (lossBurst + lossBurst*policies) / float64(replicas)
						for process := range s.fleet {
							assert.LessOrEqual(t, float64(s.locally[process]), perProcess, "the share of a process")
							assert.Greater(t, float64(s.locally[process]), 0.5*perProcess, "which it uses")
						}
						forgotten := 0.0
						if restarted {
							forgotten = lossBurst
						}
						beyond := lossProcesses * perProcess
						assert.LessOrEqual(t, s.byRedis.above(), forgotten)
						assert.LessOrEqual(t, s.all.above(), forgotten+beyond, "over the whole time")
						assert.LessOrEqual(t, s.all.worst(), forgotten+beyond+lossAhead, "over the worst interval")
						if replicas == lossProcesses {
							// Locally a burst, which is owed to Redis. Some processes go on locally until they have
							// heard. An emptied Redis forgets a burst.
							heard := s.under.ProbeEvery.Seconds()
							assert.LessOrEqual(t, s.all.worst(), forgotten+lossBurst*(1+heard)+lossAhead)
							assert.Greater(t, s.all.worst(), 0.8*lossBurst, "the bound is come near to")
						}
					})
				})
			}
		}
	}
}

func TestAnOpenRuleAdmitsAllInAnOutageAndAClosedOneNothing(t *testing.T) {
	t.Parallel()
	for _, o := range []limiter.Outage{limiter.FailOpen, limiter.FailClosed} {
		t.Run(o.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := besiege(t, o, lossProcesses)
				s.run(4 * time.Second)
				s.f.down.Store(true)
				s.run(2 * life) // what was leased is gone
				before := s.all.total
				s.run(time.Second)
				if o == limiter.FailOpen {
					assert.EqualValues(t, 500*lossProcesses, s.all.total-before)
				} else {
					assert.Zero(t, s.all.total-before)
				}
				s.f.down.Store(false)
				s.run(4 * time.Second)
				assert.LessOrEqual(t, s.byRedis.above(), 0.0)
			})
		})
	}
}
