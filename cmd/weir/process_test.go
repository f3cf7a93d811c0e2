package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

// asCommand in the environment makes the test binary run as the command.
const asCommand = "WEIR_TEST_AS_COMMAND"

// process returns the command in its own process.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0") // else each ends a second later under the race detector
	return cmd
}

// exitOf returns the exit code of a process.
func exitOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return -1
}

func TestEachCommandTellsOfItselfOnTheStandardOutput(t *testing.T) {
	_, overview, _ := weir(t, "", "help")
	for _, c := range commands() {
		exit, out, said := weir(t, "", c.name, "--help")
		assert.Equal(t, exitGood, exit)
		assert.Empty(t, said)
		_, asked, _ := weir(t, "", "help", c.name)
		assert.Equal(t, out, asked)
		assert.Contains(t, overview, "\n  "+c.name)
		flags := flagsOf(t, c.name)
		require.NotEmpty(t, c.examples, c.name)
		for _, example := range c.examples {
			assert.Contains(t, out, strings.TrimSpace("  weir "+c.name+" "+example))
			for word := range strings.FieldsSeq(example) {
				if name := strings.TrimLeft(word, "-"); name != word && name != "" {
					assert.NotNil(t, flags.Lookup(name), "%s has no flag %s", c.name, word)
				}
			}
		}
	}
	for _, args := range [][]string{{"--help"}, {"-h"}} {
		exit, out, said := weir(t, "", args...)
		assert.Equal(t, exitGood, exit)
		assert.Empty(t, said)
		assert.Equal(t, overview, out)
	}
}

func flagsOf(t *testing.T, name string) *pflag.FlagSet {
	t.Helper()
	c, _, err := (&session{}).cobra().Find([]string{name})
	require.NoError(t, err)
	return c.Flags()
}

func TestShellsAreToldHowToComplete(t *testing.T) {
	exit, out, said := weir(t, "", "completion", "bash")
	assert.Equal(t, exitGood, exit, said)
	assert.Contains(t, out, "__complete", "the command is asked")
	for arg, want := range map[string]string{"unban": ":4\n", "check": ":0\n"} { // keys are no files
		_, out, _ = weir(t, "", "__complete", arg, "")
		assert.Contains(t, out, want)
	}
}

func TestAProcessEndsWithWhatCameOfIt(t *testing.T) {
	file := write(t, "limits.yaml", loose)
	for _, test := range []struct {
		args []string
		exit int
	}{
		{[]string{"chek"}, exitUsage},
		{[]string{"--version"}, exitGood},
		{[]string{"top", "--redis=redis://127.0.0.1:1"}, exitBad},
		{[]string{"diff", file, write(t, "new.yaml", "version: 1\ndefault: 1/s\n"), "--exit-code"}, exitDiffers},
	} {
		var out, said bytes.Buffer
		cmd := process(t, test.args...)
		cmd.Stdout, cmd.Stderr = &out, &said
		assert.Equal(t, test.exit, exitOf(t, cmd.Run()), "%s\n%s%s", test.args, out.String(), said.String())
		if test.exit == exitUsage {
			assert.Empty(t, out.String(), test.args)
			assert.NotEmpty(t, said.String(), test.args)
		}
	}
}

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /dev/full")
	}
	file := write(t, "limits.yaml", loose)
	for _, args := range [][]string{{"help"}, {"version"}, {"check", file}, {"check", "--json", file}, {"schema"}, {"explain", file, "--path=/"}, {"completion", "bash"}, {"diff", file, file}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		defer full.Close()
		var said bytes.Buffer
		cmd := process(t, args...)
		cmd.Stdout, cmd.Stderr = full, &said
		assert.Equal(t, exitBad, exitOf(t, cmd.Run()), args)
		assert.Contains(t, said.String(), "no space left on device", args)
	}
}

func TestAReaderThatLeavesEndsTheCommandAsItEndsOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	var said bytes.Buffer
	cmd := process(t, "schema")
	cmd.Stdout, cmd.Stderr = writer, &said
	err = cmd.Run()
	require.NoError(t, writer.Close())
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, syscall.SIGPIPE, exit.Sys().(syscall.WaitStatus).Signal())
	assert.Empty(t, said.String())
}

func TestTopThatIsStoppedTellsWhatItHasFound(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	url, client := startRedis(t)
	store := patientStore(t, client, "")
	for i := range 300 {
		use(t, store, "", limiter.PerHour(10).With(limiter.SlidingLog), fmt.Sprintf("user:%d", i), int64(1+i%10))
	}
	cmd := process(t, "top", "--rate=5", url) // for a minute
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	require.NoError(t, cmd.Start())
	await(t, func() bool { return strings.Contains(client.Info(t.Context(), "commandstats").Val(), "cmdstat_scan") })
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.Equal(t, exitInterrupted, exitOf(t, cmd.Wait()))
	assert.Contains(t, out.String(), "USED")
	assert.Contains(t, said.String(), "stopped before it had read all keys: at ")
}

func TestTheVersionIsThatOfTheBuild(t *testing.T) {
	exit, out, said := weir(t, "", "version")
	require.Equal(t, exitGood, exit, said)
	assert.True(t, strings.HasPrefix(out, "weir "), out)
	assert.Contains(t, out, runtime.Version()+" on "+runtime.GOOS+"/"+runtime.GOARCH)
}

func TestVersionShowsTheZoneDataInUse(t *testing.T) {
	zones, old := t.TempDir(), t.TempDir()
	for _, dir := range []string{zones, old} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "Europe"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "Europe", "Berlin"), nil, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(zones, "tzdata.zi"), []byte("# version 2026f\nR d 1 o\n"), 0o600))
	archive := write(t, "zones.zip", "")
	for source, want := range map[string]string{zones: zones + " (2026f)", old: old + " (version unknown)", archive: archive + " (version unknown)"} {
		t.Setenv("ZONEINFO", source)
		assert.Contains(t, succeed(t, "", "version"), ", time zones of "+want+"\n")
	}
}

func TestAGoWithoutTheFixOfHTTP2IsWarnedOf(t *testing.T) {
	for release, want := range map[string]bool{
		"go1.25.14": true, "go1.26": true, "go1.26rc1": true, "go1.26.8": true, "go1.26.8 X:nosynchash": true, "go1.26.8-vendor": true,
		"go1.26.9": false, "go1.26.10": false, "go1.26.9 X:nosynchash": false, "go1.26.9-vendor": false,
		"go1.27rc2": true, "go1.27.0": true, "go1.27.1": true, "go1.27.2": false, "go1.27.10": false, "go1.28rc1": false, "go2.0": false,
		"devel go1.27-0123456789 Mon Nov 2 10:00:00 2026": false, "go1.27-devel_0123456789": false, "": false, "unknown": false,
	} {
		assert.Equal(t, want, lacksHTTP2Fix(release), release)
	}
	s := startServing(t, nil, write(t, "limits.yaml", loose), "--ask", "127.0.0.1:0")
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Equal(t, lacksHTTP2Fix(runtime.Version()), strings.Contains(s.said.String(), "CVE-2026-97032"))
}
