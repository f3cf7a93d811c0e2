package house_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

// Each step of docs/start.md is a program. Here it runs, on a port and a Redis of its own, and answers what the page says.
func TestEachStepOfTheTutorialRuns(t *testing.T) {
	var programs []string
	for _, s := range snippetsOf(t, "docs/start.md") {
		if strings.HasPrefix(s.code, "package main") {
			programs = append(programs, s.code)
		}
	}
	require.Len(t, programs, 4)
	server := redistest.Start(t)
	urls := make([]string, len(programs))
	for i, program := range programs {
		urls[i] = runProgram(t, strings.ReplaceAll(program, "localhost:6379", server.Addr))
	}
	answers := func(step int, request, user string, want ...int) {
		t.Helper()
		for n, want := range want {
			method, path, _ := strings.Cut(request, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, urls[step-1]+path, nil)
			require.NoError(t, err)
			if user != "" {
				r.SetBasicAuth(user, "")
			}
			response, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, want, response.StatusCode, "step %d, %s as %q, request %d", step, request, user, n+1)
		}
	}
	answers(1, "GET /", "", 200, 200, 200, 200, 200, 429)
	answers(2, "POST /login", "", 401, 401, 401, 401, 401, 429)
	answers(2, "GET /", "", 200)
	answers(3, "GET /", "ann", 200, 200, 200, 200, 200, 200, 429)
	answers(3, "GET /", "bob", 200, 200, 200, 429)
	answers(3, "GET /", "", 200, 200, 200, 429)
	answers(4, "POST /pay", "", 200)
	server.Kill()
	answers(4, "GET /", "", 200, 200, 429)
	answers(4, "POST /pay", "", 503)
}

// runProgram builds a program whose address is 127.0.0.1:8080, runs it on a free port until the test ends, and returns
// its URL.
func runProgram(t *testing.T, code string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())
	folder, err := os.MkdirTemp(".", "_docs-*")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(strings.ReplaceAll(code, "127.0.0.1:8080", addr)), 0o644))
	program := filepath.Join(t.TempDir(), "step"+strconv.Itoa(len(code)))
	run(t, "go", "build", "-o", program, "./"+folder)
	cmd := exec.Command(program)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, which is an error
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, time.Minute, 10*time.Millisecond, "the program does not listen")
	return "http://" + addr
}
