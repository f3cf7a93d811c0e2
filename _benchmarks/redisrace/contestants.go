package main

import (
	"context"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/redis/redisstore"
)

// A contestant can take part. Open makes what it needs, and returns what makes a
// caller for each goroutine.
type contestant struct {
	name  string
	about string
	open  func(context.Context, *environment) (func() race.Call, error)
}

// contestants are all of them. To add one, add it here.
var contestants = []contestant{
	{weir, "redisstore with its defaults, a token bucket", openWeir(1, redisstore.Options{})},
	{"weir-unbatched", "the same with MaxBatch 1: every decision travels alone", openWeir(1, redisstore.Options{MaxBatch: 1})},
	{weirThreeRules, "redisstore with its defaults, three rules in one decision", openWeir(3, redisstore.Options{})},
	{weirSettles, "redisstore with its defaults, a sliding window: each decision reserves 2 units, and is settled to 1", openWeirSettles},
	{weirPlaces, "redisstore with its defaults: a place of how many may be at once is taken, and returned", openWeirPlaces},
	{sortedSet, "the same by a script on a sorted set of requests, and ZREM: one EVALSHA and one command", openSortedSet},
	{"mennanov", "the same by ConcurrentBuffer, in Redis, without a lock: four commands in a pipeline, and ZREM", openMennanov},
	{redisRate, "Allow, GCRA: one EVALSHA", openRedisRate},
	{"ulule", "redis store, a fixed window: one EVALSHA", openUlule},
	{"throttled", "goredisstore.v9, GCRA: TIME and GET, then a compare-and-swap by EVAL, again until it succeeds, ten times at most", openThrottled},
	{"httprate-redis", "OnLimit, a sliding window: MGET, then INCRBY and EXPIRE in a transaction, under one mutex", openHTTPRate},
	{rueidisGCRA, "redis_rate's script through rueidis, which pipelines by itself", openRueidis},
	{ownScript, "a floor: the very commands that weir sends for one decision, through go-redis", openOwnScript},
	{"evalsha", "a floor: a script that returns 1, through go-redis", openEvalSHA},
	{"ping", "a floor: PING through go-redis", openPing},
}

// Those that goals speak of.
const (
	weir           = "weir"
	weirThreeRules = "weir-3-rules"
	weirSettles    = "weir-settles"
	weirPlaces     = "weir-places"
	sortedSet      = "sorted-set"
	redisRate      = "redis_rate"
	rueidisGCRA    = "rueidis"
	ownScript      = "own-script"
)
