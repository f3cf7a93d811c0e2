// Command gateway measures weir serve as a proxy beside a bare httputil.ReverseProxy without and with
// a BufferPool, and if they are installed, nginx with limit_req and Caddy's bare reverse_proxy. It
// prints the CPU time of the proxy for a request, and the time that a request takes at a quarter of
// the slowest proxy's capacity.
//
//	go build -o /tmp/weir ../cmd/weir && go run ./gateway /tmp/weir
//
// The proxies take turns on one machine with the load generator and the service, so only ratios of
// one run mean anything.
package main

import (
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	connections = 16
	turns       = 7
	turn        = 1500 * time.Millisecond
)

const rules = `version: 1
proxies: {}
endpoints:
  "POST /login": 5/m
  "GET /users/{id}": {limit: 1000000/s, name: users}
default: 1000000/s
`

const nginx = `daemon off; worker_processes 1; pid %[1]s/pid; error_log /dev/null crit;
events { worker_connections 512; }
http {
  access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;
  upstream service { server %[3]s; keepalive 64; }
  server { listen %[2]s; keepalive_requests 1000000; location / {
    limit_req zone=all burst=1000000 nodelay;
    proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}
`

const caddy = `{
	admin off
	auto_https off
	log {
		output discard
	}
}
http://%[1]s {
	bind 127.0.0.1
	reverse_proxy %[2]s
}
`

// A proxy is a process that passes requests on.
type proxy struct {
	name, addr string
	pids       []int
	capacity   float64   // requests a second in the first turn
	cost       []float64 // microseconds of CPU for a request, by turn
	took       [][]time.Duration
}

func main() {
	if len(os.Args) == 3 {
		bare(os.Args[2], os.Args[1] == "pooled")
	}
	if len(os.Args) != 2 {
		log.Fatal("want the weir to measure")
	}
	service, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() {
		check(http.Serve(service, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })))
	}()
	dir, err := os.MkdirTemp("", "gateway")
	check(err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "limits.yaml")
	check(os.WriteFile(file, []byte(rules), 0o600))
	to := service.Addr().String()
	var proxies []*proxy
	begin := func(name string, args func(addr string) []string) {
		p := &proxy{name: name, addr: free()}
		command := args(p.addr)
		cmd := exec.Command(command[0], command[1:]...)
		if err := cmd.Start(); err != nil {
			log.Printf("%s is left out: %v", name, err)
			return
		}
		defer func() { p.pids = append(children(cmd.Process.Pid), cmd.Process.Pid) }()
		for range 500 {
			if c, err := net.Dial("tcp", p.addr); err == nil {
				c.Close()
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		proxies = append(proxies, p)
	}
	defer func() {
		for _, p := range proxies {
			for _, pid := range p.pids {
				if process, err := os.FindProcess(pid); err == nil {
					_ = process.Kill()
				}
			}
		}
	}()
	begin("bare", func(addr string) []string { return []string{os.Args[0], "bare", addr + "=" + to} })
	begin("pooled", func(addr string) []string { return []string{os.Args[0], "pooled", addr + "=" + to} })
	begin("weir", func(addr string) []string {
		return []string{os.Args[1], "serve", file, "--proxy", addr + "=http://" + to}
	})
	begin("nginx", func(addr string) []string {
		config := filepath.Join(dir, "nginx.conf")
		check(os.WriteFile(config, fmt.Appendf(nil, nginx, dir, addr, to), 0o600))
		return []string{"nginx", "-c", config, "-p", dir}
	})
	begin("caddy", func(addr string) []string {
		config := filepath.Join(dir, "Caddyfile")
		check(os.WriteFile(config, fmt.Appendf(nil, caddy, addr, to), 0o600))
		return []string{"caddy", "run", "--config", config, "--adapter", "caddyfile"}
	})
	rate := math.Inf(1)
	for _, p := range proxies {
		p.measure(0) // warms up
		rate = min(rate, p.capacity/4)
	}
	for range turns {
		for _, p := range proxies {
			p.measure(rate)
		}
	}
	fmt.Printf("%d connections; times at %.0f requests/s\n", connections, rate)
	for _, p := range proxies {
		ratios := make([]float64, turns)
		for i := range ratios {
			ratios[i] = p.cost[i] / proxies[0].cost[i]
		}
		slices.Sort(ratios)
		slices.Sort(p.cost)
		fmt.Printf("%-6s %6.1f us CPU a request, %.2f of bare (%.2f to %.2f); p50 %v p99 %v\n", p.name, p.cost[turns/2], ratios[turns/2], ratios[0], ratios[turns-1], p.part(0.5), p.part(0.99))
	}
}

// bare is httputil.ReverseProxy as it is, with connections to spare.
func bare(text string, pooled bool) {
	addr, to, _ := strings.Cut(text, "=")
	target := &url.URL{Scheme: "http", Host: to}
	handler := &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
	}
	if pooled {
		handler.BufferPool = &buffers{}
	}
	check(http.ListenAndServe(addr, handler))
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return buffer[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buffer []byte) { b.pool.Put((*[32 << 10]byte)(buffer)) }

// measure has a turn of requests on all connections, and then a second of requests at a rate. A rate
// of 0 measures the capacity only.
func (p *proxy) measure(rate float64) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}}
	defer client.CloseIdleConnections()
	get := func() {
		answer, err := client.Get("http://" + p.addr + "/users/42")
		check(err)
		if answer.StatusCode != 200 {
			log.Fatal(p.name, " answers ", answer.Status)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	var requests atomic.Int64
	var all sync.WaitGroup
	before, end := p.cpu(), time.Now().Add(turn)
	for range connections {
		all.Go(func() {
			for time.Now().Before(end) {
				get()
				requests.Add(1)
			}
		})
	}
	all.Wait()
	cost := float64((p.cpu() - before).Microseconds()) / float64(requests.Load())
	if rate == 0 {
		p.capacity = float64(requests.Load()) / turn.Seconds()
		return
	}
	// Open loop: a request does not wait for the answer to another.
	took := make([]time.Duration, int(rate))
	began := time.Now()
	for i := range took {
		time.Sleep(time.Until(began.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
		all.Go(func() {
			sent := time.Now()
			get()
			took[i] = time.Since(sent)
		})
	}
	all.Wait()
	p.cost, p.took = append(p.cost, cost), append(p.took, took)
}

// part is the median over the turns of a quantile.
func (p *proxy) part(q float64) time.Duration {
	var of []time.Duration
	for _, took := range p.took {
		slices.Sort(took)
		of = append(of, took[int(q*float64(len(took)))])
	}
	slices.Sort(of)
	return of[len(of)/2].Round(time.Microsecond)
}

// cpu is the time that the processes have used.
func (p *proxy) cpu() (used time.Duration) {
	for _, pid := range p.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		check(err)
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		for _, field := range fields[11:13] {
			ticks, err := strconv.Atoi(field)
			check(err)
			used += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return used
}

func children(pid int) (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for field := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer l.Close()
	return l.Addr().String()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
