package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shell is where a shell is. Where WEIR_SHELLS names a folder, it may be there.
func shell(t *testing.T, name string) string {
	t.Helper()
	for _, folder := range filepath.SplitList(os.Getenv("WEIR_SHELLS")) {
		if path := filepath.Join(folder, name); exec.Command(path, "--version").Run() == nil {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("there is no %s", name)
	}
	return path
}

// completions is the script for a shell, in a file.
func completions(t *testing.T, name string) string {
	t.Helper()
	exit, out, said := weir(t, "", "completion", name)
	require.Equal(t, exitGood, exit, said)
	return write(t, "_weir", out)
}

func lines(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, said.String())
	require.Empty(t, said.String())
	return strings.Fields(string(out))
}

func TestBashCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	bash, script := shell(t, "bash"), completions(t, "bash")
	complete := func(words ...string) []string {
		quoted := ""
		for _, word := range words {
			quoted += fmt.Sprintf(" %q", word)
		}
		return lines(t, exec.Command(bash, "--norc", "-c", fmt.Sprintf(
			"source %q; COMP_WORDS=(weir%s); COMP_CWORD=%d; _weir; printf '%%s\\n' \"${COMPREPLY[@]}\"; complete -p weir >/dev/null", script, quoted, len(words))))
	}
	assert.Equal(t, commandNames(), complete(""))
	assert.Equal(t, []string{"ban", "bans"}, complete("ba"))
	for _, c := range commands() {
		want := []string{}
		for _, f := range c.completedFlags() {
			want = append(want, dashed(f.name))
		}
		assert.Equal(t, append(want, "--help"), complete(c.name, "-"), c.name)
	}
	assert.Equal(t, []string{"--watch"}, complete("top", "--json", "--wa"))
	assert.Equal(t, []string{"bash", "zsh", "fish"}, complete("completion", ""))
	assert.Equal(t, []string{"top"}, complete("help", "to"))
	assert.Empty(t, complete("check", "lim"), "names of files are bash's own")
	assert.Empty(t, complete("top", "--names", ""), "so is the value of a flag")
}

func TestZshCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	zsh, script := shell(t, "zsh"), completions(t, "zsh")
	// What zsh makes of that is shown in place of being offered.
	const shows = `_describe() { print -l -- ${(P)2}; }; _arguments() { print -l -- "$@"; }; _files() {}; compdef() {}`
	complete := func(words string, at int) string {
		cmd := exec.Command(zsh, "-f", "-c", fmt.Sprintf("%s\nsource %q\nwords=(weir %s); CURRENT=%d; _weir", shows, script, words, at))
		out, err := cmd.Output() // what it says besides may be about modules that it lacks
		require.NoError(t, err)
		return string(out)
	}
	assert.Equal(t, len(commands()), strings.Count(strings.TrimSpace(complete("''", 2)), "\n")+1)
	assert.Contains(t, complete("''", 2), "check:tells everything that is wrong with rules files\n")
	for _, c := range commands() {
		out := complete(c.name+" ''", 3)
		for _, f := range c.completedFlags() {
			assert.Contains(t, out, dashed(f.name)+"[", c.name)
		}
	}
	assert.Contains(t, complete("check ''", 3), "*:file:_files")
	assert.Contains(t, complete("completion ''", 3), "*:argument:(bash zsh fish)")
}

func TestFishCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	fish, script := shell(t, "fish"), completions(t, "fish")
	complete := func(line string) (words []string) {
		cmd := exec.Command(fish, "--no-config", "-c", fmt.Sprintf("source %q; complete -C %q", script, line))
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			words = append(words, word)
		}
		return words
	}
	assert.ElementsMatch(t, commandNames(), complete("weir "))
	assert.ElementsMatch(t, []string{"ban", "bans"}, complete("weir ba"))
	for _, c := range commands() {
		got := complete("weir " + c.name + " -")
		for _, f := range c.completedFlags() {
			assert.Contains(t, got, dashed(f.name), c.name)
		}
	}
	assert.ElementsMatch(t, shells, complete("weir completion "))
}
