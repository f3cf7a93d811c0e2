package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/internal/redistest"
)

// A served is a process of weir serve.
type served struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr map[string]string // by flag

	mu   sync.Mutex
	said bytes.Buffer
	done chan struct{} // closed when its log ends
}

// startServing starts weir serve, and returns once it serves.
func startServing(t *testing.T, env []string, args ...string) *served {
	t.Helper()
	s := &served{t: t, cmd: process(t, append([]string{"serve"}, args...)...), addr: map[string]string{}, done: make(chan struct{})}
	s.cmd.Env = append(s.cmd.Env, env...)
	said, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	ready := make(chan bool, 1)
	go func() {
		defer close(s.done)
		lines := bufio.NewScanner(said)
		if s.awaitServing(lines) {
			ready <- true
		}
		for lines.Scan() {
			s.mu.Lock()
			s.said.Write(append(lines.Bytes(), '\n'))
			s.mu.Unlock()
		}
	}()
	select {
	case <-ready:
	case <-s.done:
		t.Fatalf("it does not serve: %s", s.said.String())
	}
	return s
}

// awaitServing reads the log until the process serves.
func (s *served) awaitServing(log *bufio.Scanner) bool {
	for log.Scan() {
		s.mu.Lock()
		s.said.Write(append(log.Bytes(), '\n'))
		s.mu.Unlock()
		var of struct{ Msg, Flag, Address string }
		_ = json.Unmarshal(log.Bytes(), &of)
		switch of.Msg {
		case "weir: listening":
			s.addr[of.Flag] = of.Address
		case "weir: serving":
			return true
		}
	}
	return false
}

func (s *served) signal(signal os.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(signal))
}

// stop ends the process, and waits until its log ends.
func (s *served) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	<-s.done
	require.Zero(s.t, exitOf(s.t, s.cmd.Wait()))
}

// figures returns the figures of the page.
func (s *served) figures() string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.addr["--admin"]+"/", nil)
	require.NoError(s.t, err)
	r.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return string(text)
}

// get returns the answer to a GET, and its body.
func (s *served) get(flag, path string) (int, string) {
	s.t.Helper()
	answer, err := http.Get("http://" + s.addr[flag] + path)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return answer.StatusCode, string(body)
}

func (s *served) eventually(flag, path string, status int, text string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		got, body := s.get(flag, path)
		assert.Equal(c, status, got)
		assert.Contains(c, body, text)
	}, 20*time.Second, 5*time.Millisecond)
}

func hello(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(server.Close)
	return server.URL
}

// An operator changes rules, breaks them, looks on, and ends the process.
func TestAProcessIsOperated(t *testing.T) {
	file := write(t, "limits.yaml", "version: 1\ndefault: 100/h\n")
	log := filepath.Join(t.TempDir(), "access.log")
	s := startServing(t, []string{"WEIR_ADMIN=127.0.0.1:0", "WEIR_ACCESS_LOG=" + log, "WEIR_DRAIN=1h", "WEIR_PROXY=127.0.0.1:0=" + hello(t)}, file)
	status, body := s.get("--proxy", "/")
	require.Equal(t, 200, status)
	require.Equal(t, "hello", body)
	s.eventually("--admin", "/livez", 200, "ok")
	s.eventually("--admin", "/readyz", 200, "ok")
	s.eventually("--admin", "/metrics", 200, `rule="default"`)
	s.eventually("--admin", "/", 200, "<!doctype html>")
	require.Contains(t, s.figures(), `"top":[{"rule":"default","asked":1,`, "the page lists clients")

	require.NoError(t, os.WriteFile(file, []byte("version: 1\ndefault: {limit: 1/h, key: user}\n"), 0o600))
	require.NoError(t, os.Rename(log, log+".1"))
	s.signal(syscall.SIGHUP)
	s.eventually("--admin", "/readyz", 200, "limits.yaml:2:1: default: needs a user")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\nproxies: {trusted: [192.0.2.1], unix_socket: true}\ndefault: 1/h\n"), 0o600))
	s.signal(syscall.SIGHUP)
	s.eventually("--admin", "/readyz", 200, "limits.yaml:2:33: proxies.unix_socket: is true, and weir serve listens on no unix socket")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\nendpoints: {\"/"+strings.Repeat("é", 50_000)+"{\": 1/h}\n"), 0o600))
	s.signal(syscall.SIGHUP)
	s.eventually("--admin", "/readyz", 200, "é ... (the log has the rest)\n")
	_, body = s.get("--admin", "/readyz")
	require.Less(t, len(body), 2<<10, "everybody who reaches the address sees it")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\ndefault: 1/h\n"), 0o600))
	s.signal(syscall.SIGHUP)
	s.eventually("--proxy", "/", 429, "")
	s.eventually("--admin", "/readyz", 200, "ok\n")
	for _, name := range []string{log, log + ".1"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotEmpty(t, text, "lines are in the file of that time")
		out := succeed(t, "", "recommend", name, "--per", "1m")
		require.Contains(t, out, "request")
	}

	s.signal(syscall.SIGTERM)
	s.eventually("--admin", "/readyz", 503, "")
	status, _ = s.get("--proxy", "/")
	require.Equal(t, 429, status, "requests are answered still")
	s.stop()
}

