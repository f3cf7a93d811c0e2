package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Medians are of figures, and of the ratios within a round: a slow round slows both.
func TestRatiosAreOfOneRound(t *testing.T) {
	r := newResults()
	for i, lines := range []string{
		"BenchmarkAllowed/keys=1/weir-2 \t 100\t 50 ns/op\t 0 B/op\nBenchmarkAllowed/keys=1/peer-2 100 100 ns/op 1 B/op",
		"BenchmarkAllowed/keys=1/weir-2 100 500 ns/op 0 B/op\nBenchmarkAllowed/keys=1/peer-2 100 1000 ns/op 1 B/op",
		"BenchmarkAllowed/keys=1/weir-2 100 60 ns/op 0 B/op\nBenchmarkAllowed/keys=1/peer-2 100 50 ns/op 1 B/op",
	} {
		r.add(i, lines)
	}
	var out bytes.Buffer
	r.report(&out, "")
	assert.Contains(t, out.String(), "### Allowed/keys=1 on 2 cores")
	assert.Contains(t, out.String(), "| weir | 60 | 0 | 0.50 (0.50 to 1.20) |")
	assert.Contains(t, out.String(), "| peer | 100 | 1 | 1.00 (1.00 to 1.00) |")
}

func TestARoundThatFailedIsLeftOut(t *testing.T) {
	r := newResults()
	r.add(0, "BenchmarkX/c/peer 1 10 ns/op")
	r.add(1, "BenchmarkX/c/peer 1 20 ns/op\nBenchmarkX/c/weir 1 10 ns/op")
	middle, _, _ := r.ratio("X/c", "weir", "peer", "ns/op")
	assert.InDelta(t, 0.5, middle, 1e-9)
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0", "./memory"}, {}, {"-bench", "(", "./memory"}, {"./memory", "./redis"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
}
