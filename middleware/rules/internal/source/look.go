package source

import (
	"os"
	"time"
)

// fresh is how long after a change a file system may give another one the same time: two
// seconds on FAT, the coarsest, and some for clocks that differ.
const fresh = 3 * time.Second

// A look is what can be told of a file without reading it.
type look struct {
	info os.FileInfo
	err  error // then there is no info
	at   time.Time
}

func lookAt(path string) look {
	at := time.Now()
	info, err := os.Stat(path)
	return look{info, err, at}
}

// changed tells whether the file may have been written between two looks.
func (l look) changed(next look) bool {
	if l.err != nil || next.err != nil {
		return l.err == nil || next.err == nil || l.err.Error() != next.err.Error()
	}
	return !os.SameFile(l.info, next.info) ||
		l.info.Size() != next.info.Size() ||
		l.info.Mode() != next.info.Mode() ||
		!l.info.ModTime().Equal(next.info.ModTime()) ||
		l.at.Sub(l.info.ModTime()).Abs() < fresh // it was written just before, and maybe again
}
