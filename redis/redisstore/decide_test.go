package redisstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

func TestALoneDecisionIsOneRoundTripWhateverTheNumberOfRules(t *testing.T) {
	server := redistest.Start(t)
	s := storeOn(connect(t, server), forgetting, patience)
	for _, rules := range []int{1, 2, 5, limiter.MaxCharges} {
		var charges []limiter.Charge
		for i := range rules {
			q := bounded(t, fmt.Sprint("rule ", i), 10, everyAlgorithm[i%len(everyAlgorithm)])
			charges = append(charges, limiter.Charge{Quota: q, Key: fmt.Sprint("key ", rules, i%3), Cost: 1})
		}
		require.NoError(t, s.Decide(t.Context(), charges)) // Redis learns the scripts
		require.NoError(t, s.change(t.Context(), settle, refunds(charges...), all(charges)))
		before := roundTrips(t, server)
		for range 12 { // 10 taken, 2 refused
			require.NoError(t, s.Decide(t.Context(), charges))
		}
		assert.Equal(t, 12, roundTrips(t, server)-before, "12 decisions about %d rules are 12 round trips", rules)
		require.NoError(t, s.change(t.Context(), settle, refunds(charges...), all(charges)))
		require.NoError(t, s.Reset(t.Context(), charges))
		assert.Equal(t, 14, roundTrips(t, server)-before, "giving back is one round trip, and so is a reset")
	}
}

func TestExactlyTheLimitIsAdmittedByBatchesOfSeveralRules(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T) redis.UniversalClient{
		"a single server": func(t *testing.T) redis.UniversalClient { return connect(t, redistest.Start(t)) },
		"a Cluster": func(t *testing.T) redis.UniversalClient {
			return closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.Cluster(t))}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			var stores []limiter.Store
			for range 4 {
				stores = append(stores, storeOn(client, forgetting, patience))
			}
			// Of one key, so that they are decided together everywhere. The tightest binds.
			wide := bounded(t, "wide", 500, limiter.TokenBucket)
			tight := bounded(t, "tight", 70, limiter.SlidingWindow)
			middle := bounded(t, "middle", 80, limiter.SlidingLog)
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					charges := []limiter.Charge{{Quota: wide, Key: "key", Cost: 2}, {Quota: tight, Key: "key", Cost: 1}, {Quota: middle, Key: "key", Cost: 1}}
					for range 10 {
						if assert.NoError(t, stores[i%4].Decide(t.Context(), charges)) && allowed(decisionsOf(charges)) {
							admitted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			assert.EqualValues(t, 70, admitted.Load(), "the tightest rule admits exactly its limit")
			for q, want := range map[*limiter.Quota]int64{wide: 500 - 2*70, tight: 0, middle: 10} {
				assert.Equal(t, want, decideOne(t, stores[0], q, "key", 0).Remaining, "refused batches took nothing of %q", q.Rule())
			}
		})
	}
}

func allowed(decisions []limiter.Decision) bool {
	return !slices.ContainsFunc(decisions, func(d limiter.Decision) bool { return !d.Allowed })
}

// scattered is keys with one on each node of a cluster, and how a store names their
// counters under q.
func scattered(t *testing.T, nodes []*redistest.Server, s *store, q *limiter.Quota) (keys, names []string) {
	t.Helper()
	for _, node := range nodes {
		for i := 0; ; i++ {
			key := fmt.Sprint("key ", len(keys), " ", i)
			if name := s.names.Name(s.names.Digest(key), q); redistest.Owner(nodes, name) == node {
				keys, names = append(keys, key), append(names, name)
				break
			}
		}
	}
	return keys, names
}

