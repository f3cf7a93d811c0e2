package rules

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/yamlfile"
)

// defaultPoll is the default time between two checks of files.
const defaultPoll = time.Second

// files are a rules file and the files that it names. They are looked at in intervals, because not every file
// system reports changes.
type files struct {
	path   string
	others []string // that the rules named when they were last parsed

	stamps  []stamp // of the last look
	since   time.Time
	isFinal bool // the contents have been read since changes have another time

	found [sha256.Size]byte // at the last look
	known [sha256.Size]byte // what was last parsed
}

// sameTime is how long a file may change without a change of its time: file systems round times, up to two
// seconds.
const sameTime = 2 * time.Second

// A stamp is what a file system says of a file.
type stamp struct {
	path string
	info os.FileInfo // nil: there is none
}

// is reports whether the file is the same, and has not changed unless within sameTime.
func (s stamp) is(other stamp) bool {
	a, b := s.info, other.info
	if s.path != other.path || a == nil || b == nil {
		return false
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// look reports whether the files have changed and are complete: two looks in a row found the same contents,
// and these were not parsed yet. It reads the files if one has another stamp, and once more after sameTime.
func (f *files) look() bool {
	var stamps []stamp
	for _, path := range append([]string{f.path}, f.others...) {
		info, _ := os.Stat(path) // an error is found again when the file is read
		stamps = append(stamps, stamp{path, info})
	}
	isSame := slices.EqualFunc(stamps, f.stamps, stamp.is)
	if !isSame {
		f.stamps, f.since, f.isFinal = stamps, time.Now(), false
	}
	before := f.found
	if !f.isFinal {
		isFinal := isSame && time.Since(f.since) >= sameTime
		f.isFinal = f.readAll() && isFinal
	}
	return f.found == before && f.found != f.known
}

// readAll reads the files into found, and reports whether that was possible.
func (f *files) readAll() bool {
	text, err := readFile(f.path, yamlfile.MaxBytes)
	if err != nil {
		f.found = digestOf(invalid.New("rules", "%w", err))
		return false
	}
	sum := sha256.New()
	sum.Write(text)
	for _, path := range f.others {
		text, wrong := readFile(path, mostBans)
		addOther(sum, text, wrong)
		err = errors.Join(err, wrong)
	}
	sum.Sum(f.found[:0])
	return err == nil
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
	text, err := readFile(path, yamlfile.MaxBytes)
	if err != nil {
		return nil, invalid.New("rules", "%w", err)
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
