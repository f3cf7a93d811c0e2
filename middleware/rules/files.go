package rules

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	// defaultPoll is the time between two looks at files.
	defaultPoll = time.Second

	// fresh is how long after a change a file system may give another one the same time: two
	// seconds on FAT, the coarsest, and some for clocks that differ.
	fresh = 3 * time.Second
)

// files are a rules file and those that it names, which are looked at from time to time
// rather than watched: not every file system tells of changes.
type files struct {
	path string

	others []string          // that the rules named when they were last read
	looks  []look            // the last ones
	found  [sha256.Size]byte // at the last look that read the files
	told   [sha256.Size]byte // of what was last reported as changed
}

// A look is what can be told of a file without reading it.
type look struct {
	path string
	info os.FileInfo
	err  error // then there is no info
	at   time.Time
}

func lookAt(path string) look {
	at := time.Now()
	info, err := os.Stat(path)
	return look{path, info, err, at}
}

// same reports whether the file can't have been written between two looks.
func (l look) same(next look) bool {
	if l.err != nil || next.err != nil {
		return l.path == next.path && l.err != nil && next.err != nil && l.err.Error() == next.err.Error()
	}
	return l.path == next.path && os.SameFile(l.info, next.info) &&
		l.info.Size() == next.info.Size() &&
		l.info.Mode() == next.info.Mode() &&
		l.info.ModTime().Equal(next.info.ModTime()) &&
		l.at.Sub(l.info.ModTime()).Abs() >= fresh // or it was written just before, and maybe again
}

// look reports whether the files have changed and stay so: the last two looks found the
// same, and other than what was reported before. What was found are the rules, or the error.
func (f *files) look(ctx context.Context, name string, o Options) (rules *Rules, err error, changed bool) {
	next := make([]look, 0, 1+len(f.others))
	for _, path := range append([]string{f.path}, f.others...) {
		next = append(next, lookAt(path))
	}
	if f.found == f.told && slices.EqualFunc(f.looks, next, look.same) {
		return nil, nil, false
	}
	before := f.found
	rules, err = f.read(ctx, name, o)
	f.looks = next // from before they were read
	if f.found != before || f.found == f.told {
		return nil, nil, false // it may be in the middle of being written, or is known
	}
	f.told = f.found
	return rules, err, true
}

// read is the rules in the files, or what is wrong with them.
func (f *files) read(ctx context.Context, name string, o Options) (*Rules, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("rules: read %s: %w", f.path, err)
	}
	rules, err := loadFile(f.path, name, o)
	if rules == nil {
		f.found = sha256.Sum256([]byte(err.Error()))
		return nil, err
	}
	f.found, f.others = rules.digest, rules.files
	return rules, err
}
