package operate

import (
	"math"
	"strconv"
)

// Number formats n like 1,234,567.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
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
