package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// Metrics of a server. Time is CPU time of its process per request, in user and system mode.
const (
	perSecond race.Metric = "requests/s"
	serverCPU race.Metric = "server CPU µs"
	aboveBare race.Metric = "above bare µs"
	fieldsCPU race.Metric = "constant fields µs"
	ownShare  race.Metric = "above constant fields, by bare"
)

// A process is a contestant's, seen from the client.
type process struct {
	entrant
	stage       string
	cmd         *exec.Cmd
	in          io.WriteCloser
	out         *json.Decoder
	connections [roles][]*connection
}

func start(ctx context.Context, e entrant, stage string, connections int) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{entrant: e, stage: stage, cmd: exec.CommandContext(ctx, program, contestantFlag, e.Name, stage)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.connect(connections); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// connect also asks each handler for a while: then nothing is new to the server.
func (p *process) connect(connections int) error {
	hello, err := p.answer()
	if err != nil {
		return err
	}
	for r, address := range hello.Addresses {
		for range connections {
			c, err := dial(address)
			if err != nil {
				return err
			}
			p.connections[r] = append(p.connections[r], c)
		}
		if _, _, err := p.load(role(r), 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (p *process) load(r role, d time.Duration) (requests int, elapsed time.Duration, err error) {
	return load(p.connections[r], p.statusOf(r, p.stage), d)
}

func (p *process) ask(q question) (answer, error) {
	if err := json.NewEncoder(p.in).Encode(q); err != nil {
		return answer{}, err
	}
	return p.answer()
}

func (p *process) answer() (a answer, err error) {
	if err := p.out.Decode(&a); err != nil {
		return a, fmt.Errorf("its process gave no answer: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

func (p *process) end() {
	for _, connections := range p.connections {
		for _, c := range connections {
			_ = c.Close()
		}
	}
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// turns is how often handlers take turns within a slice, as the differences between them are
// small beside what they take.
const turns = 8

// measureServer has each handler asked over TCP for a slice. Figures are of all its turns, as
// the garbage collector may run in a few of them only.
func (p *process) measureServer(slice time.Duration) (race.Figures, error) {
	var cpu, requests [roles]float64
	var took time.Duration // limited
	for range turns {
		for _, r := range rand.Perm(int(roles)) {
			before, err := p.ask(question{})
			if err != nil {
				return nil, err
			}
			n, elapsed, err := p.load(role(r), slice/turns)
			if err != nil {
				return nil, err
			}
			after, err := p.ask(question{})
			if err != nil {
				return nil, err
			}
			cpu[r] += after.CPU - before.CPU
			requests[r] += float64(n)
			if role(r) == limited {
				took += elapsed
			}
		}
	}
	for r := range cpu {
		cpu[r] /= requests[r]
	}
	return race.Figures{
		perSecond: requests[limited] / took.Seconds(),
		serverCPU: cpu[limited],
		aboveBare: cpu[limited] - cpu[frame],
		fieldsCPU: cpu[constant] - cpu[frame],
		ownShare:  (cpu[limited] - cpu[constant]) / cpu[frame],
	}, nil
}

// measureLoop has the process call its handlers for a slice. Figures are of the best turn of
// each: garbage is collected in all of them, and what else runs on the machine only adds.
func (p *process) measureLoop(slice time.Duration) (race.Figures, error) {
	best := map[role]race.Figures{}
	for range turns {
		for _, r := range []role{limited, frame} {
			a, err := p.ask(question{Role: r, Loop: slice / turns})
			if err != nil {
				return nil, err
			}
			if best[r] == nil {
				best[r] = a.Figures
			}
			for metric, figure := range a.Figures {
				best[r][metric] = min(best[r][metric], figure)
			}
		}
	}
	above := race.Figures{}
	for metric, figure := range best[limited] {
		above[metric] = figure - best[frame][metric]
	}
	return above, nil
}
