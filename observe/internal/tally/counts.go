package tally

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// counts are eight counters, each the sum of one in every line. A line is what processors
// take from each other: with one for each, a counter costs as much on many as on one.
type counts struct{ lines []line }

type line [8]atomic.Uint64

const mostLines = 32 // of 64 bytes

// lines is how many there are: enough for two processors to seldom share one.
var lines = func() int {
	if runtime.GOMAXPROCS(0) == 1 {
		return 1
	}
	return min(8<<bits.Len(uint(runtime.GOMAXPROCS(0)-1)), mostLines)
}()

func newCounts() *counts { return &counts{make([]line, lines)} }

func (c *counts) add(s seat, i int) { c.lines[int(s)&(len(c.lines)-1)][i].Add(1) }

func (c *counts) sum(i int) (n uint64) {
	for l := range c.lines {
		n += c.lines[l][i].Load()
	}
	return n
}

// A seat says which line to count in.
type seat uint8

// hash spreads what is at different addresses. A seat is made of the Observation's: those
// are reused, mostly by the processor that used it before, so that line is its own.
func hash[T any](p *T) uint8 {
	return uint8(uint64(uintptr(unsafe.Pointer(p))) * 0x9E3779B97F4A7C15 >> 56)
}
