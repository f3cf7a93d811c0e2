// Package nearest finds what a misspelt word was meant to be.
package nearest

import (
	"slices"
	"strings"
)

// Of is the one of names that s was probably meant to be, or "".
func Of(s string, names []string) string {
	const longest = 64 // of anything worth the comparison
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

// plain is s without what people get wrong rather than mistype.
func plain(s string) string { return separators.Replace(strings.ToLower(s)) }

var separators = strings.NewReplacer("-", "", "_", "", " ", "")

// distance counts the letters to insert, drop, replace, or swap with their neighbour, to
// make b of a.
func distance(a, b string) int {
	var before []int // the row above the one above
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
