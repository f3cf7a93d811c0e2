package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisstore"
)

// An instance is a process of the service that shares its limits. It is told what to do in a
// line of JSON on its standard input, says so when it is ready, begins at the time that the
// next line says, and answers with what it has done: a line of JSON, and records.

type task struct {
	Addr        string
	Number      int
	Measurement measurement
}

type outcome struct {
	Records  int
	Errors   int
	Degraded int
	Error    string // the first
}

// A record is a decision. Times are since the beginning.
type record struct {
	At      int64 // when it was asked for, in nanoseconds
	Took    int64
	Key     uint32
	Allowed uint32
}

// workers is how many goroutines of an instance ask.
const workers = 32

func runInstance(in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(in)
	var t task
	if err := lines.Decode(&t); err != nil {
		return err
	}
	store, done := t.store()
	quota, err := limiter.NewQuota("race", "", limitOf(t.Measurement.Limit))
	if err != nil {
		return err
	}
	answers := bufio.NewWriterSize(out, 1<<20)
	if _, err := fmt.Fprintln(answers, `"ready"`); err != nil {
		return err
	}
	if err := answers.Flush(); err != nil {
		return err
	}
	var begin time.Time
	if err := lines.Decode(&begin); err != nil {
		return err
	}

	var wg sync.WaitGroup
	records := make([][]record, workers)
	outcomes := make([]outcome, workers)
	for w := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(t.Number), uint64(w)))
			records[w], outcomes[w] = t.ask(store, quota, random, begin)
		})
	}
	wg.Wait()
	done()

	var o outcome
	for w := range workers {
		o.Records += len(records[w])
		o.Errors += outcomes[w].Errors
		o.Degraded += outcomes[w].Degraded
		if o.Error == "" {
			o.Error = outcomes[w].Error
		}
	}
	if err := json.NewEncoder(answers).Encode(o); err != nil {
		return err
	}
	for _, some := range records {
		if err := binary.Write(answers, binary.LittleEndian, some); err != nil {
			return err
		}
	}
	return answers.Flush()
}

func limitOf(perSecond int64) limiter.Limit {
	return limiter.PerSecond(perSecond).With(limiter.TokenBucket)
}

// store has the defaults, but for a deadline that outlasts a moment in which this machine has
// no time for it: decisions by an outage's policy are not what is compared.
func (t *task) store() (_ limiter.Store, done func()) {
	if t.Measurement.Mode == memory {
		store, _ := limiter.NewMemory(limiter.MemoryOptions{}) // the defaults are valid
		return store, func() {}
	}
	rdb := redis.NewClient(&redis.Options{Addr: t.Addr})
	o := redisstore.Options{Failover: failover.Options{Deadline: 2 * time.Second}}
	mode := map[string]leasestore.Mode{leased: leasestore.Leased, synchronized: leasestore.Synchronized}[t.Measurement.Mode]
	if mode == leasestore.Exact {
		return redisstore.New(rdb, o), func() { _ = rdb.Close() }
	}
	store, err := leasestore.New(rdb, leasestore.Options{Redis: o, Mode: mode})
	if err != nil {
		panic(err)
	}
	return store, func() {
		_ = store.Close() // what is not returned expires
		_ = rdb.Close()
	}
}

// ask is one worker: it asks at random moments at its share of the load, whether
// or not the last answer was quick.
func (t *task) ask(store limiter.Store, quota *limiter.Quota, random *rand.Rand, begin time.Time) (records []record, o outcome) {
	rate := t.Measurement.Load * shares[t.Number] / workers
	zipf := rand.NewZipf(random, 1.1, 1, uint64(t.Measurement.Keys-1))
	charges, decisions := []limiter.Charge{{Quota: quota, Cost: 1}}, make([]limiter.Decision, 1)
	names := make([]string, t.Measurement.Keys)
	for i := range names {
		names[i] = "key " + strconv.Itoa(i)
	}
	ctx := context.Background()
	next := time.Duration(0) // in time that counts
	for {
		next += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		at := t.Measurement.moment(next)
		if at >= t.Measurement.Duration {
			return records, o
		}
		if wait := time.Until(begin.Add(at)); wait > 0 {
			time.Sleep(wait)
		}
		key := zipf.Uint64()
		charges[0].Key = names[key]
		asked := time.Since(begin)
		err := store.Decide(ctx, charges, decisions)
		took := time.Since(begin) - asked
		switch {
		case err != nil:
			o.Errors++
			if o.Error == "" {
				o.Error = err.Error()
			}
			continue
		case decisions[0].Degraded:
			o.Degraded++
		}
		r := record{At: int64(asked), Took: int64(took), Key: uint32(key)}
		if decisions[0].Allowed {
			r.Allowed = 1
		}
		records = append(records, r)
	}
}

// Bursty traffic is on for a quarter of the time, at four times the rate.
const (
	burstEvery = 2 * time.Second
	burstLasts = burstEvery / 4
)

// moment is when an event of the average rate happens under the traffic.
func (c *measurement) moment(at time.Duration) time.Duration {
	if c.Traffic == steady {
		return at
	}
	at /= 4
	return at/burstLasts*burstEvery + at%burstLasts
}
