package race

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
)

// A Child is this program, started again: a process of its own, with lines of JSON on
// its standard input and output.
type Child struct {
	Out *bufio.Reader
	in  io.WriteCloser
	cmd *exec.Cmd
}

// childEnv is set for a program that is a Child.
const childEnv = "RACE_CHILD"

// IsChild reports whether this process is one.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// StartChild starts one, until it is closed or ctx ends.
func StartChild(ctx context.Context) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), childEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &Child{bufio.NewReaderSize(out, 1<<20), in, cmd}, cmd.Start()
}

// Send writes a line.
func (c *Child) Send(v any) error { return json.NewEncoder(c.in).Encode(v) }

// Receive reads a line, and not a byte more.
func (c *Child) Receive(into any) error {
	line, err := c.Out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

// Close ends a Child by the end of its input, and waits for it.
func (c *Child) Close() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}
