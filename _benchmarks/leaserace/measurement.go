package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// A measurement is one mode under one limit and traffic.
type measurement struct {
	Mode, Traffic string
	Limit         int64 // events per second of a key
	Keys          int
	Load          float64
	Duration      time.Duration
}

func (c measurement) String() string { return fmt.Sprintf("%d/s, %s, %s", c.Limit, c.Traffic, c.Mode) }

// headStart is how long instances have to get from ready to the beginning.
const headStart = 200 * time.Millisecond

// run has three processes decide, and reports.
func (c measurement) run(ctx context.Context, env environment) (*report, error) {
	if err := env.reset(ctx); err != nil {
		return nil, err
	}
	var instances []*race.Child
	defer func() {
		for _, i := range instances {
			i.Close()
		}
	}()
	for n := range shares {
		i, err := race.StartChild(ctx)
		if err != nil {
			return nil, err
		}
		instances = append(instances, i)
		if err := i.Send(task{env.Addr, n, c}); err != nil {
			return nil, err
		}
	}
	for _, i := range instances {
		var said string
		if err := i.Receive(&said); err != nil || said != "ready" {
			return nil, fmt.Errorf("an instance is not ready: %q, %w", said, err)
		}
	}
	before, err := env.scripts(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now().Add(headStart)
	for _, i := range instances {
		if err := i.Send(begin); err != nil {
			return nil, err
		}
	}
	var records []record
	var total outcome
	for _, i := range instances {
		var o outcome
		if err := i.Receive(&o); err != nil {
			return nil, fmt.Errorf("an instance gave no answer: %w", err)
		}
		some := make([]record, o.Records)
		if err := binary.Read(i.Out, binary.LittleEndian, some); err != nil {
			return nil, err
		}
		records = append(records, some...)
		total.Errors += o.Errors
		total.Degraded += o.Degraded
		if total.Error == "" {
			total.Error = o.Error
		}
	}
	after, err := env.scripts(ctx)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, errors.Join(fmt.Errorf("%v: nothing was decided", c), errors.New(total.Error))
	}
	return newReport(c, records, total, after-before)
}

// An environment is the server that instances share.
type environment struct{ *race.Server }

func (e environment) reset(ctx context.Context) error { return e.Client.FlushAll(ctx).Err() }

// scripts is how many the server was asked to run: round trips that decide, settle or
// exchange.
func (e environment) scripts(ctx context.Context) (calls int, err error) {
	text, err := e.Client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		for _, command := range []string{"cmdstat_evalsha:calls=", "cmdstat_eval:calls="} {
			var n int
			if _, err := fmt.Sscanf(line, command+"%d,", &n); err == nil {
				calls += n
			}
		}
	}
	return calls, nil
}
