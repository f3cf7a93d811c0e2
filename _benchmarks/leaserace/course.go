package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// A course is one mode under one limit and traffic.
type course struct {
	Mode, Traffic string
	Limit         int64 // events per second of a key
	Keys          int
	Load          float64
	Duration      time.Duration
}

func (c course) String() string { return fmt.Sprintf("%d/s, %s, %s", c.Limit, c.Traffic, c.Mode) }

// headStart is how long instances have to get from ready to the beginning.
const headStart = 200 * time.Millisecond

// run has three processes decide, and reports.
func (c course) run(ctx context.Context, server *server) (*report, error) {
	if err := server.reset(ctx); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var instances []*instance
	defer func() {
		for _, i := range instances {
			_ = i.in.Close()
			_ = i.cmd.Wait()
		}
	}()
	for n := range shares {
		i, err := start(ctx, program, task{server.addr, n, c})
		if err != nil {
			return nil, err
		}
		instances = append(instances, i)
	}
	for _, i := range instances {
		var said string
		if err := i.decode(&said); err != nil || said != "ready" {
			return nil, fmt.Errorf("an instance is not ready: %q, %w", said, err)
		}
	}
	before, err := server.scripts(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now().Add(headStart)
	for _, i := range instances {
		if err := json.NewEncoder(i.in).Encode(begin); err != nil {
			return nil, err
		}
	}
	var records []record
	var total outcome
	for _, i := range instances {
		var o outcome
		if err := i.decode(&o); err != nil {
			return nil, fmt.Errorf("an instance gave no answer: %w", err)
		}
		some := make([]record, o.Records)
		if err := binary.Read(i.out, binary.LittleEndian, some); err != nil {
			return nil, err
		}
		records = append(records, some...)
		total.Errors += o.Errors
		total.Degraded += o.Degraded
		if total.Error == "" {
			total.Error = o.Error
		}
	}
	after, err := server.scripts(ctx)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, errors.Join(fmt.Errorf("%v: nothing was decided", c), errors.New(total.Error))
	}
	return newReport(c, records, total, after-before)
}

// An instance is a process from outside.
type instance struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(ctx context.Context, program string, t task) (*instance, error) {
	cmd := exec.CommandContext(ctx, program, instanceFlag)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), instanceEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &instance{cmd, in, bufio.NewReaderSize(out, 1<<20)}, json.NewEncoder(in).Encode(t)
}

// instanceEnv tells a test's program that it is an instance.
const instanceEnv = "LEASERACE_INSTANCE"

// decode reads a line of JSON, and not a byte more.
func (i *instance) decode(into any) error {
	line, err := i.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}
