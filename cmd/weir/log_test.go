package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startLogging starts weir serve with an access log on the standard output. The caller owns the readers.
func startLogging(t *testing.T, accessLog string) (s *served, out, errs *os.File) {
	t.Helper()
	args := []string{"serve", write(t, "limits.yaml", "version: 1\ndefault: {limit: 1/h, key: \"header:X-Name\", no_key: skip}\n"),
		"--proxy", "127.0.0.1:0=" + hello(t), "--admin", "127.0.0.1:0", "--drain", "0s", "--access-log", accessLog}
	s = &served{t: t, cmd: process(t, args...), addr: map[string]string{}}
	pipe := func() (reader, writer *os.File) {
		reader, writer, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { _ = reader.Close() })
		return reader, writer
	}
	out, stdout := pipe()
	errs, stderr := pipe()
	s.cmd.Stdout, s.cmd.Stderr = stdout, stderr
	require.NoError(t, s.cmd.Start())
	require.NoError(t, stdout.Close())
	require.NoError(t, stderr.Close())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	require.True(t, s.awaitServing(bufio.NewScanner(errs)), "%s", s.said.String())
	return s, out, errs
}

// request sends a request whose line in the access log has 16 KiB. Each name that is refused is logged on the standard error.
func (s *served) request(name string) int {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+s.addr["--proxy"]+"/", nil)
	require.NoError(s.t, err)
	r.Header = http.Header{"User-Agent": {strings.Repeat("x", 16<<10)}}
	if name != "" {
		r.Header.Set("X-Name", name)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Body.Close())
	return answer.StatusCode
}

var droppedLines = regexp.MustCompile(`(?m)^weir_log_lines_dropped_total\{log="([a-z]+)"\} (.+)$`)

// dropped returns the logs of which lines were dropped.
func (s *served) dropped() map[string]bool {
	s.t.Helper()
	_, metrics := s.get("--admin", "/metrics")
	logs := map[string]bool{}
	for _, found := range droppedLines.FindAllStringSubmatch(metrics, -1) {
		logs[found[1]] = found[2] != "0"
	}
	require.Len(s.t, logs, 2, metrics)
	return logs
}

func (s *served) endsWithZero() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	require.Zero(s.t, exitOf(s.t, s.cmd.Wait()))
}

// Nobody reads the access log and the log, both of which are full soon.
func TestLogsThatNobodyReadsStopNoRequest(t *testing.T) {
	s, out, errs := startLogging(t, "-")
	for i := range 400 {
		require.Equal(t, 200, s.request(fmt.Sprint("name-", i)))
		require.Equal(t, 429, s.request(fmt.Sprint("name-", i)))
	}
	s.eventually("--admin", "/readyz", 200, "ok")
	require.True(t, s.dropped()["access"], "12 MiB of lines are more than are kept")
	// The readers go on.
	go func() { _, _ = out.WriteTo(io.Discard) }()
	log := bufio.NewScanner(errs)
	for log.Scan() && !strings.Contains(log.Text(), "weir-log-dropped") {
	}
	require.Contains(t, log.Text(), `"log":"access"`)
	go func() { _, _ = errs.WriteTo(io.Discard) }()
	s.endsWithZero()
}

// An end of a process does not wait for a reader that does not read.
func TestAProcessEndsWithoutTheReadersOfItsLogs(t *testing.T) {
	s, _, _ := startLogging(t, "-")
	for range 20 {
		require.Equal(t, 200, s.request(""))
	}
	s.endsWithZero()
}

func TestLogsWhoseReaderHasEndedStopNothing(t *testing.T) {
	s, out, errs := startLogging(t, "-")
	require.NoError(t, out.Close())
	require.NoError(t, errs.Close())
	for i := range 10 {
		require.Equal(t, 200, s.request(fmt.Sprint("name-", i)))
		require.Equal(t, 429, s.request(fmt.Sprint("name-", i)))
	}
	await(t, func() bool { is := s.dropped(); return is["access"] && is["error"] })
	s.eventually("--admin", "/readyz", 200, "ok")
	s.endsWithZero()
}

func TestAFullDiskStopsNoRequestAndIsReported(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	s, _, errs := startLogging(t, "/dev/full")
	require.Equal(t, 200, s.request(""))
	await(t, func() bool { return s.dropped()["access"] })
	assert.False(t, s.dropped()["error"])
	log := bufio.NewScanner(errs)
	for log.Scan() && !strings.Contains(log.Text(), "weir-log-dropped") {
	}
	assert.Contains(t, log.Text(), "no space left on device")
	s.endsWithZero()
}