func TestChargesOnSeveralNodesAreTakenAllOrNone(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t)
	clock := newSteadyClock(t)
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
	s := onClock(t, clock, client, forgetting)
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			q := quotaOf(t, "rule "+a.String(), limiter.PerMinute(10).With(a))
			keys, names := scattered(t, nodes, s, q)
			other := quotaOf(t, "other "+a.String(), limiter.PerMinute(10).With(a))
			charges := []limiter.Charge{charge(q, keys[0], 2), charge(q, keys[1], 3), charge(other, keys[0], 4), charge(q, keys[2], 1)}
			decisions := decide(t, s, charges...)
			for i, want := range []int64{8, 7, 6, 9} {
				assert.Equal(t, q.Capacity()-10+want, decisions[i].Remaining, "charge %d is taken where it belongs", i)
				assert.True(t, decisions[i].Allowed)
			}

			clock.sleep(123 * time.Millisecond)
			decideOne(t, s, q, keys[2], q.Capacity()-1) // exhausts the last
			looks := func() []limiter.Decision {
				t.Helper()
				free := slices.Clone(charges)
				for i := range free {
					free[i].Cost = 0
				}
				return decide(t, s, free...)
			}
			before := looks()
			values := func() (v []string) {
				for _, name := range names {
					v = append(v, redistest.Owner(nodes, name).MustDo("GET", name))
				}
				return v
			}
			decisions = decide(t, s, charges...)
			alone := decideOne(t, s, q, keys[2], 1)
			assert.False(t, alone.Allowed)
			assert.Equal(t, alone, decisions[3], "what stood in the way says so, and since when")
			assert.Equal(t, before[:3], decisions[:3], "the others are described as looks")
			assert.Equal(t, before, looks(), "what others took is given back: the state is as before")

			// Given back at the instant it was taken, what is stored is the same too, but for
			// the time it was stored.
			first := values()
			decide(t, s, charges...)
			assert.Equal(t, first, values(), "a refusal changes no state")
		})
	}
}

func TestWhatANodeTookIsGivenBackIfAnotherFails(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)[:2]
	two := servers[1]
	client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(servers)}))
	s := storeOn(client, forgetting, patience)
	q := bounded(t, "rule", 10, limiter.SlidingWindow)
	var keys [2]string // on each
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		key := fmt.Sprint("key ", i)
		decideOne(t, s, q, key, 1)
		for at, server := range servers {
			if found, _ := server.Do("EXISTS", s.names.Name(s.names.Digest(key), q)); found == "1" {
				keys[at] = key
			}
		}
	}
	two.MustDo("ACL", "SETUSER", "default", "-eval", "-evalsha")
	for _, charges := range [][]limiter.Charge{
		{charge(q, keys[0], 5), charge(q, keys[1], 5)},
		{charge(q, keys[1], 5), charge(q, keys[0], 5)},
	} {
		err := s.Decide(t.Context(), charges)
		require.ErrorContains(t, err, "NOPERM", "an error of one server is an error of the decision")
		assert.EqualValues(t, 9, decideOne(t, s, q, keys[0], 0).Remaining, "what the other server took is given back")
	}
	assert.Error(t, s.change(t.Context(), settle, refunds(charge(q, keys[1], 1), charge(q, keys[0], 1)), []int{0, 1}))
	assert.EqualValues(t, 10, decideOne(t, s, q, keys[0], 0).Remaining, "what can be given back is, though another server fails")
	two.MustDo("ACL", "SETUSER", "default", "+eval", "+evalsha")
	assert.EqualValues(t, 9, decideOne(t, s, q, keys[1], 0).Remaining)
}

// Charges on several nodes hold each other's units for a moment, so fewer than the limit
// may pass; never more, and nothing is lost.
func TestConcurrentBatchesOverNodesKeepTheLimitAndLoseNothing(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t)
	var stores []*store
	for range 3 {
		client := closeAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
		stores = append(stores, storeOn(client, forgetting, patience))
	}
	for _, a := range everyAlgorithm {
		q := bounded(t, "rule "+a.String(), 60, a)
		keys, _ := scattered(t, nodes, stores[0], q)
		var used [3]atomic.Int64
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(a), uint64(i)))
				for range 12 {
					var charges []limiter.Charge
					order := random.Perm(3)[:2+random.IntN(2)]
					for _, k := range order {
						charges = append(charges, limiter.Charge{Quota: q, Key: keys[k], Cost: 1})
					}
					if assert.NoError(t, stores[i%3].Decide(t.Context(), charges)) && allowed(decisionsOf(charges)) {
						for _, k := range order {
							used[k].Add(1)
						}
					}
				}
			})
		}
		wg.Wait()
		for k := range keys {
			assert.LessOrEqual(t, used[k].Load(), q.Capacity(), "%v admits no more than its limit", a)
			if a == limiter.LeakyBucket { // a turn that others are behind drains
				continue
			}
			assert.Equal(t, q.Capacity()-used[k].Load(), decideOne(t, stores[0], q, keys[k], 0).Remaining,
				"%v: what refused batches took is given back to the last unit", a)
		}
	}
}
