package race

import (
	"io"
	"os"
)

// Progress is where a command says how far it is: a terminal. What is written to a file or
// a log, where lines cannot be taken back, is discarded.
func Progress(f *os.File) io.Writer {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return io.Discard
	}
	return f
}
