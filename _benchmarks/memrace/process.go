package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// Every contestant runs in a process of its own for each kind of case, so that nobody's
// garbage collector looks at what belongs to another. The process is asked on its standard
// input and answers on its output, a line of JSON each.

// contestantFlag is how the program knows that it is such a process.
const contestantFlag = "-contestant"

type question struct {
	Case  race.Case
	Slice time.Duration
}

type answer struct {
	Figures race.Figures
	Error   string
}

// perform is the whole life of a contestant's process.
func perform(name string, in io.Reader, out io.Writer) error {
	e, ok := named(name)
	if !ok {
		return fmt.Errorf("there is no contestant %q", name)
	}
	prepared := map[string]bout{}
	questions, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var q question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		what := fmt.Sprint(q.Case.Name, q.Case.Keys)
		err := error(nil)
		if prepared[what] == nil {
			prepared[what], err = bouts[q.Case.Name](e, q.Case.Keys)
		}
		if b := prepared[what]; b != nil && err == nil {
			a.Figures, err = b(q.Case.Goroutines, q.Slice)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// A process is the other end.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func start(ctx context.Context, name string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, contestantFlag, name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd, in, json.NewDecoder(out)}, cmd.Start()
}

// measure has no figures where the contestant does not take part.
func (p *process) measure(c race.Case, slice time.Duration) (race.Figures, error) {
	if err := json.NewEncoder(p.in).Encode(question{c, slice}); err != nil {
		return nil, err
	}
	var a answer
	if err := p.out.Decode(&a); err != nil {
		return nil, fmt.Errorf("its process gave no answer: %w", err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a.Figures, nil
}

func (p *process) end() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}
