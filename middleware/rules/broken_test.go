package rules_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

// problemsOf is what is wrong with a file, a line each.
func problemsOf(t testing.TB, err error) []string {
	t.Helper()
	var wrong *rules.Error
	require.ErrorAs(t, err, &wrong)
	lines := make([]string, len(wrong.Problems))
	for i, p := range wrong.Problems {
		lines[i] = p.String()
	}
	return lines
}

// A problemFile is a file, and a line for each problem (!) or warning (?) of it.
type problemFile struct{ name, text, says string }

const problemPath = "testdata/problems.txt"

func problemFiles(t testing.TB) (all []problemFile) {
	t.Helper()
	given, err := os.ReadFile(problemPath)
	require.NoError(t, err)
	for of := range strings.SplitSeq(strings.TrimPrefix(string(given), "=== "), "\n=== ") {
		name, rest, _ := strings.Cut(strings.TrimSuffix(of, "\n"), "\n")
		f := problemFile{name: name}
		for line := range strings.Lines(rest + "\n") {
			if strings.HasPrefix(line, "! ") || strings.HasPrefix(line, "? ") {
				f.says += line
			} else {
				f.text += line
			}
		}
		all = append(all, f)
	}
	return all
}

// To write the lines anew: WEIR_UPDATE=1 go test ./middleware/rules -run AllThatIsWrongOr
func TestAFileIsReadWithAllThatIsWrongOrHardlyMeantAndWhere(t *testing.T) {
	var found strings.Builder
	for _, of := range problemFiles(t) {
		got := ""
		r, err := rules.Parse([]byte(of.text), rules.Options{Overload: shed.FromRules})
		if err != nil {
			assert.Nil(t, r)
			got = "! " + strings.ReplaceAll(err.Error(), "\n", "\n! ") + "\n"
		} else {
			requireSchema(t, of.text)
			for _, w := range r.Warnings() {
				got += "? " + w.String() + "\n"
			}
		}
		found.WriteString("=== " + of.name + "\n" + of.text + got)
		if os.Getenv("WEIR_UPDATE") == "" {
			assert.Equal(t, of.says, got, "%s:\n%s", of.name, of.text)
		}
	}
	if os.Getenv("WEIR_UPDATE") != "" {
		require.NoError(t, os.WriteFile(problemPath, []byte(found.String()), 0o644))
	}
}

func TestMoreProblemsThanPeopleReadAreCounted(t *testing.T) {
	text := "version: 1\nendpoints:\n" + strings.Repeat("  x: 3/s\n", 150)
	_, err := rules.Parse([]byte(text), rules.Options{})
	problems := problemsOf(t, err)
	require.Len(t, problems, 101)
	require.Regexp(t, `^\d+:\d+: and \d+ more problems from here on$`, problems[len(problems)-1])
}

func TestProblemsOfAFileOfBansHaveItsNameAndLines(t *testing.T) {
	for name, of := range map[string]struct {
		banned string
		want   []string
	}{
		"lines that are neither": {
			"192.0.2.1\n# a comment\n\n  everybody  # all of them\n10.0.0.0/33\nuser:42\r\n\theader:x-a:b\n0.0.0.0/0\n",
			[]string{
				`banned.txt:4:3: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
				`banned.txt:5:1: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
				`banned.txt:7:2: is a key of kind header that no request can have: want something like header:X-Tenant:acme`,
				`banned.txt:8:1: it contains nearly all addresses; networks wider than /8 are refused`,
			},
		},
		"nothing but bytes": {"\x00\xff\n", []string{
			`banned.txt:1:1: is neither an address nor a key that a request can have here: want something like 192.0.2.7, 198.51.100.0/24 or user:42, as weir explain shows them`,
		}},
	} {
		dir := write(t, map[string]string{"limits.yaml": "version: 1\nban: {file: banned.txt}\n", "banned.txt": of.banned})
		_, err := rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
		problems := problemsOf(t, err)
		for i := range problems {
			problems[i] = strings.TrimPrefix(problems[i], dir+"/")
		}
		require.Equal(t, of.want, problems, name)
	}
}