func TestClientsAreShownByTheirKeysIfTheOperatorSaysSo(t *testing.T) {
	file := write(t, "limits.yaml", "version: 1\ndefault: 1/h\n")
	for _, shows := range []bool{false, true} {
		s := startServing(t, []string{fmt.Sprint("WEIR_SHOW_KEYS=", shows), "WEIR_DRAIN=0s"}, file, "--proxy=127.0.0.1:0="+hello(t), "--admin=127.0.0.1:0")
		for _, want := range []int{200, 429} {
			status, _ := s.get("--proxy", "/")
			require.Equal(t, want, status)
		}
		page := s.figures()
		s.stop()
		_, refused, _ := strings.Cut(s.said.String(), `"code":"weir-refused"`)
		refused, _, _ = strings.Cut(refused, "\n")
		const address, digest = "127.0.0.1", "EsoXtJryKJQ28wPgFmAwog"
		key := digest
		if shows {
			key = address
		}
		require.Contains(t, refused, `"key":"`+key+`"`)
		require.Contains(t, page, `"key":"`+key+`","digest"`, "the page lists those that are refused most")
	}
}

// A load balancer looks at /readyz and sends no more once it says 503. Then no request is lost.
func TestNoRequestIsLostWhenProcessesAreReplaced(t *testing.T) {
	file, upstream := write(t, "limits.yaml", "version: 1\ndefault: 1000000/h\n"), hello(t)
	begin := func() *served {
		return startServing(t, nil, file, "--proxy", "127.0.0.1:0="+upstream, "--admin", "127.0.0.1:0", "--drain", "1h")
	}
	var target atomic.Pointer[served]
	target.Store(begin())
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var requests, lost atomic.Int64
	var sending sync.RWMutex // a load balancer does not send to a process that it has left
	for range 4 {
		load.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				sending.RLock()
				answer, err := client.Post("http://"+target.Load().addr["--proxy"], "text/plain", strings.NewReader("hello"))
				sending.RUnlock()
				if err != nil || answer.StatusCode != 200 {
					lost.Add(1)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
				requests.Add(1)
			}
		})
	}
	for range 3 {
		old := target.Load()
		replacement := begin()
		old.signal(syscall.SIGTERM)
		old.eventually("--admin", "/readyz", 503, "")
		before := requests.Load()
		require.Eventually(t, func() bool { return requests.Load() > before+20 }, time.Minute, time.Millisecond, "it serves still")
		sending.Lock() // all that was sent to the old one is answered
		target.Store(replacement)
		sending.Unlock()
		old.stop()
	}
	stop()
	load.Wait()
	require.Zero(t, lost.Load(), "of %d", requests.Load())
}

func certificate(t *testing.T, cert, key, name string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
}

