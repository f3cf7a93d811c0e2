package ask

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/gateway"
	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

// behind starts a proxy with its configuration in testdata, which asks asker and has service behind
// it, and returns its URL.
func behind(t *testing.T, asker, service string, files []string, command string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath(command)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs %s: .ci/setup installs it", command)
		}
		t.Skipf("%s is not installed", command)
	}
	dir, at := t.TempDir(), free(t)
	_, port, _ := net.SplitHostPort(at)
	addresses := strings.NewReplacer("http://127.0.0.1:8080 {", "http://:"+port+" {\n\tbind 127.0.0.1", // Caddy: for any host
		"127.0.0.1:8080", at, "127.0.0.1:8082", asker, "127.0.0.1:3000", service, "lua-load ", "lua-load "+dir+"/")
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(addresses.Replace(string(text))), 0o600))
	}
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", dir)
	}
	proxy := exec.Command(program, args...)
	proxy.Dir, proxy.Env = dir, append(os.Environ(), "HOME="+dir)
	output := &strings.Builder{}
	proxy.Stdout, proxy.Stderr, proxy.WaitDelay = output, output, time.Second
	require.NoError(t, proxy.Start())
	t.Cleanup(func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
		if t.Failed() {
			t.Log(output)
		}
	})
	for range 600 {
		if c, err := net.Dial("tcp", at); err == nil {
			require.NoError(t, c.Close())
			return "http://" + at
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Fail(t, command+" does not listen")
	return ""
}

// status sends a request as it is spelled, and returns the status of the answer.
func status(t *testing.T, at, request string) int {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	return answer.StatusCode
}

// free is an address that nobody listens at, and that no system gives to a connection meanwhile.
func free(t *testing.T) string {
	for range 1000 {
		at := fmt.Sprint("127.0.0.1:", 31_100+rand.IntN(1600))
		if l, err := net.Listen("tcp", at); err == nil {
			require.NoError(t, l.Close())
			return at
		}
	}
	require.Fail(t, "there is no free port")
	return ""
}

var proxies = map[string]struct {
	files   []string
	command []string
	bodies  bool // refusals come with Weir's body
	away    int  // what it answers while Weir is away
}{
	"nginx":   {[]string{"nginx.conf"}, []string{"nginx", "-p", "DIR", "-c", "nginx.conf", "-g", "pid DIR/pid; error_log DIR/error.log; master_process off;"}, false, 500},
	"Caddy":   {[]string{"Caddyfile"}, []string{"caddy", "run", "--config", "DIR/Caddyfile", "--adapter", "caddyfile"}, true, 502},
	"HAProxy": {[]string{"haproxy.cfg", "weir.lua"}, []string{"haproxy", "-db", "-f", "DIR/haproxy.cfg"}, true, 502},
}

func TestProxiesAskAndHandTheAnswerOn(t *testing.T) {
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name == "nginx" {
					assert.Equal(t, "127.0.0.1", r.Host)
					assert.Regexp(t, `127\.0\.0\.1$`, r.Header.Get("X-Forwarded-For"))
				}
				_, _ = w.Write([]byte("served " + r.Method + " " + r.RequestURI))
			}))
			t.Cleanup(service.Close)
			weir := asked(t)
			at := behind(t, weir.Listener.Addr().String(), service.Listener.Addr().String(), p.files, p.command[0], p.command[1:]...)
			spoofed := question("DELETE", "/free", "198.51.100.1")
			for left := range 2 {
				resp, body := get(t, at+"/limited?q=%20", spoofed.Clone())
				require.Equal(t, 200, resp.StatusCode, body)
				assert.Equal(t, "served GET /limited?q=%20", body)
				assert.Equal(t, []string{"2"}, resp.Header["X-Ratelimit-Limit"])
				assert.Equal(t, []string{fmt.Sprint(1 - left)}, resp.Header["X-Ratelimit-Remaining"])
				assert.Len(t, resp.Header["X-Ratelimit-Reset"], 1)
			}
			resp, body := get(t, at+"/limited", spoofed.Clone())
			assert.Equal(t, 429, resp.StatusCode, body)
			assert.NotEmpty(t, resp.Header.Get("Retry-After"))
			assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
			assert.Equal(t, []string{"0"}, resp.Header["X-Ratelimit-Remaining"])
			assert.Equal(t, p.bodies, strings.Contains(body, "rate_limit_exceeded"), body)
			resp, _ = get(t, at+"/members", http.Header{})
			assert.Equal(t, 401, resp.StatusCode)
			resp, _ = get(t, at+"/members", http.Header{"X-User": {"mallory"}})
			assert.Equal(t, 403, resp.StatusCode)
			resp, body = get(t, at+"/members", http.Header{"X-User": {"ann"}})
			assert.Equal(t, 200, resp.StatusCode, body)
			for target, host := range map[string]string{"/": "denied.example", "http://denied.example/": "other.example"} {
				assert.NotEqual(t, 200, status(t, at, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"), target)
			}
			if name != "nginx" { // which makes it 403
				assert.Equal(t, 400, status(t, at, "GET /%zz HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"), "Weir's own answer is none of a Weir that is away")
			}
			posted, err := http.Post(at+"/", "text/plain", strings.NewReader("a body"))
			require.NoError(t, err)
			require.NoError(t, posted.Body.Close())
			assert.Equal(t, 200, posted.StatusCode)

			weir.Close()
			resp, _ = get(t, at+"/", http.Header{})
			assert.Equal(t, p.away, resp.StatusCode)
		})
	}
}