func TestAFileOfBansThatIsNoneIsRefusedBeforeItCostsMuch(t *testing.T) {
	dir := write(t, map[string]string{
		"limits.yaml": "version: 1\nban: {file: banned.txt}\n",
		"banned.txt":  strings.Repeat("x\n", 4<<20),
	})
	_, err := rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
	require.LessOrEqual(t, len(problemsOf(t, err)), 101)

	require.NoError(t, os.Truncate(filepath.Join(dir, "banned.txt"), 32<<20+1))
	_, err = rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
	require.Equal(t, []string{dir + "/limits.yaml:2:13: ban.file: can't be read: " + dir + "/banned.txt is larger than 32 MiB"}, problemsOf(t, err))
}

func TestAFileOfBansThatCantBeReadIsAProblemOfTheFileThatNamesIt(t *testing.T) {
	dir := write(t, nil)
	for name, want := range map[string]string{
		"missing.txt": "2:13: ban.file: can't be read: stat " + dir + "/missing.txt: no such file or directory",
		".":           "2:13: ban.file: can't be read: " + dir + " is not a regular file",
		`""`:          "2:13: ban.file: is empty: leave it out",
	} {
		path := filepath.Join(dir, "limits.yaml")
		require.NoError(t, os.WriteFile(path, []byte("version: 1\nban: {file: "+name+"}\n"), 0o600))
		_, err := rules.Load(path, rules.Options{})
		require.Equal(t, []string{path + ":" + want}, problemsOf(t, err))
	}
}

func TestRulesThatCantBeReadAreAnError(t *testing.T) {
	dir := write(t, nil)
	_, err := rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = rules.Load(dir, rules.Options{})
	require.EqualError(t, err, "rules: "+dir+" is not a regular file")
	path := filepath.Join(dir, "large.yaml")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20+1), 0o600))
	_, err = rules.Load(path, rules.Options{})
	require.EqualError(t, err, "rules: "+path+" is larger than 1 MiB")
}

func TestRulesOfTheApplicationAndOfTheFileHaveDifferentNames(t *testing.T) {
	o := rules.Options{Config: middleware.Config{Rules: []middleware.Rule{{Name: "default", Key: keyfunc.Global, Limit: limiter.PerSecond(3)}}}}
	_, err := rules.Parse([]byte("version: 1\ndefault: 3/s\n"), o)
	require.Equal(t, []string{
		`2:1: default: there is another rule named "default", among the application's own: give one of them a name of its own`,
	}, problemsOf(t, err))
	_, err = rules.Parse([]byte("version: 1\ndefault: {limit: 3/s, name: others}\n"), o)
	require.NoError(t, err)
}

func TestATierThatTheApplicationDoesNotHaveIsAProblem(t *testing.T) {
	o := rules.Options{Tiers: []string{"free", "paid"}}
	_, err := rules.Parse([]byte("version: 1\ntiers: {pad: 3/s}\ndefault: {limit: 3/s, tiers: {gold: 3/s, free: 1/s}}\n"), o)
	require.Equal(t, []string{
		`2:9: tiers.pad: the tier "pad" is never used: did you mean "paid"?`,
		`3:31: default.tiers.gold: the tier "gold" is never used: there are free, paid`,
	}, problemsOf(t, err))
}

// What only package middleware can find out is told too, where the file begins.
func TestProblemsOfTheApplicationsConfigAreFound(t *testing.T) {
	o := rules.Options{Config: middleware.Config{Rules: []middleware.Rule{{Name: "mine", Key: keyfunc.Global}}}}
	_, err := rules.Parse([]byte("version: 1\ndefault: 3/s\n"), o)
	problems := problemsOf(t, err)
	require.Len(t, problems, 1)
	require.True(t, strings.HasPrefix(problems[0], `1:1: Rules[0] "mine": `), problems[0])
}

func TestAnErrorIsOneOfTheFile(t *testing.T) {
	_, err := rules.Parse(nil, rules.Options{})
	require.True(t, errors.As(err, new(*rules.Error)))
	_, err = rules.Parse(nil, rules.Options{Poll: 1})
	require.False(t, errors.As(err, new(*rules.Error)))
}
