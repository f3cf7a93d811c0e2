package rules_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// FuzzParse reads any bytes as a rules file.
func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte("\r0")) // JSON behind a line that ends as they did once
	f.Add([]byte(readText(f, "testdata/explain/order.yaml")))
	for _, seed := range []string{
		"? a\n: b", "a: 'b''c\n  d'\n", "{a, b: , ? c}", "[a: b, - c]", "mode: \"\\x41\\U0001F600\\\n  b\"", "- - - a\n  - b\n", "a: |2+\n   b\n\n",
		"tiers:\n  a:\n    limit: b\n   key: []\n", "a\rb: c", "é: ü # ö\nö", "a: !\"", "a: !b!c d", "%TAG ! a",
	} {
		f.Add([]byte(seed))
	}
	for _, of := range problemFiles(f) {
		f.Add([]byte(of.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		requireSense(t, text)
		requireTheSameAgain(t, text)
	})
}

func sample(t testing.TB) []byte {
	t.Helper()
	text, _, _ := strings.Cut(readText(t, "testdata/explain/sample.yaml"), "\n# explain")
	return []byte(text)
}

// requireSense reads a text and requires what is promised of any: rules that can be used,
// or problems that are in it. It reports which.
func requireSense(t testing.TB, text []byte) (good bool) {
	t.Helper()
	r, err := rules.Parse(text, rules.Options{})
	if err != nil {
		requireProblems(t, text, err)
		return false
	}
	if _, err := middleware.New(r.Config()); err != nil {
		t.Fatalf("%q is taken, and refused by package middleware: %v", text, err)
	}
	for _, warning := range r.Warnings() {
		requireWithin(t, text, warning)
	}
	return true
}

func requireTheSameAgain(t testing.TB, text []byte) {
	t.Helper()
	r, err := rules.Parse(text, rules.Options{})
	again, errAgain := rules.Parse(text, rules.Options{})
	require.Equal(t, err, errAgain, "%q", text)
	if err == nil {
		require.Equal(t, r.Warnings(), again.Warnings(), "%q", text)
		require.Empty(t, rules.Diff(r, again), "%q", text)
	}
}

func requireProblems(t testing.TB, text []byte, err error) {
	t.Helper()
	var wrong *rules.Error
	if !errors.As(err, &wrong) || len(wrong.Problems) == 0 || reflect.TypeOf(err) != reflect.TypeFor[*rules.Error]() {
		t.Fatalf("%q: %T is no error about the file: %v", text, err, err)
	}
	for _, p := range wrong.Problems {
		requireWithin(t, text, p)
	}
}

// requireWithin requires a problem to be somewhere in the text, in one line and in plain words.
func requireWithin(t testing.TB, text []byte, p rules.Problem) {
	t.Helper()
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), "\n")
	if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > utf8.RuneCountInString(lines[p.Line-1])+1 {
		t.Fatalf("%q: the problem is not in the text: %s", text, p)
	}
	if p.Message == "" || strings.ContainsAny(p.String(), "\n\r") || len(p.String()) > 2000 {
		t.Fatalf("%q: the problem can't be read: %q", text, p)
	}
	if strings.HasPrefix(p.Message, "syntax: ") && strings.Contains(p.Message, `"`) {
		t.Fatalf("%q: the parser's message quotes the document: %s", text, p)
	}
	for _, name := range []string{
		"limiter:", "limiter.", "keyfunc:", "keyfunc.", "middleware:", "middleware.", "bans:", "bans.", "route.", "netip.", "strconv.", "Escalate.",
		"TrustProxies", "TrustHops", "Events", "%!",
	} {
		if strings.Contains(p.Message, name) && !strings.Contains(string(text), name) {
			t.Fatalf("%q: the problem speaks of Go: %s", text, p)
		}
	}
}

// The sample, edited by somebody with the worst of luck: it either means something, or all
// that is wrong is told where it is. WEIR_DRAWS is how many edits are tried, times four.
func TestAnEditOfTheSampleIsReadOrItsProblemsAreInTheText(t *testing.T) {
	// Which a text alone can't name.
	original := strings.Replace(string(sample(t)), ", file: banned.txt", "", 1)
	edits, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_DRAWS"), "100"))
	require.NoError(t, err)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 0))
			good := 0
			for i := range edits {
				text := original
				for range 1 + rng.IntN(3) {
					text = mutations[rng.IntN(len(mutations))](rng, text)
				}
				if requireSense(t, []byte(text)) {
					good++
				}
				if i%10 == 0 {
					requireTheSameAgain(t, []byte(text))
				}
			}
			require.Greater(t, good, edits/20, "or the edits are too rough to test anything but syntax")
			require.Less(t, good, edits/2, "or they are too gentle")
		})
	}
}

