package redisstore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/redisstore"
)

// A crowd is callers who go on asking a store while its server is in trouble. It keeps
// account of what they are told.
type crowd struct {
	t      *testing.T
	store  *redisstore.Store
	quotas [kinds][]*limiter.Quota
	keys   []string // of hot and pair
	stop   chan struct{}
	wg     sync.WaitGroup

	calls, byRedis, byLocal, byOpen, closed atomic.Int64

	// Of hot and pair, whose keys are few:
	admitted [kinds]struct{ byRedis, locally, refused atomic.Int64 }

	mu     sync.Mutex
	events []failover.Event
}

// What callers ask for, in turns.
const (
	hot    = iota // an event of a key that all callers share; Local
	fresh         // an event of a key that nobody else has; Local
	open          // an event of a rule that is Open
	closed        // an event of a rule that is Closed
	pair          // one event under two rules, a Local one that is exhausted and an Open one
	kinds
)

// The limit of hot and of pair, and the share of it that a process has in an outage.
const (
	crowdLimit = 300
	crowdShare = crowdLimit / crowdReplicas

	crowdReplicas = 2
	crowdCallers  = 16
)

// gather lets a crowd loose on a store with that client. The deadline is the store's, or
// zero for its default; tests in which nothing may fail need a longer one, as a busy
// machine can be late.
func gather(t *testing.T, client redis.UniversalClient, deadline time.Duration, keys ...string) *crowd {
	t.Helper()
	c := &crowd{t: t, stop: make(chan struct{}), keys: keys}
	if len(keys) == 0 {
		c.keys = []string{"key"}
	}
	c.store = redisstore.New(client, redisstore.Options{Failover: failover.Options{
		Deadline: deadline,
		Replicas: crowdReplicas,
		OnDegraded: func(e failover.Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.events = append(c.events, e)
		},
	}})
	rule := func(name string, events int64, outage limiter.Outage) *limiter.Quota {
		q := bounded(t, name, events, limiter.SlidingWindow)
		q.OnOutage = outage
		return q
	}
	c.quotas = [kinds][]*limiter.Quota{
		hot:    {rule("hot", crowdLimit, limiter.FailLocal)},
		fresh:  {rule("fresh", 10, limiter.FailLocal)},
		open:   {rule("open", 1_000_000, limiter.FailOpen)},
		closed: {rule("closed", 1_000_000, limiter.FailClosed)},
		pair:   {rule("pair", crowdLimit, limiter.FailLocal), rule("wide", 1_000_000, limiter.FailOpen)},
	}
	for i := range crowdCallers {
		c.wg.Go(func() { c.call(i) })
	}
	t.Cleanup(c.disperse) // where a test ends early
	return c
}

func (c *crowd) call(caller int) {
	for n := 0; ; n++ {
		select {
		case <-c.stop:
			return
		case <-time.After(time.Millisecond):
		}
		kind := (n + caller) % kinds
		key := fmt.Sprint("caller ", caller)
		switch kind {
		case hot, pair:
			key = c.keys[n/kinds%len(c.keys)]
		case fresh:
			key = fmt.Sprintf("caller %d, call %d", caller, n)
		}
		c.ask(context.Background(), kind, key)
	}
}

func (c *crowd) ask(ctx context.Context, kind int, key string) {
	charges := make([]limiter.Charge, 0, 2)
	for _, q := range c.quotas[kind] {
		charges = append(charges, charge(q, key, 1))
	}
	c.calls.Add(1)
	err := c.store.Decide(ctx, charges)
	degraded := charges[0].Decision.Degraded
	switch {
	case err != nil:
		assert.Equal(c.t, closed, kind, "a decision failed, though no rule is Closed: %v", err)
		assert.ErrorIs(c.t, err, failover.ErrUnavailable)
		c.closed.Add(1)
		return
	case !degraded:
		c.byRedis.Add(1)
	case kind == open:
		assert.True(c.t, charges[0].Decision.Allowed, "an Open rule lets pass in an outage")
		c.byOpen.Add(1)
	default:
		assert.NotEqual(c.t, closed, kind, "a Closed rule let an event pass in an outage")
		c.byLocal.Add(1)
	}
	tally := &c.admitted[kind]
	switch {
	case !allowed(charges):
		if !degraded {
			tally.refused.Add(1)
		}
	case degraded:
		tally.locally.Add(1)
	default:
		tally.byRedis.Add(1)
	}
}