func TestTheGatewaySpeaksHTTP2WithItsCertificate(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	certificate(t, cert, key, "one.example")
	s := startServing(t, nil, write(t, "limits.yaml", "version: 1\ndefault: 100/h\n"), "--proxy", "127.0.0.1:0="+hello(t), "--tls-cert", cert, "--tls-key", key, "--drain", "0s")
	c, err := tls.Dial("tcp", s.addr["--proxy"], &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	require.Equal(t, "h2", c.ConnectionState().NegotiatedProtocol)
	require.Equal(t, "one.example", c.ConnectionState().PeerCertificates[0].Subject.CommonName)
	require.NoError(t, c.Close())
	s.stop()
}

func TestTheRateLimitServiceSpeaksTLSWithTheCertificate(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	certificate(t, cert, key, "one.example")
	file := write(t, "limits.yaml", "version: 1\ndescriptors: {domain: shop, entries: {key: user}, limit: 1/h}\n")
	s := startServing(t, nil, file, "--rls", "127.0.0.1:0", "--rls-tls", "--tls-cert", cert, "--tls-key", key, "--drain", "0s")
	trusted, err := credentials.NewClientTLSFromFile(cert, "one.example")
	require.NoError(t, err)
	check := func(c credentials.TransportCredentials) error {
		conn, err := grpc.NewClient(s.addr["--rls"], grpc.WithTransportCredentials(c))
		require.NoError(t, err)
		defer conn.Close()
		_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	require.NoError(t, check(trusted))
	require.Error(t, check(insecure.NewCredentials()), "plain text")
	_, _, said := weir(t, "", "serve", file, "--rls", s.addr["--rls"])
	require.Contains(t, said, "--rls: cannot listen on "+s.addr["--rls"])
	s.stop()
}

func TestCertificatesAreReadAnewAndABadOneIsKeptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
		certificate(t, cert, key, "one.example")
		var said bytes.Buffer
		c, err := serving.NewCertificates(cert, key, slog.New(slog.NewTextHandler(&said, nil)))
		require.NoError(t, err)
		name := func() string {
			used, err := c.Config().GetCertificate(nil)
			require.NoError(t, err)
			return used.Leaf.Subject.CommonName
		}
		require.NoError(t, os.WriteFile(key, []byte("no key"), 0o600))
		time.Sleep(5 * time.Second)
		require.Equal(t, "one.example", name())
		require.Contains(t, said.String(), "the certificate in use is kept: --tls-cert")
		certificate(t, cert, key, "two.example")
		require.Equal(t, "one.example", name(), "a handshake reads the files only if none has read them lately")
		time.Sleep(5 * time.Second)
		require.Equal(t, "two.example", name())
	})
}

// A mistake ends weir serve with one line that names the flag. It serves nothing.
func TestBadInputOfServeIsNamed(t *testing.T) {
	file := write(t, "limits.yaml", "version: 1\ndefault: 100/h\n")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	in := taken.Addr().String()
	const proxy = "--proxy=127.0.0.1:0=http://127.0.0.1:1"
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "there is nothing to serve"},
		{[]string{"--proxy", "8080"}, "--proxy"},
		{[]string{"--proxy", ":0=ftp://a"}, "--proxy"},
		{[]string{"--proxy", in + "=http://127.0.0.1:1"}, "--proxy: cannot listen on " + in},
		{[]string{proxy, "--admin", in}, "--admin: cannot listen on " + in},
		{[]string{proxy, "--admin", "x"}, "--admin: cannot listen on x"},
		{[]string{proxy, "--admin", "127.0.0.1:0", "--admin-token-file", file + "x"}, "--admin-token-file: "},
		{[]string{proxy, "--paths", "x"}, "--paths"},
		{[]string{"--ask", "127.0.0.1:0", "--paths", "x"}, "--paths is \"x\""},
		{[]string{"--ask", "8082"}, "--ask: cannot listen on 8082: "},
		{[]string{proxy, "--upstream-timeout", "-1s"}, "--upstream-timeout"},
		{[]string{proxy, "--client-timeout", "0s"}, "--client-timeout"},
		{[]string{proxy, "--user-header", "a b"}, "--user-header"},
		{[]string{proxy, "--tier-header", "a_b"}, "--tier-header"},
		{[]string{proxy, "--tls-cert", file}, "--tls-cert needs --tls-key"},
		{[]string{proxy, "--tls-key", file}, "--tls-key needs --tls-cert"},
		{[]string{proxy, "--rls-tls", "--tls-cert", file, "--tls-key", file}, "--rls-tls needs --rls"},
		{[]string{proxy, "--tls-cert", file + "x", "--tls-key", file}, "--tls-cert " + file + "x and --tls-key " + file + ": open "},
		{[]string{proxy, "--tls-cert", file, "--tls-key", file}, "--tls-cert"},
		{[]string{proxy, "--access-log", filepath.Join(file, "x")}, "--access-log: "},
		{[]string{proxy, "--drain", "-1s"}, "--drain"},
		{[]string{proxy, "--redis", "redis://127.0.0.1:1", "--secret-file", file + "x"}, "--secret-file: "},
		{[]string{proxy, "--redis", "redis://127.0.0.1:1", "--rules-key", "x"}, "--rules-key needs the rules in Redis"},
		{[]string{proxy, "--redis", "redis://127.0.0.1:1", "--replicas", "0"}, "--replicas"},
		{[]string{proxy, "--redis", "redis://127.0.0.1:1", "--prefix", "a b"}, "--prefix"},
	} {
		exit, out, said := weir(t, "", append([]string{"serve", file}, test.args...)...)
		assert.Equal(t, exitBad, exit, test.args)
		assert.Empty(t, out)
		lines := strings.Split(strings.TrimSpace(said), "\n")
		assert.Contains(t, lines[len(lines)-1], "weir serve: "+test.want, test.args)
	}
	_, said := ends(t, exitUsage, "", "serve", file, proxy, "--redis", "redis://127.0.0.1:1", "--cluster", "--sentinel", "x")
	assert.Contains(t, said, "--cluster and --sentinel exclude each other")
	_, said = ends(t, exitBad, "", "serve", file+"x", proxy)
	assert.Contains(t, said, "weir serve: stat ")
	_, said = ends(t, exitBad, "", "serve", write(t, "user.yaml", "version: 1\ndefault: {limit: 5/s, key: user}\n"), proxy, "--user-header", "X-User")
	assert.Contains(t, said, "user.yaml:2:1: default: needs a user, which a client must not set itself")
	_, said = ends(t, exitBad, "", "serve", "redis", proxy)
	assert.Contains(t, said, "the rules are in a Redis: give --redis too")

	t.Setenv("WEIR_UPSTREAM_TIMEOUT", "soon")
	_, said = ends(t, exitBad, "", "serve", file, proxy)
	assert.Equal(t, "weir serve: $WEIR_UPSTREAM_TIMEOUT: want a value of type duration\n", said)
}

