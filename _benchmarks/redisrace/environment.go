package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/benchmarks/race"
)

// Every key may be used once a second and this often ahead, so that practically nothing
// is refused and a key once used stays in Redis: dropping counters that are back at their
// start is not what is compared. Those with windows get it for an hour.
const (
	burst  = 30_000_000
	window = time.Hour
)

// A env is the server that ready run on.
type environment struct {
	addr     string
	poolSize int // of every client of go-redis
	keys     int // the most that a case has
	control  *redis.Client
	closers  []func() error
}

func newEnvironment(addr string, poolSize, keys int) *environment {
	c := &environment{addr: addr, poolSize: poolSize, keys: keys}
	c.control = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})
	c.closeLater(c.control.Close)
	return c
}

// client is one of go-redis with default options but for the size of its pool. Every
// contestant has its own.
func (c *environment) client() *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: c.addr, PoolSize: c.poolSize})
	c.closeLater(client.Close)
	return client
}

func (c *environment) closeLater(closer func() error) { c.closers = append(c.closers, closer) }

func (c *environment) close() {
	for _, closer := range c.closers {
		_ = closer()
	}
}

// open makes the contestants with these names, all of them if there are none, ready to run.
func (c *environment) open(ctx context.Context, names []string) ([]race.Contestant, error) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var ready []race.Contestant
	for _, e := range contestants {
		if len(names) > 0 && !wanted[e.name] {
			continue
		}
		delete(wanted, e.name)
		caller, err := e.open(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		ready = append(ready, race.Contestant{Name: e.name, About: e.about, Caller: caller})
	}
	for name := range wanted {
		return nil, fmt.Errorf("there is no contestant %q", name)
	}
	return ready, nil
}

// reset empties the server, and returns when it is done with that.
func (c *environment) reset(ctx context.Context) error {
	return c.control.Do(ctx, "flushall", "sync").Err()
}

const redisCPU race.Metric = "Redis CPU µs"

// cpu is the CPU time of the server's main thread, the one that runs commands.
func (c *environment) cpu() race.Meter {
	return race.Meter{Metric: redisCPU, Read: func() (float64, error) {
		info, err := c.control.Info(context.Background(), "cpu").Result()
		if err != nil {
			return 0, err
		}
		total := 0.0
		for _, field := range []string{"used_cpu_sys_main_thread", "used_cpu_user_main_thread"} {
			seconds, err := strconv.ParseFloat(infoField(info, field), 64)
			if err != nil {
				return 0, fmt.Errorf("the server's INFO has no %s", field)
			}
			total += seconds * 1e6
		}
		return total, nil
	}}
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// version is the server's.
func (c *environment) version(ctx context.Context) (string, error) {
	info, err := c.control.Info(ctx, "server").Result()
	return infoField(info, "redis_version"), err
}
