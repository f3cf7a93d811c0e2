package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
)

// trust are the options that a row of the table can name. The proxies connect from 127.0.0.1.
var trust = map[string]keyfunc.IPOption{
	"`TrustProxies`":               keyfunc.TrustProxies("127.0.0.1"),
	"`TrustForwarded`":             keyfunc.TrustForwarded("127.0.0.1"),
	"`TrustHeader(\"X-Real-IP\")`": keyfunc.TrustHeader("X-Real-IP", "127.0.0.1"),
}

// A proxy is a program with a configuration. PORT, SERVICE (an address), SERVICEPORT and DIR are replaced in config and args.
type proxy struct {
	name, setup string
	program     string
	args        []string
	config      string // the file DIR/config
	version     []string
	option      string // that is right; empty: none is
}

var proxies = []proxy{
	{name: "nginx", setup: "`proxy_pass` alone", program: "nginx", version: []string{"-v"}, args: nginxArgs, config: nginxConfig("")},
	{name: "nginx", setup: "`X-Forwarded-For $proxy_add_x_forwarded_for`", program: "nginx", version: []string{"-v"}, args: nginxArgs,
		config: nginxConfig("proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"), option: "`TrustProxies`"},
	{name: "nginx", setup: "`X-Real-IP $remote_addr`", program: "nginx", version: []string{"-v"}, args: nginxArgs,
		config: nginxConfig("proxy_set_header X-Real-IP $remote_addr;"), option: "`TrustHeader(\"X-Real-IP\")`"},
	{name: "HAProxy", setup: "as packaged", program: "haproxy", version: []string{"-v"}, args: []string{"-db", "-f", "DIR/config"}, config: haproxyConfig("")},
	{name: "HAProxy", setup: "`option forwardfor`", program: "haproxy", version: []string{"-v"}, args: []string{"-db", "-f", "DIR/config"},
		config: haproxyConfig("option forwardfor"), option: "`TrustProxies`"},
	{name: "Caddy", setup: "`reverse_proxy`", program: "caddy", version: []string{"version"}, args: []string{"run", "--adapter", "caddyfile", "--config", "DIR/config"},
		config: "{\n admin off\n auto_https off\n}\nhttp://:PORT {\n bind 127.0.0.1\n reverse_proxy SERVICE\n}\n", option: "`TrustProxies`"},
	{name: "lighttpd", setup: "`mod_proxy`", program: "lighttpd", version: []string{"-v"}, args: []string{"-D", "-f", "DIR/config"},
		config: lighttpdConfig(""), option: "`TrustProxies`"},
	{name: "lighttpd", setup: "`proxy.forwarded`", program: "lighttpd", version: []string{"-v"}, args: []string{"-D", "-f", "DIR/config"},
		config: lighttpdConfig("proxy.forwarded = (\"for\" => 1)\n"), option: "`TrustForwarded`"},
	{name: "Apache", setup: "`ProxyPass`", program: "apache2", version: []string{"-v"}, args: []string{"-X", "-f", "DIR/config"},
		config: "ServerRoot DIR\nServerName lab\nPidFile DIR/pid\nErrorLog DIR/errors\nListen 127.0.0.1:PORT\nUser nobody\nGroup nogroup\n" +
			"LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\nLoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n" +
			"LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so\nLoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so\n" +
			"ProxyPass / http://SERVICE/\n", option: "`TrustProxies`"},
	{name: "Varnish", setup: "as packaged", program: "varnishd", version: []string{"-V"}, args: []string{"-F", "-a", "127.0.0.1:PORT", "-b", "SERVICE", "-n", "DIR/varnish", "-s", "malloc,16m"}, option: "`TrustProxies`"},
	{name: "H2O", setup: "`proxy.reverse.url`", program: "h2o", version: []string{"-v"}, args: []string{"-c", "DIR/config"},
		config: "user: nobody\nlisten:\n  host: 127.0.0.1\n  port: PORT\nhosts:\n  default:\n    paths:\n      /:\n        proxy.reverse.url: http://SERVICE/\n", option: "`TrustProxies`"},
	{name: "nghttpx", setup: "as packaged", program: "nghttpx", version: []string{"-v"}, args: []string{"--conf=DIR/config", "-f", "127.0.0.1,PORT;no-tls", "-b", "127.0.0.1,SERVICEPORT"}},
	{name: "nghttpx", setup: "`add-x-forwarded-for`, `strip-incoming-x-forwarded-for`", program: "nghttpx", version: []string{"-v"},
		args: []string{"--conf=DIR/config", "--add-x-forwarded-for", "--strip-incoming-x-forwarded-for", "-f", "127.0.0.1,PORT;no-tls", "-b", "127.0.0.1,SERVICEPORT"}, option: "`TrustProxies`"},
	{name: "tinyproxy", setup: "reverse", program: "tinyproxy", version: []string{"-v"}, args: []string{"-d", "-c", "DIR/config"},
		config: "Port PORT\nListen 127.0.0.1\nMaxClients 20\nReverseOnly Yes\nReversePath \"/\" \"http://SERVICE/\"\n"},
}