// Every flag works alone, or its error names the flag that it needs.
func TestAFlagIsRefusedWithoutTheFlagThatItNeeds(t *testing.T) {
	t.Setenv("WEIR_REDIS", "")
	file := write(t, "limits.yaml", "version: 1\ndefault: 100/h\n") // without descriptors, --rls serves nothing
	alone := []string{"proxy", "ask", "rls", "admin", "redis", "secret-file", "drain", "log-level", "help"}
	needs := map[string]string{"paths": "--proxy or --ask", "show-keys": "--proxy or --ask", "admin-token-file": "--admin", "fallback": "the rules in Redis, as in weir serve redis"}
	for _, name := range []string{"upstream-timeout", "client-timeout", "body-memory", "user-header", "tier-header", "access-log"} {
		needs[name] = "--proxy"
	}
	needs["tls-cert"], needs["tls-key"], needs["rls-tls"] = "--proxy or --rls-tls", "--proxy or --rls-tls", "--tls-cert"
	for _, name := range []string{"cluster", "sentinel", "prefix", "replicas", "leases", "rules-key"} {
		needs[name] = "--redis"
	}
	values := map[string]string{"bool": "true", "int": "2", "duration": "1s", "string": "x"}
	flagsOf(t, "serve").VisitAll(func(flag *pflag.Flag) {
		if slices.Contains(alone, flag.Name) {
			return
		}
		exit, out, said := weir(t, "", "serve", file, "--rls", "127.0.0.1:0", "--"+flag.Name+"="+values[flag.Value.Type()])
		assert.Equal(t, exitBad, exit, flag.Name)
		assert.Empty(t, out)
		assert.Equal(t, "weir serve: --"+flag.Name+" needs "+needs[flag.Name]+"\n", said)
	})
}

// Processes that share a Redis share limits and bans, with and without leases.
func TestProcessesShareARedis(t *testing.T) {
	server := redistest.Start(t)
	file, upstream := write(t, "limits.yaml", "version: 1\ndefault: {limit: 5/h, key: global, on_outage: closed}\n"), hello(t)
	redis := "redis://" + server.Addr
	succeed(t, "", "publish", file, "--redis", redis)
	passed, late := 0, 0
	for _, from := range [][]string{{file}, {"redis"}, {"redis", "--leases"}} {
		s := startServing(t, nil, append(from, "--redis", redis, "--replicas", "3", "--proxy", "127.0.0.1:0="+upstream, "--drain", "0s")...)
		for range 4 {
			switch status, _ := s.get("--proxy", "/"); status {
			case 200:
				passed++
			case 503: // the machine was too busy for Redis to be in time, which may have counted all the same
				late++
			}
		}
		s.stop()
	}
	require.LessOrEqual(t, passed, 5)
	require.GreaterOrEqual(t, passed+late, 5)
}

