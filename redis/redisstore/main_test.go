package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// patience is how long a test waits for what has to happen, on a busy machine.
const patience = redistest.Patience

func TestMain(m *testing.M) {
	redis.SetLogger(redistest.Silent{})
	redistest.Main(m)
}

func await(t testing.TB, what string, done func() bool) { t.Helper(); redistest.Await(t, what, done) }

func closeAfter(t testing.TB, client redis.UniversalClient) redis.UniversalClient {
	return redistest.CloseAfter(t, client)
}

// connectWith is connect with a hook. Weir's copy of a client may lack it, so there must
// be none.
func connectWith(t testing.TB, server *redistest.Server, hook redis.Hook) redis.UniversalClient {
	client := closeAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true}))
	client.AddHook(hook)
	return client
}

func connect(t testing.TB, server *redistest.Server) redis.UniversalClient {
	return redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
}

// bounded is a quota that nothing comes back to while a test lasts.
func bounded(t testing.TB, rule string, events int64, a limiter.Algorithm) *limiter.Quota {
	t.Helper()
	return quotaOf(t, rule, limiter.Limit{Events: events, Per: phase.Long(), Algorithm: a})
}

func quotaOf(t testing.TB, rule string, l limiter.Limit) *limiter.Quota {
	t.Helper()
	q, err := limiter.NewQuota(rule, "", l)
	require.NoError(t, err)
	return q
}

var everyAlgorithm = []limiter.Algorithm{
	limiter.SlidingCounter, limiter.TokenBucket, limiter.LeakyBucket, limiter.FixedWindow, limiter.SlidingLog,
}

func charge(q *limiter.Quota, key string, cost int64) limiter.Charge {
	return limiter.Charge{Quota: q, Key: key, Cost: cost}
}

// decideOne is a decision on a single charge.
func decideOne(t testing.TB, s limiter.Store, q *limiter.Quota, key string, cost int64) limiter.Decision {
	t.Helper()
	return decide(t, s, charge(q, key, cost))[0]
}

// decide returns the decisions on a batch.
func decide(t testing.TB, s limiter.Store, charges ...limiter.Charge) []limiter.Decision {
	t.Helper()
	require.NoError(t, s.Decide(t.Context(), charges))
	return decisionsOf(charges)
}

func decisionsOf(charges []limiter.Charge) []limiter.Decision {
	decisions := make([]limiter.Decision, len(charges))
	for i, c := range charges {
		decisions[i] = c.Decision
	}
	return decisions
}

// roundTrips is how many scripts the server was asked to run.
func roundTrips(t testing.TB, server *redistest.Server) (calls int) {
	t.Helper()
	for _, line := range strings.Split(server.MustDo("INFO", "commandstats"), "\r\n") {
		for _, command := range []string{"cmdstat_evalsha:calls=", "cmdstat_eval:calls="} {
			var n int
			if _, err := fmt.Sscanf(line, command+"%d,", &n); err == nil {
				calls += n
			}
		}
	}
	return calls
}

// patient are options for tests in which a busy machine is no outage.
var patient = Options{ForgetRefusals: true, Failover: failover.Options{Deadline: patience}}

// forgetting are the options under which every refusal is Redis's own.
var forgetting = Options{ForgetRefusals: true}

// storeOn is the store of New without its outage policies.
func storeOn(client redis.UniversalClient, o Options, timeout time.Duration) *store {
	return newStore(newShared(client, o), timeout)
}

// close waits until Redis has all settlements.
func (s *store) close(patience time.Duration) error {
	for end := time.Now().Add(patience); s.unsettled.count.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("some settlements are not answered")
		}
	}
	return nil
}

// sendAlone brings a batch to Redis that no pipe knows of.
func sendAlone(s *store, batch []*call) {
	s.send(newBatch(batch, patience), func(bool) {})
}