var nginxArgs = []string{"-p", "DIR", "-c", "config", "-g", "pid DIR/pid; error_log DIR/errors; daemon off; master_process off;"}

func nginxConfig(more string) string {
	return "events {}\nhttp {\n access_log off; client_max_body_size 0; client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;\n" +
		" server { listen 127.0.0.1:PORT; location / { proxy_pass http://SERVICE; " + more + " } }\n}\n"
}

func haproxyConfig(more string) string {
	return "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n " + more + "\nlisten lab\n bind 127.0.0.1:PORT\n server service SERVICE\n"
}

func lighttpdConfig(more string) string {
	return "server.modules = (\"mod_proxy\")\nserver.document-root = \"DIR\"\nserver.bind = \"127.0.0.1\"\nserver.port = PORT\n" + more +
		"proxy.server = (\"\" => ((\"host\" => \"127.0.0.1\", \"port\" => SERVICEPORT)))\n"
}

// proxiesInCI are the proxies of a short run.
var proxiesInCI = []string{"nginx", "HAProxy"}

func TestProxies(t *testing.T) {
	rows := make([]string, len(proxies))
	var all sync.WaitGroup
	for i, p := range proxies {
		if testing.Short() && !slices.Contains(proxiesInCI, p.name) {
			continue
		}
		if _, err := exec.LookPath(p.program); err != nil {
			t.Fatalf("%s is not installed: .ci/lab installs what the lab needs", p.program)
		}
		all.Go(func() { rows[i] = p.row(t) })
	}
	all.Wait()
	rows = slices.DeleteFunc(rows, func(row string) bool { return row == "" })
	if left := len(proxies) - len(rows); left > 0 {
		t.Logf("left out: %d set-ups of proxies; make lab runs them", left)
	}
	compare(t, "proxies", "| proxy | the service gets, when `203.0.113.9` writes `X-Forwarded-For: 198.51.100.1` | HTTP | option | a refused upload of 2 MB |\n|---|---|---|---|---|\n"+strings.Join(rows, ""))
}

