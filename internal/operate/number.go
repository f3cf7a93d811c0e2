package operate

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Number formats n like 1,234,567.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Count formats n things: 1 key, 1,234 keys.
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + many
}

// Percent formats a share, from 0 to 1. Only 0 is 0%, and only 1 is 100%.
func Percent(share float64) string {
	p, digits := 100*min(max(share, 0), 1), 10.0
	switch {
	case p > 0 && p < 0.01:
		return "<0.01%"
	case p > 99.99 && p < 100:
		return ">99.99%"
	case p < 1 || p > 99:
		digits = 100
	}
	return strconv.FormatFloat(math.Round(p*digits)/digits, 'f', -1, 64) + "%"
}

// Share formats n of all as a percentage.
func Share[T int64 | uint64](n, all T) string { return Percent(float64(n) / float64(max(1, all))) }

// Duration formats d to the second, or if it is shorter to the millisecond, without parts that are zero: 1h, 90ms.
func Duration(d time.Duration) string {
	unit := time.Second
	if d < unit {
		unit = time.Millisecond
	}
	text := d.Round(unit).String()
	if whole, ok := strings.CutSuffix(text, "m0s"); ok {
		text = whole + "m"
	}
	if whole, ok := strings.CutSuffix(text, "h0m"); ok {
		text = whole + "h"
	}
	return text
}
