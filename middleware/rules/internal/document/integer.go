package document

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*(_[0-9]+)*)$`)

// ParseInteger reads decimal digits, and _ between them, into bits. All else can be read in
// two ways: 010 is 8 or 10, and 1e3 of a limit is rather a mistake.
func ParseInteger(s string, bits int) (int64, error) {
	if !integer.MatchString(s) {
		return 0, errors.New("want a whole number, written in digits: 1000, or 1_000")
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, bits)
	if err != nil {
		return 0, errors.New("the number is out of range")
	}
	return n, nil
}
