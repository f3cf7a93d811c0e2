package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/keyfunc"
)

// namesFlag is the flag for a file of keys. Redis holds only digests, which cannot be turned back into
// keys, so an operator lists the keys that there may be.
func namesFlag(flags *pflag.FlagSet) *string {
	return flags.String("names", "", "a `file` with keys, one a line, such as user:42, to show in place of their digests; - for the standard input")
}

// names are keys by their digests.
type names map[string]string

// longestName is the greatest length of a line, in bytes.
const longestName = 64 << 10

// readNames reads the file of keys. own are the kinds of --keys.
func (s *session) readNames(file string, server *server, own string) (names, error) {
	if file == "" {
		return nil, nil
	}
	secret, err := server.secret()
	if err != nil {
		return nil, err
	}
	if err := keyfunc.CheckSecret("weir", secret); err != nil {
		return nil, usageError{err}
	}
	in, err := s.open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	digester, known := keyfunc.NewDigester(secret), names{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestName)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		key, err := keyOf(text, own)
		if err != nil {
			return nil, fmt.Errorf("--names: line %d: %w", n, err)
		}
		known[digester.Digest(key).String()] = key
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("--names: a line is longer than %d bytes", longestName)
	}
	return known, lines.Err()
}
