package source

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symbolic links Linux follows before it speaks of a loop.
const maxLinks = 40

// trail is every name on the way of an absolute path whose replacement changes what is
// read: the symbolic links, and at last the file itself, there or not. A Kubernetes
// ConfigMap's file is such a link, through ..data, which is another.
//
// The names' directories are physical ones, as the system names them in events. Links in
// the root directory, such as /lib or macOS's /var, are the system's own and left out.
func trail(path string) (names []string) {
	root, ahead := split(path)
	dir := root
	for links := 0; len(ahead) > 0; {
		name := ahead[0]
		ahead = ahead[1:]
		if name == ".." {
			dir = filepath.Dir(dir) // dir holds no link, so this is what the system would do
			continue
		}
		at := filepath.Join(dir, name)
		target, err := os.Readlink(at)
		if err != nil { // it is no link, or not there
			if len(ahead) == 0 {
				names = append(names, at)
			}
			dir = at
			continue
		}
		if dir != root {
			names = append(names, at)
		}
		if links++; links > maxLinks {
			return names
		}
		next := words(target)
		if filepath.IsAbs(target) {
			dir, next = split(target)
		}
		ahead = append(next, ahead...)
	}
	return names
}

// split separates the root of an absolute path from the names below it.
func split(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), words(path[len(volume):])
}

func words(path string) (names []string) {
	for name := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}
