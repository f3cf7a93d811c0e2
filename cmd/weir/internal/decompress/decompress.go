// Package decompress reads what may be compressed, whichever way its first bytes say.
package decompress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// mostWindow is how far back a frame of zstd may refer: as much as the command zstd decompresses
// without being told to take more memory. A decoder takes twice that, where a frame asks for it.
const mostWindow = 128 << 20

// buffered is how much is read at once.
const buffered = 1 << 18

// unread are the ways of compression that are not read here, and the command that does.
var unread = []struct{ begin, name, command string }{
	{"BZh", "bzip2", "bzip2 -dc"},
	{"\xfd7zXZ\x00", "xz", "xz -dc"},
	{"\x04\x22\x4d\x18", "lz4", "lz4 -dc"},
}

// NewReader reads what from has: what gzip or zstd has compressed, several parts one after the
// other too, or else what is there.
func NewReader(from io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(from, buffered)
	begin, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, of := range unread {
		if bytes.HasPrefix(begin, []byte(of.begin)) {
			return nil, fmt.Errorf("the log is compressed with %s, which is not read here: %s LOG | weir ... -", of.name, of.command)
		}
	}
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(in)
		if err != nil {
			return nil, clear("gzip", err)
		}
		return &reader{"gzip", plain}, nil
	case isZstd(begin):
		// One goroutine: whoever reads decompresses, and nothing is left to close.
		plain, err := zstd.NewReader(in,
			zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(mostWindow),
			zstd.WithDecoderMaxMemory(1<<63), // of which a log is never: it is a stream
			zstd.WithDecoderLowmem(false),    // or a large window would be moved for each block
		)
		if err != nil {
			return nil, clear("zstd", err)
		}
		return &reader{"zstd", plain}, nil
	}
	return in, nil
}

// isZstd knows a frame of zstd, and one that is to be skipped, with which some compressors begin.
func isZstd(begin []byte) bool {
	return bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(begin) >= 4 && begin[0]&0xf0 == 0x50 && bytes.Equal(begin[1:4], []byte{0x2a, 0x4d, 0x18})
}

// A reader says clearly what is wrong with what it reads.
type reader struct {
	name string
	io.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = clear(r.name, err)
	}
	return n, err
}

func clear(name string, err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the log is cut off: its %s has no end", name)
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return errors.New("the log's zstd needs more than 128 MiB of memory: zstd -dc --long=31 LOG | weir ... -")
	}
	return fmt.Errorf("the log's %s cannot be read: %w", name, err)
}
