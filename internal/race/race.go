// Package race has tests try fewer random cases under the race detector, which makes each some
// ten times as slow, and finds nothing in more of the same. All are tried without it, in
// `go test ./...` and in CI's `make newest`.
package race

// Draws is how many cases a test tries: all of them, or so many under the race detector.
func Draws[N int | uint64](all, underRace N) N {
	if Enabled {
		return underRace
	}
	return all
}
