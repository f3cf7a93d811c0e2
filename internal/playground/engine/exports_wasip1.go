package main

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// The page calls one function at a time.
var (
	input    []float64 // made by room
	told     []float64 // the latest numbers
	answer   unsafe.Pointer
	lanes    = map[int32]*lane{}
	arrivals []int64
	cost     int64
)

// room allocates memory for so many numbers.
//
//go:wasmexport room
func room(n int32) unsafe.Pointer {
	input = slices.Grow(input[:0], int(n))[:n]
	return unsafe.Pointer(unsafe.SliceData(input))
}

// output is the address of the latest answer.
//
//go:wasmexport output
func output() unsafe.Pointer { return answer }

func numbers(n []float64) int32 {
	told = n
	answer = unsafe.Pointer(unsafe.SliceData(n))
	return int32(len(n))
}

func words(w ...string) int32 {
	text := []byte(strings.Join(w, "\x00"))
	answer = unsafe.Pointer(unsafe.SliceData(text))
	return int32(len(text))
}

// limits returns limits of all algorithms, as text.
//
//go:wasmexport limits
func limits(events int32, per float64) int32 {
	return words(limitsOfAll(int64(events), time.Duration(per)*time.Microsecond)...)
}

// limit makes a lane from the text of a limit, of so many bytes. It returns an error, or an empty
// word, the algorithm, its kind of state, events, period and capacity.
//
//go:wasmexport limit
func limit(at, bytes int32) int32 {
	delete(lanes, at)
	l, err := newLane(string(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(input))), bytes)))
	if err != nil {
		return words(err.Error())
	}
	lanes[at] = l
	of := l.quota.Limit()
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return words("", l.quota.Algorithm().String(), l.keeps,
		number(of.Events), number(of.Per.Microseconds()), number(l.quota.Capacity()))
}

// traffic sets the traffic: n arrivals of so many units each.
//
//go:wasmexport traffic
func traffic(n int32, units float64) {
	arrivals, cost = slices.Grow(arrivals[:0], int(n))[:n], int64(units)
	for i := range arrivals {
		arrivals[i] = int64(input[i])
	}
}

// decide returns the most units within one period, the start of that period, the units in use at
// each point of the axis, and how long each arrival waits, or -1 if it is refused.
//
//go:wasmexport decide
func decide(at int32, from, to float64, points int32) int32 {
	c := lanes[at].decide(arrivals, cost, axis{int64(from), int64(to), int(points)})
	return numbers(append(append(append(told[:0], float64(c.most), float64(c.from)), c.used...), c.waits...))
}

// look returns the view of a lane at a time: its numbers, then the times in its log.
//
//go:wasmexport look
func look(at int32, now float64) int32 {
	v := lanes[at].look(int64(now))
	n := append(told[:0],
		float64(v.remaining), float64(v.next), float64(v.retry), float64(v.delay), float64(v.current), float64(v.previous))
	for _, taken := range v.log {
		n = append(n, float64(taken))
	}
	return numbers(n)
}