// disperse ends the crowd's calls, and says whether all of them add up.
func (c *crowd) disperse() {
	select {
	case <-c.stop:
		return
	default:
	}
	close(c.stop)
	c.wg.Wait()
	s := c.store.Stats()
	assert.EqualValues(c.t, c.byRedis.Load(), s.Decided, "Stats.Decided is what Redis decided")
	assert.EqualValues(c.t, c.byLocal.Load(), s.Local, "Stats.Local is what was decided with a Local rule")
	assert.EqualValues(c.t, c.byOpen.Load(), s.Open, "Stats.Open is what was decided with an Open rule alone")
	assert.EqualValues(c.t, c.closed.Load(), s.Closed, "Stats.Closed is what was refused by a Closed rule")
	assert.EqualValues(c.t, c.calls.Load(), s.Decided+s.Local+s.Open+s.Closed, "all decisions are in Stats")
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range c.events {
		if i%2 == 0 && !strings.Contains(c.t.Name(), "Cluster") {
			assert.True(c.t, e.Degraded, "an outage's end was told of before its beginning")
		}
	}
}

// admits says that the crowd was given no more units of each key than that, by Redis and
// by this process.
func (c *crowd) admits(redis, locally int64) {
	c.t.Helper()
	for _, kind := range []int{hot, pair} {
		tally := &c.admitted[kind]
		assert.LessOrEqual(c.t, tally.byRedis.Load(), redis*int64(len(c.keys)), "Redis admits no more than the limit, of kind %d", kind)
		assert.LessOrEqual(c.t, tally.locally.Load(), locally*int64(len(c.keys)), "a process admits no more than its share, of kind %d", kind)
	}
}

// awaitExhausted waits until Redis has refused hot and pair for a while.
func (c *crowd) awaitExhausted() {
	c.t.Helper()
	c.awaitMore("the limits to be used up", &c.admitted[hot].refused, 50)
	c.awaitMore("the limits to be used up", &c.admitted[pair].refused, 50)
}

// awaitMore waits for so many more of what n counts, as many calls as that takes: a busy machine makes few
// in a second.
func (c *crowd) awaitMore(what string, n *atomic.Int64, more int64) {
	c.t.Helper()
	target, most := n.Load()+more, c.calls.Load()+200_000
	for n.Load() < target {
		before := c.calls.Load()
		require.Less(c.t, before, most, "so many calls, and in vain: %s", what)
		redistest.Await(c.t, what, func() bool { return n.Load() >= target || c.calls.Load() >= before+crowdCallers })
	}
}

// awaitPolicies waits until the rules' policies are in force and have been used.
func (c *crowd) awaitPolicies() {
	c.t.Helper()
	redistest.Await(c.t, "the policies to come into force", func() bool { return c.store.Stats().Degraded })
	c.awaitMore("decisions by policy", &c.byLocal, 200)
	c.awaitMore("decisions by policy", &c.byOpen, 50)
	c.awaitMore("decisions by policy", &c.closed, 50)
}

// awaitRedis waits until Redis decides, and nothing else does any more.
func (c *crowd) awaitRedis() {
	c.t.Helper()
	redistest.Await(c.t, "the outage to end", func() bool { return !c.store.Stats().Degraded })
	c.awaitMore("decisions by Redis", &c.byRedis, 200)
}

func TestDecisionsGoOnThroughAServersDeathAndReturn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := gather(t, connect(t, server), redistest.Patience)
	c.awaitExhausted()
	server.Kill()
	c.awaitPolicies()
	server.Restart()
	c.awaitRedis()
	c.awaitExhausted()
	c.disperse()
	c.admits(2*crowdLimit, crowdShare) // the new server knows of nothing that was used
	assert.NotZero(t, c.admitted[hot].locally.Load(), "an outage admits what is this process's share")
	assert.Greater(t, c.admitted[hot].byRedis.Load(), int64(crowdLimit), "the new server admits again")
}

func TestAFailoverOfSentinelIsSurvived(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	c := gather(t, redistest.CloseAfter(t, redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: sentinel.Name, SentinelAddrs: redistest.Addrs(sentinel.Sentinels),
	})), 0)
	c.awaitExhausted()
	sentinel.Master.MustDo("WAIT", "1", "5000")
	sentinel.Master.Kill()
	c.awaitPolicies()
	sentinel.AwaitFailover()
	c.awaitRedis()
	c.awaitExhausted()
	c.disperse()
	c.admits(crowdLimit, crowdShare) // the new master knows what was used
}