// mutations are what may happen to a text.
var mutations = []func(*rand.Rand, string) string{
	func(rng *rand.Rand, s string) string { // a byte is lost
		at := rng.IntN(len(s) + 1)
		return s[:at] + s[min(at+1, len(s)):]
	},
	func(rng *rand.Rand, s string) string { // or becomes another
		at := rng.IntN(len(s) + 1)
		return s[:at] + string(byte(rng.IntN(256))) + s[min(at+1, len(s)):]
	},
	func(rng *rand.Rand, s string) string { // or is there twice
		at := rng.IntN(len(s) + 1)
		return s[:at] + s[max(at-1, 0):]
	},
	func(rng *rand.Rand, s string) string { // it ends too early
		return s[:rng.IntN(len(s)+1)]
	},
	lines(func(rng *rand.Rand, l []string) []string { // a line is lost
		at := rng.IntN(len(l))
		return slices.Delete(l, at, at+1)
	}),
	lines(func(rng *rand.Rand, l []string) []string { // or is there twice
		at := rng.IntN(len(l))
		return slices.Insert(l, rng.IntN(len(l)), l[at])
	}),
	lines(func(rng *rand.Rand, l []string) []string { // two change places
		i, j := rng.IntN(len(l)), rng.IntN(len(l))
		l[i], l[j] = l[j], l[i]
		return l
	}),
	tokens(func(rng *rand.Rand, words []string) { // a word is lost
		words[rng.IntN(len(words))] = ""
	}),
	tokens(func(rng *rand.Rand, words []string) { // two change places
		i, j := rng.IntN(len(words)), rng.IntN(len(words))
		words[i], words[j] = words[j], words[i]
	}),
	tokens(func(rng *rand.Rand, words []string) { // one is another
		words[rng.IntN(len(words))] = extremes[rng.IntN(len(extremes))]
	}),
}

var extremes = []string{
	"", "null", "~", "true", "[]", "{}", "[[]]", "{a: b}", `""`, "*a", "&a", "!!str", "|", ">", "#", "'", `"`, ": ", "- ", ", ", "?", "%",
	"leaky_bucket", "token_bucket", "fixed_window", "sliding_log", "user", "ip", "user|ip", "global", "header:X-A", "0s", "1ns", "400d", "1us",
	"local", "shadow", "off", "1%", "default", "tier:free", "global", "/*", `"GET /"`, `"süß"`, "10/s burst 5", "1/366d", "10000000/s",
	"0", "-1", "10001", "1000000000001", "9223372036854775808", "1e3", "1.5", "007", "0x7f", "1__0", "NaN", "0.0.0.0/0", "::1", "1GiB", "endpoints", "tiers", "name: default", "no_key: skip", "\t", "\u2028", "\x00", "\xff",
}

func lines(edit func(*rand.Rand, []string) []string) func(*rand.Rand, string) string {
	return func(rng *rand.Rand, s string) string {
		return strings.Join(edit(rng, strings.Split(s, "\n")), "\n")
	}
}

// tokens edits the words between a text's punctuation.
func tokens(edit func(*rand.Rand, []string)) func(*rand.Rand, string) string {
	return func(rng *rand.Rand, s string) string {
		isWord := func(r rune) bool { return !strings.ContainsRune(" \n{}[],\"#", r) }
		var words, between []string
		for rest := s; rest != ""; {
			end := strings.IndexFunc(rest, isWord)
			if end < 0 {
				end = len(rest)
			}
			between, rest = append(between, rest[:end]), rest[end:]
			if rest == "" {
				break
			}
			end = strings.IndexFunc(rest, func(r rune) bool { return !isWord(r) })
			if end < 0 {
				end = len(rest)
			}
			words, rest = append(words, rest[:end]), rest[end:]
		}
		if len(words) == 0 {
			return s
		}
		edit(rng, words)
		var b strings.Builder
		for i := range max(len(words), len(between)) {
			if i < len(between) {
				b.WriteString(between[i])
			}
			if i < len(words) {
				b.WriteString(words[i])
			}
		}
		return b.String()
	}
}
