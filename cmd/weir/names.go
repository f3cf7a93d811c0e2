package main

import (
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

// names are the keys of a service, by their digests.
type names struct {
	digester keyfunc.Digester
	known    map[string]string
}

// keyed returns the key that a command asks about, which may be known only by its digest.
func (n *names) keyed(key string) keyed {
	digest := n.digester.Digest(key).String()
	if _, isDigest := keyfunc.DigestOf(key); isDigest {
		key = n.known[digest]
	}
	return keyed{key, digest}
}

// readNames reads the file of keys, if there is one. own are the kinds of --keys.
func (s *session) readNames(file string, server *server, own string) (*names, error) {
	secret, err := server.secret()
	if err != nil {
		return nil, err
	}
	n := &names{keyfunc.NewDigester(secret), map[string]string{}}
	if file == "" {
		return n, nil
	}
	text, err := s.read(file)
	if err != nil {
		return nil, err
	}
	for at, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := keyOf(line, own)
		if err != nil {
			return nil, fmt.Errorf("--names: line %d: %w", at+1, err)
		}
		n.known[n.digester.Digest(key).String()] = key
	}
	return n, nil
}