// The service is lenient: it ignores the case of methods and hosts, a fragment, and what follows a host.
func TestNoSpellingPassesAProxyUnlimited(t *testing.T) {
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := make(chan string, 1000)
			service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				path, _, _ := strings.Cut(r.RequestURI, "#")
				path, _, _ = strings.Cut(path, "?")
				served <- strings.ToUpper(r.Method) + " " + strings.Trim(path, "/")
			}))
			t.Cleanup(service.Close)
			at := behind(t, asked(t).Listener.Addr().String(), service.Listener.Addr().String(), p.files, p.command[0], p.command[1:]...)
			send := func(line, host string) {
				c, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
				require.NoError(t, err)
				defer c.Close()
				require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
				_, err = c.Write([]byte(line + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"))
				require.NoError(t, err)
				_, _ = io.ReadAll(c)
			}
			for range 2 {
				for _, line := range []string{"GET /limited", "get /limited", "Get /limited", "GET /limited#1", "GET /limited#2", "GET /limited?a#3", "GET limited", "GET x:limited", "GET http://shop.example/limited#4", "GET //limited", "GET /x/../limited#", "GET /%6cimited#"} {
					send(line, "shop.example")
				}
			}
			limited := 0
			for len(served) > 0 {
				if <-served == "GET limited" {
					limited++
				}
			}
			assert.LessOrEqual(t, limited, 2)
			for _, host := range []string{"closed.example", "CLOSED.example.", "closed.example:80", "closed.example:80:80", "closed.example::", "closed.example,shop.example", "shop.example,closed.example", "closed.example:x", "closed.example..", "closed.example;a"} {
				send("GET /", host)
				assert.Empty(t, served, host)
			}
			send("GET /", "shop.example")
			assert.Len(t, served, 1)
		})
	}
}

// nginx takes a server whose connection breaks off for dead, and no longer passes it anybody's requests.
func TestRefusedUploadsTakeNoWeirBehindNginxOutOfService(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	t.Cleanup(service.Close)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\nendpoints:\n  \"POST /upload\": {mode: deny}\ndefault: 1000/s\n"), 0o600))
	var addresses []string
	for range 2 {
		g, err := gateway.New(gateway.Options{Proxy: "127.0.0.1:0=" + service.URL, Paths: serving.PathsStrict, Timeout: time.Minute, ClientTimeout: 10 * time.Second})
		require.NoError(t, err)
		logger := slog.New(slog.DiscardHandler)
		watcher, err := rules.Watch(t.Context(), file, rules.Options{Config: middleware.Config{Logger: logger}})
		require.NoError(t, err)
		require.NoError(t, g.Start(serving.Limits{RateLimit: watcher.RateLimit, Watcher: watcher, Logger: logger}, func(err error) { t.Error(err) }))
		t.Cleanup(func() {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			g.Drain(ended, 0)
			_ = watcher.Close()
		})
		addresses = append(addresses, g.Addr().String())
	}
	at := behind(t, addresses[0], addresses[1], []string{"balanced.conf"}, "nginx", "-p", "DIR", "-c", "balanced.conf", "-g", "pid DIR/pid; error_log DIR/error.log; master_process off;")
	for _, location := range []string{"", "/kept"} {
		for _, size := range []int{100 << 10, 1 << 20, 20 << 20} {
			for range 6 {
				resp, err := http.Post(at+location+"/upload", "", strings.NewReader(strings.Repeat("x", size)))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, 403, resp.StatusCode, "%s: %d bytes", location, size)
			}
			for range 4 {
				resp, _ := get(t, at+location+"/", http.Header{})
				assert.Equal(t, 200, resp.StatusCode, "everybody else is served")
			}
		}
	}
}

// The page links a file, or has its text.
func TestTheDocsHaveTheConfigurationsThatAreRun(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/gateway.md")
	require.NoError(t, err)
	for _, p := range proxies {
		for _, file := range p.files {
			if strings.Contains(string(page), "](../cmd/weir/internal/ask/testdata/"+file+")") {
				continue
			}
			text, err := os.ReadFile(filepath.Join("testdata", file))
			require.NoError(t, err)
			assert.Contains(t, string(page), strings.ReplaceAll(string(text), "\t", "    "), file)
		}
	}
}
