// Package lab runs real clients and proxies against Weir, and holds the tables in docs/ to what they do.
//
// The tests read a table between two comments of a page. WEIR_UPDATE=1 writes it. The versions are in
// go.mod, in node/package.json and in the tables.
package lab

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// compare compares what was seen with the table of a page, row by row. A short run has some of the rows.
// Versions may differ, as another system packages other versions.
func compare(t *testing.T, page, seen string) {
	path := "../../../docs/" + page + ".md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), "<!-- lab -->\n")
	table, after, ends := strings.Cut(rest, "<!-- /lab -->")
	if !begins || !ends {
		t.Fatalf("%s has no table of the lab", path)
	}
	if os.Getenv("WEIR_UPDATE") != "" && !testing.Short() {
		if err := os.WriteFile(path, []byte(before+"<!-- lab -->\n"+seen+"<!-- /lab -->"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	known := strings.Split(number.ReplaceAllString(table, ""), "\n")
	for line := range strings.Lines(number.ReplaceAllString(seen, "")) {
		if !slices.Contains(known, strings.TrimSuffix(line, "\n")) {
			t.Errorf("%s has no such row. make lab writes the table anew:\n%s", path, line)
		}
	}
}

// number is a version, or a part of an address.
var number = regexp.MustCompile(`\d+\.\d+(\.\d+)*(-rc\.\d+)?`)