// scattered is keys of a rule, one on each node.
func scattered(nodes []*redistest.Server, rule string) (keys []string) {
	for i := 0; len(keys) < len(nodes); i++ {
		if key := fmt.Sprint("key ", i); redistest.Owner(nodes, nameOf(rule, key)) == nodes[len(keys)] {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestAGlobalRuleHoldsWhileAnotherNodeOfTheClusterHangs(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t)
	client := redistest.CloseAfter(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes)}))
	s := redisstore.New(client, redisstore.Options{ForgetRefusals: true, Failover: failover.Options{
		Deadline: 10 * time.Second, Failures: 1, Replicas: 1, OnDegraded: func(failover.Event) {}, // for a busy machine is no outage
	}})
	const limit = 400
	global, user := bounded(t, "global", limit, limiter.SlidingWindow), bounded(t, "user", 10_000, limiter.TokenBucket)
	keys, everybody := scattered(nodes, "user"), scattered(nodes, "global")
	redistest.Await(t, "Redis to decide on each key", func() bool {
		return !slices.ContainsFunc(keys, func(key string) bool { return decideOne(t, s, user, key, 0).Degraded })
	})
	decideOne(t, s, global, everybody[0], 0)
	nodes[1].Pause() // not the global rule's
	defer nodes[1].Resume()
	var admitted, locally, refused, byPolicy atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for refused.Load() < 5000 || byPolicy.Load() < 1000 {
				charges := []limiter.Charge{charge(global, everybody[0], 1), charge(user, keys[i%3], 1)}
				if !assert.NoError(t, s.Decide(t.Context(), charges)) {
					return
				}
				switch {
				case !allowed(charges):
					refused.Add(1)
				case charges[0].Decision.Degraded:
					locally.Add(1)
				default:
					admitted.Add(1)
				}
				if charges[1].Decision.Degraded {
					byPolicy.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, limit, admitted.Load(), "the global rule's node admits the limit exactly")
	assert.Zero(t, locally.Load(), "what Redis can count is not counted locally")
	var taken int64
	for _, key := range keys {
		taken += user.Capacity() - decideOne(t, s, user, key, 0).Remaining
	}
	assert.EqualValues(t, limit, taken, "what was refused took nothing of the other rule, on Redis or locally")
}

func TestSlotsOfAClusterMoveUnderTraffic(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t)
	client := redistest.CloseAfter(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redistest.Addrs(nodes), MaxRedirects: 1000, // on a busy machine a move takes long
	}))
	// Keys of one range of 512 hash slots: their batches travel together, so a redirected batch is never alone.
	var keys []string
	for i := 0; len(keys) < 3; i++ {
		key := fmt.Sprint("key ", i)
		if slot := nodes[0].MustDo("CLUSTER", "KEYSLOT", nameOf("hot", key)); number(t, slot) < 512 {
			keys = append(keys, key)
		}
	}
	c := gather(t, client, 10*time.Second, keys...)
	for round := range 4 {
		for i, key := range keys {
			redistest.MoveSlot(nodes, nameOf("hot", key), nodes[(round+i)%3])
			c.awaitMore("decisions", &c.byRedis, 50)
		}
	}
	c.awaitExhausted()
	c.disperse()
	s := c.store.Stats()
	assert.Zero(t, s.Failures, "a slot that moves is no failure: %+v", c.events)
	assert.EqualValues(t, c.calls.Load(), s.Decided)
	for _, kind := range []int{hot, pair} {
		assert.EqualValues(t, crowdLimit*len(keys), c.admitted[kind].byRedis.Load(), "of keys that move the limit is admitted exactly, of kind %d", kind)
	}
}

func TestAnApplicationStartsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	c := gather(t, connect(t, server), 0)
	c.awaitPolicies()
	assert.Zero(t, c.byRedis.Load())
	server.Restart()
	c.awaitRedis()
	c.awaitExhausted()
	c.disperse()
	c.admits(crowdLimit, crowdShare)
	assert.NotZero(t, c.admitted[hot].byRedis.Load(), "Redis takes over when it comes up")
}

// go-redis's own way to a TLS server, and to the sentinels, heeds no context.
func TestADecisionKeepsItsDeadlineWhereTheClientDoesNot(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and that is all
	require.NoError(t, err)
	defer silent.Close()
	hangs := redistest.StartSentinel(t)
	clients := map[string]redis.UniversalClient{
		"TLS": redis.NewClient(&redis.Options{
			Addr: silent.Addr().String(), TLSConfig: &tls.Config{InsecureSkipVerify: true},
			DialTimeout: time.Hour, ContextTimeoutEnabled: true,
		}),
		"sentinels": redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: hangs.Name, SentinelAddrs: redistest.Addrs(hangs.Sentinels), ReadTimeout: time.Hour,
		}),
	}
	for _, sentinel := range hangs.Sentinels {
		sentinel.Pause()
	}
	q := bounded(t, "rule", 1000, limiter.TokenBucket)
	for name, client := range clients {
		const timeout = 50 * time.Millisecond
		s := redisstore.New(client, redisstore.Options{}).Within(timeout)
		for range 4 {
			assert.Error(t, s.Decide(t.Context(), []limiter.Charge{charge(q, "key", 1)}), name)
		}
	}
	for _, sentinel := range hangs.Sentinels {
		sentinel.Resume()
	}
	for _, client := range clients {
		assert.NoError(t, client.Close())
	}
}
