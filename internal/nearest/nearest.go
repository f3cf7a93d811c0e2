// Package nearest finds the name that a misspelt word is closest to.
package nearest

import (
	"slices"
	"strings"
)

// Of returns the name that is closest to s, or "" if none is close.
func Of(s string, names []string) string {
	const longest = 64 // bytes; longer words have no name
	switch {
	case slices.Contains(names, s):
		return s
	case len(s) > longest:
		return ""
	}
	best, least := "", max(1, len(s)/3)+1
	for _, name := range names {
		if d := distance(plain(s), plain(name)); d < least {
			best, least = name, d
		}
	}
	return best
}

// plain returns s in lower case, without hyphens, underscores and spaces.
func plain(s string) string { return separators.Replace(strings.ToLower(s)) }

var separators = strings.NewReplacer("-", "", "_", "", " ", "")

// distance returns how many edits turn a into b. An edit inserts, drops or replaces a byte,
// or swaps two neighbours.
func distance(a, b string) int {
	var before []int // the row before above
	above := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			replaced := above[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(above[j+1]+1, row[j]+1, replaced)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
