// Package redisstore counts in Redis, so that all processes of a service enforce one limit:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	limits, err := middleware.New(middleware.Config{Store: redisstore.New(rdb, redisstore.Options{}), Rules: rules})
//
// The client is a *redis.Client of go-redis v9, for one server or Sentinel, or a *redis.ClusterClient. A
// *redis.Ring is refused, because its shards are not one store, and so are clients of other kinds, an
// AutoPipeline and wrappers: Weir sends pipelines itself, and must set timeouts and know if there are several
// servers. The server may be Redis 6.2 or newer, or one
// that speaks its protocol, such as Valkey.
//
// A proxy that sends each script to one of several servers by its first key needs Options.OneTag.
//
// # Decisions
//
// A decision is one round trip, whatever the number of rules: a script reads Redis's own clock, decides
// as [limiter.Quota] would, and writes counters and expiry together. If N units are free and M > N
// requests arrive at once, in any number of processes, exactly N are admitted.
//
// Decisions that arrive while others are in flight travel together in the next batch. So under load
// each decision costs less, and a lone caller does not wait. A second batch is sent while the first is
// in flight, if it is as large as the first. If a round trip takes 8 milliseconds or more, up to eight
// batches are in flight, but at most half of PoolSize. In a Cluster each of 32 ranges of slots has
// batches of its own, two of them in flight. If a caller's context ends, the caller returns at once; a
// caller that sends the batch itself returns after the round trip. Redis still takes a decision that
// was in flight. A batch whose callers have left holds up no others; after twenty deadlines it also gives up its
// place, of eight.
//
// The process remembers a refusal of Redis for up to a second, so a client that goes on with a refused
// key does not reach Redis. The process that calls Settle or Reset sees the effect at once, and other
// processes within that second. It remembers that no slot was free for as long as requests ask for one, and asks
// for all such keys in one script: every 20 milliseconds, or for a key that it asked for in vain for long, every
// 250.
//
// A script reaches only one node of a Cluster, and the charges of a batch may be on several nodes. The
// charges are sent to the nodes at the same time. If a node refuses a charge, the others are refunded
// in a second round trip, with a deadline of its own. Until then they may cause refusals of other
// requests, which a process remembers for up to a second. The limit is never exceeded. Rules with the
// same key are decided in one script in a Cluster too. While a Cluster moves a hash slot, several rules
// on a new key in that hash slot are decided as in an outage.
//
// No script is sent again if its answer is lost: it counts once or not at all. A script that Redis says it has not
// run (LOADING, TRYAGAIN, CLUSTERDOWN, MASTERDOWN), or whose dial was refused, is sent again within the deadline.
//
// # Settlements and slots
//
// No caller waits for a settlement ([Store.Settle]). It travels with the next decision of this process
// on the same counter and is applied first, or with a decision on another counter, or alone after 5
// milliseconds. Callers do wait if 1,024 settlements are waiting already. Stats.Unsettled counts
// settlements without an answer. They are not sent again, because they might count twice. Such a
// settlement is lost or counts once, and if it lies in the socket of a Redis that has stopped, it counts
// after decisions that this process made later.
//
// Redis keeps a token for each slot in use ([limiter.NewConcurrency], [limiter.NewSemaphore]), which expires after
// ten seconds. The process that acquired the slot renews it within a third of that, and releases it, by Settle. A
// request acquires its slots first, and then takes its other charges. A request that a rate refuses holds a slot
// for a round trip. A charge may ask for 1,000 slots at most. A process needs some 300 bytes for each key with slots.
// docs/redis.md says what holds if a process, a message or Redis is lost. [Store.Close] waits for
// settlements and releases, and ends renewals.
//
// # miniredis
//
// Tests may run on miniredis. It decides as Redis does, for all algorithms. Move its clock with
// SetTime, for windows, and FastForward, for expiry. Set Options.ForgetRefusals, because the process
// remembers refusals by its own clock. miniredis is far slower than Redis, so give Options.Failover a
// Deadline of seconds. Bans (package redisbans) need a real Redis, and return an error on miniredis. A
// leasestore makes no leases there: it logs weir-store-unusable once, and each request is decided there.
//
// # Outages
//
// If Redis gives no answer within 50 milliseconds, each rule's [limiter.Outage] decides. By default
// every process counts by itself, against the limit divided by Options.Failover.Replicas, so set
// Replicas. Package failover says more. Nothing is asked of Redis before the first decision, so an
// application starts while Redis is down.
//
// An answer that is an error is an outage too: Redis may be full, loading or read-only, or want a
// password. The log says which, with the address; for a node of a Cluster, the address by which the
// client knows it. After a call without an answer, the process dials the server once, in the
// background, with the client's own Dialer and without hooks, because go-redis does not say why it
// cannot connect. A server that cannot run the scripts is a wrong configuration, with a log code of its
// own: it lacks a command or Lua (Valkey without its module), its ACL denies one, or it is a Cluster's
// node and the client is for one server.
//
// Redis is asked again when it takes a trial: the process looks at the counters, and writes a key beside
// them that expires in a second, because a Redis that can only be read is still down.
//
// go-redis has a logger for the whole program, which writes to standard error (redis.SetLogger).
//
// A decision waits for the deadline at most, so Redis may be 40 milliseconds away. Until a server has answered for
// the first time, a decision waits longer, for a second or DialTimeout, whichever is less, unless the server
// refuses connections. [Store.Connect] makes the first connection before the first request. If making a connection
// takes longer than its decisions wait, it is still made, for later decisions, and meanwhile opens no breaker, unless
// dialling fails or takes more than a second.
//
// If a node of a Cluster is down, OnOutage decides only on the keys of that node. A rule whose key is
// on another node is enforced as usual, also in requests that have a rule on the node that is down.
// Until that node is known to be down, each such request waits for its deadline, and then until the
// charges on the other nodes are refunded and made again.
//
// The client's own timeouts change none of this. Weir uses a client for one server through a copy
// (WithTimeout), which shares its connections and lacks its hooks. If you set ContextTimeoutEnabled,
// Weir uses the client itself, and hooks, such as tracing, see its commands. A Cluster's client is always used
// itself. Set ContextTimeoutEnabled there too: a connection that hangs is then dropped after twenty
// deadlines instead of after ReadTimeout. A Dialer of your own must heed its context.
//
// # What is in Redis
//
// A key for every counter that is not back in its initial state:
//
//	weir:3:{EsoXtJryKJQ28wPgFmAwog}:ip           prefix, version, digest of the client's key, rule
//	weir:3:{EsoXtJryKJQ28wPgFmAwog}:plan:premium the same, and the tier
//	weir:3:{EsoXtJryKJQ28wPgFmAwog}:ip::places:2 slots, and the version of their format
//
// The version is the version of the stored format, here and in the names of leases and bans. A release
// that changes a format changes its version, so processes of two releases leave each other's keys
// alone. While both run, each counts for itself. The keys of the old release expire.
//
// The digest is 128 bits of SHA-256, or of HMAC-SHA-256 with Options.Secret. Without a secret, anyone
// who can read Redis can find addresses by trying them all. Names of rules and tiers are written as
// they are, except for colons. If a rule's limit changes, what was used stays used, and what is owed
// stays owed ([limiter.Quota.Take]).
//
// The value is the limit, the state, and when the key expires, in 57 bytes. A SlidingLog has 16 more
// bytes for each event. A TokenBucket with settlements has 16 more for each record of its lowest level,
// and at most 8 records. If a SlidingLog has more than 10 events, a decision reads only the entries
// that it needs.
//
// If all units of a key are free again after a time T, the key expires after 1.5 T, and at least 5
// seconds after T, so that the next events need not set the expiry anew. A key whose expiry was removed
// gets one again.
//
// A value under such a name that is no counter is left alone, because nobody knows what was used. The
// OnOutage of its rule decides for that key, and Redis on the request's other rules. The log names the key once (weir-foreign-value). Reset
// deletes it. If it has no expiry, it gets one of an hour.
//
// An ACL user needs ~weir:* +eval +evalsha +time +mget +exists +getrange +set +setrange +del +pexpire
// +pttl, for slots +zadd +zcount +zrem +zscore +zrangebyscore +zremrangebyscore, and in a Cluster the commands by which go-redis finds the nodes. The log says once if a
// permission is missing (weir-store-unusable).
//
// Set maxmemory-policy to noeviction, or to volatile-ttl in a Redis that has other data: a counter that
// is evicted forgets what was used. A Redis that is full under noeviction is an outage. Nothing needs
// to be persisted. Without persistence a restart begins all counters anew.
//
// After a failover to a replica, by Sentinel or in a Cluster, what had not yet been replicated is
// forgotten. While a slot is being moved, go-redis follows the redirects.
package redisstore
