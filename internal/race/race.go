// Package race reduces the number of random cases under the race detector. The detector makes a
// case about ten times as slow, and more cases find no more races. Without it, tests try all
// cases, in `go test ./...` and in CI's `make newest`.
package race

// Draws returns how many cases a test tries: underRace under the race detector, or else all.
func Draws[N int | uint64](all, underRace N) N {
	if Enabled {
		return underRace
	}
	return all
}
