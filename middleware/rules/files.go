package rules

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"
)

// defaultPoll is the default time between two checks of files.
const defaultPoll = time.Second

// files are a rules file and the files that it names. They are read at intervals, because not every file
// system reports changes or their times.
type files struct {
	path   string
	others []string // that the rules named when they were last parsed

	found [sha256.Size]byte // at the last look
	known [sha256.Size]byte // what was last parsed
}

// look reports whether the files have changed and are complete: two looks in a row found the same contents,
// and these were not parsed yet.
func (f *files) look() bool {
	before := f.found
	text, err := readFile(f.path, maxBytes)
	if err != nil {
		f.found = digestOf(fmt.Errorf("rules: %w", err))
	} else {
		sum := sha256.New()
		sum.Write(text)
		for _, path := range f.others {
			text, err := readFile(path, mostBans)
			addOther(sum, text, err)
		}
		sum.Sum(f.found[:0])
	}
	return f.found == before && f.found != f.known
}

// read reads and checks the files.
func (f *files) read(name string, o Options) (*Rules, error) {
	rules, err := loadFile(f.path, name, o)
	if rules == nil {
		f.known = digestOf(err)
		return nil, err
	}
	f.known, f.others = rules.digest, rules.files
	return rules, err
}

func digestOf(err error) [sha256.Size]byte { return sha256.Sum256([]byte(err.Error())) }

// addOther adds to a digest a file that the rules name, or the error of reading it.
func addOther(digest hash.Hash, text []byte, err error) {
	fmt.Fprintf(digest, "\x00%d\x00%v\x00", len(text), err)
	digest.Write(text)
}

// loadFile reads and checks the rules file at path, which messages call name. If the file has problems,
// the Rules still hold the names of its files. If it cannot be read, there are no Rules.
func loadFile(path, name string, o Options) (*Rules, error) {
	text, err := readFile(path, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return parse(name, text, o, func(other string) (string, []byte, error) {
		if !filepath.IsAbs(other) {
			other = filepath.Join(filepath.Dir(path), other)
		}
		text, err := readFile(other, mostBans)
		return other, text, err
	})
}

// mostBans bounds the length of a file of bans: a longer one is probably a wrong file, and takes long to
// read.
const mostBans = 32 << 20

func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path) // first: to open a named pipe waits for its other end
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d MiB", path, most>>20)
	}
	return text, err
}
