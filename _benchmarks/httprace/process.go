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
	"slices"
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
	contestant
	stage       string
	cmd         *exec.Cmd
	in          io.WriteCloser
	out         *json.Decoder
	connections [roles][]*connection
}

func start(ctx context.Context, e contestant, stage string, connections int) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{contestant: e, stage: stage, cmd: exec.CommandContext(ctx, program, contestantFlag, e.Name, stage)}
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
// small beside what they take, and medians of many spread less. It is even.
const turns = 32

// measureServer has each handler asked over TCP for a slice. Figures are medians of its turns,
// as differences are taken within one.
func (p *process) measureServer(slice time.Duration) (race.Figures, error) {
	each := map[race.Metric][]float64{}
	for range turns {
		var cpu, rate [roles]float64
		for _, r := range rand.Perm(int(roles)) {
			var err error
			if cpu[r], rate[r], err = p.turn(role(r), slice/turns); err != nil {
				return nil, err
			}
		}
		turn := race.Figures{
			perSecond: rate[limited],
			serverCPU: cpu[limited],
			aboveBare: cpu[limited] - cpu[frame],
			fieldsCPU: cpu[constant] - cpu[frame],
			ownShare:  (cpu[limited] - cpu[constant]) / cpu[frame],
		}
		for metric, figure := range turn {
			each[metric] = append(each[metric], figure)
		}
	}
	figures := race.Figures{}
	for metric, of := range each {
		slices.Sort(of)
		figures[metric] = (of[turns/2-1] + of[turns/2]) / 2
	}
	return figures, nil
}

// turn has one handler asked for a while, and tells the CPU time of a request in µs.
func (p *process) turn(r role, d time.Duration) (cpu, perSecond float64, err error) {
	before, err := p.ask(question{})
	if err != nil {
		return 0, 0, err
	}
	requests, elapsed, err := p.load(r, d)
	if err != nil {
		return 0, 0, err
	}
	after, err := p.ask(question{})
	return (after.CPU - before.CPU) / float64(requests), float64(requests) / elapsed.Seconds(), err
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
