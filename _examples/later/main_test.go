package main

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

func TestWhatIsRefusedRunsLater(t *testing.T) {
	program := filepath.Join(t.TempDir(), "later")
	output, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(output))
	run := exec.Command(program, "-addr", "127.0.0.1:0", "-redis", redistest.Start(t).Addr, "-most", "3", "-limit", "2/1s token-bucket")
	log, err := run.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill(); _ = run.Wait() })
	line, err := bufio.NewReader(log).ReadString('\n')
	require.NoError(t, err)
	at := regexp.MustCompile(`http://\S+`).FindString(line)
	require.NotEmpty(t, at, line)
	go io.Copy(io.Discard, log)

	ask := func(method, path string) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, at+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp, string(body)
	}
	seen := map[int]bool{}
	waiting := ""
	for range 200 { // until the queue is full
		resp, body := ask("POST", "/reports")
		seen[resp.StatusCode] = true
		switch resp.StatusCode {
		case 200:
			assert.Contains(t, body, "a report")
		case 202:
			waiting = resp.Header.Get("Location")
			assert.Contains(t, body, "likely to run at")
			assert.Empty(t, resp.Header.Get("Retry-After"))
			assert.Equal(t, "0", resp.Header.Get("X-RateLimit-Remaining"))
		case 429:
			assert.NotEmpty(t, resp.Header.Get("Retry-After"))
		default:
			require.Fail(t, resp.Status, body)
		}
		if seen[429] {
			break
		}
	}
	assert.Equal(t, map[int]bool{200: true, 202: true, 429: true}, seen)
	require.Eventually(t, func() bool { resp, _ := ask("GET", waiting); return resp.StatusCode == 200 }, 30*time.Second, 50*time.Millisecond)
	resp, _ := ask("GET", "/reports/none")
	assert.Equal(t, 404, resp.StatusCode)
}
