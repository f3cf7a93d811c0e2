package keyfunc_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
)

// The reader goes from right to left, the grammar from left to right. What the
// grammar writes must be read as it was meant.
func TestForwardedIsReadAsItWasWritten(t *testing.T) {
	f := keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8"))
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	rapid.Check(t, func(t *rapid.T) {
		want, line := "10.0.0.1", ""
		doubt := false
		for i := range rapid.IntRange(1, 4).Draw(t, "elements") {
			// From the right: the first that is no proxy decides.
			node := rapid.SampledFrom([]string{"10.0.0.2", "192.0.2.1", "198.51.100.7", "unknown"}).Draw(t, "node")
			pairs := []string{fmt.Sprintf("for=%s", node)}
			if rapid.Bool().Draw(t, "quoted") {
				pairs[0] = fmt.Sprintf("for=%q", node)
			}
			for _, name := range rapid.SliceOfNDistinct(
				rapid.SampledFrom([]string{"by", "host", "proto", "x"}), 0, 3, rapid.ID).Draw(t, "names") {
				value := rapid.StringOf(rapid.RuneFrom([]rune(`a,;=" \for19.`))).Draw(t, "value")
				pairs = append(pairs, name+`="`+quote.Replace(value)+`"`)
			}
			element := strings.Join(rapid.Permutation(pairs).Draw(t, "pairs"), ";")
			if line = element + ", " + line; i == 0 {
				line = element
			}
			if !doubt && (want == "10.0.0.1" || want == "10.0.0.2") {
				want, doubt = node, node == "unknown"
			}
		}
		if doubt {
			want = "10.0.0.1"
		}
		key, _ := f(from("10.0.0.1:1", "Forwarded", line))
		if got, class := keyfunc.Classify(key); got != want || (class == keyfunc.InDoubt) != doubt {
			t.Fatalf("key = %q of class %d, want %q for %s, in doubt: %t", got, class, want, line, doubt)
		}
	})
}