// A process that starts without rules lets nothing pass, says why, and takes the rules when they come.
func TestAProcessAwaitsItsRulesInRedis(t *testing.T) {
	server := redistest.Start(t, "--databases", "1") // its own: it is killed
	client := redistest.CloseAfter(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	var reached atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		_, _ = io.WriteString(w, "hello")
	}))
	t.Cleanup(upstream.Close)
	server.Kill()
	url := "--redis=redis://" + server.Addr
	fallback := write(t, "fallback.yaml", "version: 1\ndefault: {limit: 1/h, on_outage: local}\n")
	begin := func(args ...string) *served {
		return startServing(t, nil, append(args, "redis", url, "--proxy", "127.0.0.1:0="+upstream.URL, "--ask", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--drain", "0s")...)
	}
	waiting, leasing, limited := begin(), begin("--leases"), begin("--fallback", fallback)

	s := []*served{waiting, leasing, limited}
	for _, each := range s {
		each.eventually("--admin", "/livez", 200, "ok")
		each.eventually("--admin", "/readyz", 503, "connection refused")
		require.Eventually(t, func() bool {
			each.mu.Lock()
			defer each.mu.Unlock()
			return strings.Contains(each.said.String(), "weir-rules-awaited")
		}, 20*time.Second, 5*time.Millisecond)
	}
	for _, each := range s[:2] {
		answer, err := http.Get("http://" + each.addr["--proxy"] + "/")
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, 503, answer.StatusCode)
		assert.Equal(t, "10", answer.Header.Get("Retry-After"))
		r, err := http.NewRequest(http.MethodGet, "http://"+each.addr["--ask"]+"/forward", nil)
		require.NoError(t, err)
		r.Header = http.Header{"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {"/"}, "X-Forwarded-For": {"203.0.113.7"}}
		answer, err = http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, 503, answer.StatusCode)
	}
	require.Zero(t, reached.Load())
	status, _ := limited.get("--proxy", "/")
	assert.Equal(t, 200, status)
	status, _ = limited.get("--proxy", "/")
	assert.Equal(t, 429, status)

	server.Restart()
	for _, each := range s {
		each.eventually("--admin", "/readyz", 503, "the key does not exist")
	}
	require.NoError(t, client.Set(t.Context(), "limits", "version: 1\ndefault: {limt: 5/s}\n", 0).Err())
	require.NoError(t, client.Publish(t.Context(), "limits:changed", "").Err())
	for _, each := range s {
		each.eventually("--admin", "/readyz", 503, "2:11: default.limt")
	}
	status, _ = waiting.get("--proxy", "/")
	assert.Equal(t, 503, status)
	succeed(t, "", "publish", write(t, "limits.yaml", "version: 1\ndefault: {limit: 1000/h, key: global}\n"), url)
	for _, each := range s {
		each.eventually("--admin", "/readyz", 200, "ok")
		each.eventually("--proxy", "/", 200, "hello")
		each.stop()
	}
}

func TestAFallbackIsCheckedAtTheStart(t *testing.T) {
	for text, want := range map[string]string{
		"version: 1\ndefault: {limt: 1/s}\n":             "fallback.yaml:2:11: default.limt: unknown field",
		"version: 1\ndefault: {limit: 1/s, key: user}\n": "fallback.yaml:2:1: default: needs a user",
	} {
		_, said := ends(t, exitBad, "", "serve", "redis", "--redis=redis://127.0.0.1:1", "--ask=127.0.0.1:0", "--fallback", write(t, "fallback.yaml", text))
		assert.Contains(t, said, "weir serve: --fallback: ")
		assert.Contains(t, said, want)
	}
	_, said := ends(t, exitBad, "", "serve", "redis", "--redis=redis://127.0.0.1:1", "--ask=127.0.0.1:0", "--fallback", "none.yaml")
	assert.Contains(t, said, "weir serve: --fallback: open none.yaml")
	_, said = ends(t, exitBad, "", "serve", "redis", "--redis=redis://127.0.0.1:1", "--rls=127.0.0.1:0", "--fallback", write(t, "fallback.yaml", loose))
	assert.Contains(t, said, "the rules have no descriptors")
}

