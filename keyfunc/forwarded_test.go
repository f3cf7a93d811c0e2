package keyfunc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
)

func TestTrustForwardedReadsRFC7239(t *testing.T) {
	const (
		proxy  = "10.0.0.1:1234"
		peer   = "10.0.0.1"  // the key when in doubt
		client = "192.0.2.1" // the key when not
	)
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"no header", nil, peer},
		{"one element", []string{`for=192.0.2.1`}, client},
		{"all parameters", []string{`for=192.0.2.1;proto=https;by=203.0.113.43;host=example.com`}, client},
		{"for comes last", []string{`proto=https;by=203.0.113.43;for=192.0.2.1`}, client},
		{"any case", []string{`PROTO=https;For=192.0.2.1`}, client},
		{"an extension", []string{`secret=x;for=192.0.2.1`}, client},
		{"whitespace around semicolons", []string{`for=192.0.2.1 ; proto=https;	by=_x`}, client},
		{"empty pairs", []string{`;;for=192.0.2.1;;proto=https;`}, client},
		{"empty elements", []string{`,, for=192.0.2.1 ,,`, ``, ` , `}, client},
		{"client's own element", []string{`for=198.51.100.7, for=192.0.2.1`}, client},
		{"client's own line", []string{`for=198.51.100.7`, `for=192.0.2.1`}, client},
		{"proxies in between", []string{`for=192.0.2.1, for=10.0.0.3`, `for="[fd00::1]:80"`}, client},
		{"all are proxies", []string{`for=10.0.0.3, for=10.0.0.2`}, "10.0.0.3"},

		// nodes
		{"quoted", []string{`for="192.0.2.1"`}, client},
		{"port", []string{`for="192.0.2.1:4711"`}, client},
		{"obfuscated port", []string{`for="192.0.2.1:_gazonk"`}, client},
		{"IPv6", []string{`for="[2001:db8:cafe::17]"`}, "2001:db8:cafe::/64"},
		{"IPv6 and port", []string{`for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::/64"},
		{"IPv6 and obfuscated port", []string{`for="[2001:db8:cafe::17]:_a.b-c_d"`}, "2001:db8:cafe::/64"},
		{"IPv6 with a zone", []string{`for="[fe80::1%eth0]"`}, "fe80::/64"},
		{"mapped", []string{`for="[::ffff:c000:201]"`}, client},
		{"escapes", []string{`for="\1\92.0.2\.1"`}, client},
		{"escaped brackets", []string{`for="\[2001:db8:cafe::17\]"`}, "2001:db8:cafe::/64"},
		{"unknown", []string{`for=192.0.2.1, for=unknown`}, peer},
		{"obfuscated", []string{`for=192.0.2.1, for=_hidden`}, peer},
		{"obfuscated and quoted", []string{`for=192.0.2.1, for="_SEVKISEK"`}, peer},
		{"a name", []string{`for=example.com`}, peer},
		{"no for", []string{`for=192.0.2.1, proto=https`}, peer},
		{"only a semicolon", []string{`for=192.0.2.1, ;`}, peer},
		{"empty", []string{`for=192.0.2.1, for=""`}, peer},
		{"octal", []string{`for=010.0.0.2`}, peer},
		{"integer", []string{`for=3405803783`}, peer},
		{"port without quotes", []string{`for=192.0.2.1:80`}, peer},
		{"IPv6 without quotes", []string{`for=[2001:db8::1]`}, peer},
		{"IPv6 without brackets", []string{`for="2001:db8::1"`}, peer},
		{"IPv4 in brackets", []string{`for="[192.0.2.1]"`}, peer},
		{"two ports", []string{`for="192.0.2.1:80:_x"`}, peer},
		{"two ports behind brackets", []string{`for="[2001:db8::1]:80:_x"`}, peer},
		{"port of six digits", []string{`for="192.0.2.1:123456"`}, peer},
		{"empty port", []string{`for="192.0.2.1:"`}, peer},
		{"empty obfuscated port", []string{`for="192.0.2.1:_"`}, peer},
		{"odd obfuscated port", []string{`for="192.0.2.1:_a!"`}, peer},
		{"space inside", []string{`for=" 192.0.2.1"`}, peer},

		// quoted strings
		{"comma and semicolon in quotes", []string{`for=192.0.2.1;host="x,for=9.9.9.9;y="`}, client},
		{"quote in quotes", []string{`for=192.0.2.1;host="x\", for=9.9.9.9;y=\""`}, client},
		{"backslash in quotes", []string{`host="x\\";for=192.0.2.1`}, client},
		{"backslashes before a quote", []string{`for=192.0.2.1;host="\\\", for=9.9.9.9;a=\"\\"`}, client},
		{"only backslashes", []string{`for=192.0.2.1;host="\\\\"`}, client},
		{"an escaped end", []string{`for=192.0.2.1;host="x\"`}, peer},
		{"an end without a beginning", []string{`for=192.0.2.1;host=x"`}, peer},
		{"only a quote", []string{`"`}, peer},
		{"quotes without a name", []string{`for=192.0.2.1;"x"`}, peer},
		{"text behind quotes", []string{`for="192.0.2.1"x`}, peer},
		{"text before quotes", []string{`for=x"192.0.2.1"`}, peer},
		{"quotes side by side", []string{`for="x""192.0.2.1"`}, peer},
		{"the client leaves a quote open", []string{`for="9.9.9.9, for=192.0.2.1`}, client},
		{"and hopes for the proxy's", []string{`for=9.9.9.9;x=", for=192.0.2.1;host="example.com"`}, client},
		{"the client ends in a backslash", []string{`for=9.9.9.9;x="\, for="192.0.2.1:80"`}, client},
		{"a quote across lines", []string{`for=9.9.9.9;x="`, `for=192.0.2.1`}, client},
		{"a quote across lines, closed", []string{`for=192.0.2.1;x="`, `"`}, peer},
		{"across lines, from the left", []string{`for=192.0.2.1`, `x=", for=10.0.0.2`}, peer},

		// not in the grammar
		{"for twice", []string{`for=192.0.2.1;for=192.0.2.1`}, peer},
		{"for twice, in two cases", []string{`for=192.0.2.1;FOR=10.0.0.2`}, peer},
		{"another parameter twice", []string{`for=192.0.2.1;host=a;host=b`}, peer},
		{"too many parameters", []string{`for=192.0.2.1;a=1;b=1;c=1;d=1;e=1;f=1;g=1;h=1`}, peer},
		{"space before the equals sign", []string{`for =192.0.2.1`}, peer},
		{"space behind it", []string{`for= 192.0.2.1`}, peer},
		{"no equals sign", []string{`192.0.2.1`}, peer},
		{"no value", []string{`for=`}, peer},
		{"no name", []string{`=192.0.2.1`}, peer},
		{"no name, quoted", []string{`="192.0.2.1"`}, peer},
		{"two pairs without a semicolon", []string{`for=192.0.2.1 proto=https`}, peer},
		{"garbage on the right", []string{`for=192.0.2.1, x`}, peer},
		{"garbage on the left", []string{`x, for=192.0.2.1`}, client},
		{"garbage on another line", []string{`x"`, `for=192.0.2.1`}, client},
		{"garbage beyond a proxy", []string{`for=192.0.2.1, x, for=10.0.0.2`}, peer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8", "fd00::/8"))
			assert.Equal(t, tt.want, keyOf(t, f, from(proxy, lines("Forwarded", tt.lines)...)))
			assert.Equal(t, "203.0.113.9", keyOf(t, f, from("203.0.113.9:1", lines("Forwarded", tt.lines)...)),
				"a stranger's header is not read")
		})
	}
}

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
