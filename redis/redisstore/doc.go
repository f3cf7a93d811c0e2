// Package redisstore counts in Redis, so that all processes of a service enforce one limit:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	limits, err := middleware.New(middleware.Config{Store: redisstore.New(rdb, redisstore.Options{}), Rules: rules})
//
// The client is any of go-redis v9: for one server, for Sentinel, for a Cluster or a Ring.
// Servers that speak as Redis 6.2 or newer does, such as Valkey, do as well.
//
// # Decisions
//
// A decision is one round trip, whatever the number of rules: a script reads Redis's own
// clock, decides as [limiter.Quota] would, and writes counters and expiry together. Of N
// units in M > N concurrent requests, in any number of processes, exactly N are admitted.
//
// Decisions that are asked for while others are in flight go together in the next batch, so the
// more there is to do the less each one costs, and a lone caller does not wait. A second batch
// is sent beside the first when it is as large. Where a round trip takes 8 milliseconds or
// more, up to eight are sent at intervals (no more than half of PoolSize, and two for each of
// 32 ranges of slots in a Cluster), so that few wait for most of one. A caller whose context
// ends returns at once, or after the round trip if it is the one that brings the batch to
// Redis; what it asked for is taken all the same if it was in flight.
//
// What Redis refused is remembered for up to a second, if it would be refused that long:
// a client that goes on with a refused key does not reach Redis. Refund and Reset are seen at
// once in the process that calls them, and within that second in the others.
//
// A script reaches only one node of a Cluster, and what is counted for different keys may be
// on different ones. There the charges of a batch go out at the same time, by key, and if
// one is refused, what the others took is given back: for the length of a round trip, or a
// second in a process that remembers it, others may be refused for it, and nothing is
// admitted too much. Such a refusal takes a second round trip, with a deadline of its own. All
// rules with the same key are decided in one script there too. While a slot is being moved,
// several rules on a key that is new to it are decided as in an outage.
//
// A decision that go-redis sends again, because the connection broke after Redis had run
// it, may count twice, which admits less. A refund or a debt is never sent again: its answer is
// an error, and it counts once or not at all.
//
// # Settlements and slots
//
// What an event really cost ([limiter.Settle]) is told to Redis without a caller that waits: with
// the next decision of this process on the same counter, before it; with a decision on another
// one; or alone after 5 milliseconds. Callers wait where 1,024 settlements do, and with MaxBatch 1.
// Stats.Unsettled counts what Redis gave no answer to: it stays as it was charged, and is not told
// again, as it might count twice.
//
// Slots ([limiter.NewConcurrency], [limiter.NewSemaphore]) are counted in Redis by process, for a
// lease of ten seconds that is renewed in a third of that. A slot is released by Settle or Refund,
// in the process that acquired it. One message about a key is in flight at a time, so under load
// the decisions on one key wait for each other's round trip. What is held takes some 300 bytes for
// each key in a process. docs/redis.md says what holds when a process, a message or Redis is lost.
// [Store.Close] waits for what is settled and released, and renews no more.
//
// # miniredis
//
// Tests may run on miniredis: counters of all algorithms, decided as Redis decides. Move its
// clock with SetTime, which windows go by, and FastForward, which keys expire by; set
// Options.ForgetRefusals, as refusals are remembered on the clock of the process. It is
// slower than Redis by far, so for a busy machine give Options.Failover a Deadline of
// seconds. Bans (package redisbans), leases (package leasestore) and [Usages] need a Redis, and
// say so.
//
// # Outages
//
// When Redis gives no answer within 50 milliseconds, each rule's [limiter.Outage] decides:
// by default every process counts by itself, against the limit divided by
// Options.Failover.Replicas, which is therefore worth setting. Package failover says more.
// Nothing is asked of Redis before the first decision: an application starts while Redis
// is down.
//
// An answer that is an error is an outage too: a Redis that is full, loading, read-only, or
// wants a password. The log says which it was, and the address: of a node of a Cluster, as the
// client knows it. After a call without an answer the server is dialed once, in the
// background, by the client's own Dialer (hooks play no part), as go-redis keeps to itself why
// it could not connect while it goes on trying. A server that says that it cannot run the
// scripts (no such command, not allowed by its ACL, a Cluster's node and a client for one
// server) is a wrong configuration, with a code of its own.
//
// An outage ends when a decision that is tried on Redis succeeds. One that is refused writes
// nothing; after it a key beside the counter is written that expires in a second.
//
// go-redis has a logger for the whole program, which writes to standard error (redis.SetLogger).
//
// The deadline runs from when a batch is sent. Making a connection, waiting for another batch
// and sending a script that Redis does not know are no part of it: a decision may take twelve
// round trips longer for them, as they were measured last. So Redis may be 40 milliseconds
// away. Before the first answer a round trip is taken to last as long as the deadline, so the
// first decisions of a process may wait for thirteen deadlines where Redis accepts connections
// and is silent; after that, two. A connection that takes longer than its decisions wait is
// made all the same, for those to come.
//
// In a Cluster, while a node is down, its keys alone are decided by policy. A rule on another
// node admits its limit as ever, also in requests that have a rule on the one that is down.
// Until it is known to be down, each of the first such requests waits for its deadline, and
// then for what the other nodes took to be given back and taken anew.
//
// All this holds whatever the client's own timeouts are. For that, a client for one
// server is used through a copy (WithTimeout), which has its connections but may lack its
// hooks: set ContextTimeoutEnabled in its options, and Weir uses the client itself, so that
// hooks, for tracing say, see its commands. Set it on a client for a Cluster or a Ring too:
// then a connection that hangs is dropped after twenty deadlines, and not after ReadTimeout. A
// Dialer of your own has to heed its context.
//
// # What is in Redis
//
// A key for every counter that is not back in its initial state:
//
//	weir:2:{EsoXtJryKJQ28wPgFmAwog}:ip           prefix, version, digest of the client's key, rule
//	weir:2:{EsoXtJryKJQ28wPgFmAwog}:plan:premium and tier
//	weir:2:{EsoXtJryKJQ28wPgFmAwog}:ip::places:1 events that are under way, with a version of their own
//
// The version is that of the format of what is stored, here and in the names of leases and
// bans. A release that changes a format changes its version, so processes of two releases
// leave each other's keys alone: while both run, each counts for itself, and what the old
// one left expires.
//
// The digest is 128 bits of SHA-256, or of HMAC-SHA-256 under Options.Secret, without
// which addresses can be found from digests by trying them all. The rule's and tier's names
// are written as they are, but for colons. A limit can change under its rule's name: what
// was used stays used, and what is owed, owed ([limiter.Quota.Take]).
//
// The value is the limit, the state, and when the key expires, in 57 bytes; a log has 16 more for
// each event, and a bucket that settles for each of up to 8 times, how low it was since. Of a log
// of more than 10 events a decision reads only the entries that it needs.
//
// A key expires after all its units are free again: half as long again, and 5 seconds at least, so
// that the next events need not set the expiry anew. A key whose expiry was removed gets one again.
//
// What is under such a name and no counter is left alone: nothing is known of what was
// used. The OnOutage of the rule decides for that key, and the log says once which one it is
// (weir-foreign-value). A Reset deletes it, and if it has no expiry it gets one of an hour.
//
// An ACL user needs ~weir:* +eval +evalsha +time +get +mget +exists +getrange +set
// +setrange +del +pexpire +pttl, and in a Cluster what the client asks about slots. What it
// lacks is said in the log once (weir-store-unusable).
//
// Set maxmemory-policy to noeviction, or to volatile-ttl in a Redis that has other data: a
// counter that is evicted forgets what was used. A Redis that is full under noeviction is an
// outage. Nothing needs to be persisted; without persistence a restart begins all counters
// anew.
//
// After a failover to a replica, by Sentinel or in a Cluster, what had not yet been
// replicated is forgotten. A Ring moves the keys of a shard that is lost to the others,
// where they begin anew: prefer a Cluster where limits have to hold. While a slot is moved,
// commands are redirected, which go-redis follows.
package redisstore
