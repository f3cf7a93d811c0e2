package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// unread are the ways of compression that are not read here, and the command that does.
var unread = []struct{ begin, name, command string }{
	{"\x28\xb5\x2f\xfd", "zstd", "zstdcat"},
	{"BZh", "bzip2", "bzip2 -dc"},
	{"\xfd7zXZ\x00", "xz", "xz -dc"},
	{"\x04\x22\x4d\x18", "lz4", "lz4 -dc"},
}

// decompressed reads what gzip has compressed, several parts one after the other too, or else what
// is there.
func decompressed(from io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(from, longestLine)
	begin, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, of := range unread {
		if bytes.HasPrefix(begin, []byte(of.begin)) {
			return nil, fmt.Errorf("the log is compressed with %s, which is not read here: %s LOG | weir ... -", of.name, of.command)
		}
	}
	if !bytes.HasPrefix(begin, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	plain, err := gzip.NewReader(in)
	if err != nil {
		return nil, gzipError(err)
	}
	return bufio.NewReaderSize(&gzipped{plain}, longestLine), nil
}

// A gzipped says clearly what is wrong with what it reads.
type gzipped struct{ plain *gzip.Reader }

func (g *gzipped) Read(b []byte) (int, error) {
	n, err := g.plain.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = gzipError(err)
	}
	return n, err
}

func gzipError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the log is cut off: its gzip has no end")
	}
	return fmt.Errorf("the log's gzip cannot be read: %w", err)
}