// row runs a proxy, and returns its row of the table. Clients are 127.0.0.2 and 127.0.0.3.
func (p proxy) row(t *testing.T) string {
	var mu sync.Mutex
	var seen *http.Request
	limited := http.Handler(nil)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = r
		mu.Unlock()
		limited.ServeHTTP(w, r)
	}))
	t.Cleanup(service.Close)
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		_, _ = io.Copy(w, r.Body)
	})
	limited = ok
	at, version := p.start(t, service.Listener.Addr().String())
	if at == "" {
		return ""
	}

	if _, err := ask(at, "127.0.0.2", 1, nil); err != nil {
		t.Errorf("%s: %v", p.name, err)
		return ""
	}
	mu.Lock()
	field, protocol := "X-Forwarded-For", strings.TrimPrefix(seen.Proto, "HTTP/")
	switch {
	case p.option == "`TrustForwarded`":
		field = "Forwarded"
	case strings.Contains(p.option, "TrustHeader"):
		field = "X-Real-Ip"
	}
	got := strings.NewReplacer("127.0.0.2", "203.0.113.9").Replace(strings.Join(seen.Header[field], "`, `"))
	mu.Unlock()

	// The option that the row names holds a limit of 3, whatever five requests claim. Where none is right,
	// TrustProxies lets all five pass.
	option, passes := p.option, 3
	if option == "" {
		option, passes = "`TrustProxies`", 5
	}
	limit := weir.Limit{Events: 3, Per: time.Hour}
	limits, err := weir.New(weir.Config{Rules: []weir.Rule{{Name: "lab", Key: keyfunc.IP(trust[option]), Limit: limit}}})
	if err != nil {
		t.Errorf("%s: %v", p.name, err)
		return ""
	}
	limited = limits.Handler(ok)
	passed := 0
	for n := range 5 {
		if status, _ := ask(at, "127.0.0.2", n, nil); status == http.StatusOK {
			passed++
		}
	}
	if passed != passes {
		t.Errorf("%s, %s: with %s, %d of 5 requests passed a limit of 3", p.name, p.setup, option, passed)
	}
	if status, err := ask(at, "127.0.0.3", 0, nil); p.option != "" && status != http.StatusOK {
		t.Errorf("%s, %s: with %s, another client got %d, %v", p.name, p.setup, option, status, err)
	}
	upload := "·"
	if p.option != "" {
		status, err := ask(at, "127.0.0.2", 0, make([]byte, 2<<20))
		if upload = fmt.Sprint(status); err != nil {
			upload = "broken off"
		}
	}
	if p.option == "" {
		option = "none"
	}
	return fmt.Sprintf("| %s %s, %s | %s: `%s` | %s | %s | %s |\n", p.name, version, p.setup, field, got, protocol, option, upload)
}

// ask sends a request from a client that writes its own address into every field that may name one.
func ask(at, client string, n int, body []byte) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+at+"/", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	address := fmt.Sprintf("198.51.100.%d", n)
	r.Header.Set("X-Forwarded-For", address)
	r.Header.Set("X-Real-IP", address)
	r.Header.Set("Forwarded", "for="+address)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	res, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// start returns the address and the version of a running proxy.
func (p proxy) start(t *testing.T, service string) (at, version string) {
	dir, err := os.MkdirTemp("", "lab") // not t.TempDir: some proxies become another user, who must get in
	if err != nil {
		t.Error(err)
		return "", ""
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	_ = os.Chmod(dir, 0o777)
	port := fmt.Sprint(31_100 + rand.IntN(1600)) // no system gives these to a connection
	_, servicePort, _ := net.SplitHostPort(service)
	fill := strings.NewReplacer("SERVICEPORT", servicePort, "SERVICE", service, "PORT", port, "DIR", dir)
	if err := os.WriteFile(dir+"/config", []byte(fill.Replace(p.config)), 0o644); err != nil {
		t.Error(err)
		return "", ""
	}
	text, err := exec.Command(p.program, p.version...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v", p.program, p.version, err)
	}
	args := make([]string, len(p.args))
	for i, arg := range p.args {
		args[i] = fill.Replace(arg)
	}
	output := &bytes.Buffer{}
	c := exec.Command(p.program, args...)
	c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir)
	c.Stdout, c.Stderr, c.WaitDelay = output, output, time.Second
	if err := c.Start(); err != nil {
		t.Errorf("%s: %v", p.name, err)
		return "", ""
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		time.AfterFunc(2*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
	})
	at = "127.0.0.1:" + port
	for range 400 {
		if conn, err := net.Dial("tcp", at); err == nil {
			_ = conn.Close()
			return at, number.FindString(string(text))
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%s does not listen\n%s", p.name, output)
	return "", ""
}