// While Redis hangs, each rule follows its outage policy, and no request waits in the gateway.
func TestRequestsAreAnsweredWhileRedisHangs(t *testing.T) {
	server := redistest.Start(t)
	file := write(t, "limits.yaml", `version: 1
endpoints:
  "/open": {limit: 1/h, key: global, on_outage: open}
  "/closed": {limit: 1000000/h, key: global, on_outage: closed}
  "/local": {limit: 3/h, key: global}
`)
	s := startServing(t, nil, file, "--redis", "redis://"+server.Addr, "--proxy", "127.0.0.1:0="+hello(t), "--admin", "127.0.0.1:0", "--drain", "0s")
	s.eventually("--proxy", "/closed", 200, "hello") // a busy machine may be late at first
	goroutines := func() int {
		_, metrics := s.get("--admin", "/metrics")
		found := regexp.MustCompile(`(?m)^go_goroutines (\d+)`).FindStringSubmatch(metrics)
		require.Len(t, found, 2, metrics)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	before := goroutines()
	server.Pause()
	defer server.Resume()
	const clients = 8
	counts := make([]map[string]int, clients)
	var load sync.WaitGroup
	for i := range counts {
		counts[i] = map[string]int{}
		load.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := range 60 {
				path := []string{"/open", "/closed", "/local"}[n%3]
				answer, err := client.Get("http://" + s.addr["--proxy"] + path)
				if !assert.NoError(t, err) {
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				counts[i][path+" "+strconv.Itoa(answer.StatusCode)]++
			}
		})
	}
	load.Wait()
	all := map[string]int{}
	for _, of := range counts {
		for what, n := range of {
			all[what] += n
		}
	}
	assert.Equal(t, map[string]int{"/open 200": 160, "/closed 503": 160, "/local 200": 3, "/local 429": 157}, all)
	require.Eventually(t, func() bool { return goroutines() < before+3*clients }, 30*time.Second, 10*time.Millisecond, "before: %d", before)
	server.Resume()
	s.eventually("--proxy", "/closed", 200, "hello")
	s.signal(os.Interrupt)
	<-s.done
	assert.Contains(t, s.said.String(), `"code":"weir-degraded"`)
	for line := range strings.Lines(s.said.String()) {
		assert.True(t, json.Valid([]byte(line)), "the log is JSON: %s", line)
	}
}

func TestThePageIsForThisMachineOrThoseWithTheToken(t *testing.T) {
	local := &admin{}
	token := &admin{token: []byte("0123456789abcdef")}
	for _, test := range []struct {
		remote, host  string
		local, secret bool
		password      string
	}{
		{"127.0.0.1:5", "127.0.0.1:9090", true, false, ""},
		{"[::1]:5", "localhost:9090", true, false, ""},
		{"127.0.0.1:5", "rebound.example", false, false, ""},
		{"192.0.2.1:5", "127.0.0.1:9090", false, false, "0123456789abcdeF"},
		{"192.0.2.1:5", "weir.example", false, true, "0123456789abcdef"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = test.remote, test.host
		if test.password != "" {
			r.SetBasicAuth("any", test.password)
		}
		assert.Equal(t, test.local, local.authorize(r), "%v", test)
		assert.Equal(t, test.secret, token.authorize(r), "%v", test)
	}
}

// All flags and variables in the documentation and the deployment files exist.
func TestWhatDocumentationSaysOfServeIsThere(t *testing.T) {
	files, err := filepath.Glob("deploy/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	flags := flagsOf(t, "serve")
	variables := map[string]bool{"WEIR_REDIS": true, "WEIR_SECRET": true}
	flags.VisitAll(func(f *pflag.Flag) { variables["WEIR_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))] = true })
	found := 0
	for _, file := range append(files, "../../docs/gateway.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`WEIR_[A-Z_]+`).FindAllString(string(text), -1) {
			assert.True(t, variables[name], "%s: %s", file, name)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "weir serve") && !strings.Contains(line, "command: [serve") {
				continue
			}
			for _, given := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(line, -1) {
				found++
				assert.NotNil(t, flags.Lookup(given[1]), "%s: --%s", file, given[1])
			}
		}
		if base := filepath.Base(file); strings.HasPrefix(base, "weir.") && filepath.Ext(base) == ".yaml" {
			succeed(t, "", "check", file)
		}
	}
	assert.Greater(t, found, 10)
}
